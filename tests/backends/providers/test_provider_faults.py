"""What goes wrong with a provider: faults are retried, end their own episodes alone, and no key is shown."""

import json
import logging
import time
from collections import Counter

import gymnasium as gym
import pytest
from provider_server import Fault, mischief, random_mischief

from gym_text import UsageError
from gym_text_policies import EpisodeStore, LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.connection import check_url
from gym_text_policies.policy import text_spec

PROVIDERS = ["openai", "ollama", "tensorzero"]
KEY = "sk-1234567890-very-secret"
QUESTION = Request(({"role": "user", "content": "A red ball."},), max_tokens=7)
FAULTS = {
    "too many requests": Fault(429, '{"error": {"message": "slow down"}}', {"Retry-After": "0"}),
    "server error": Fault(500, "oops"),
    "dropped": Fault(drop=True),
    "torn": Fault(200, '{"choices": []}', torn=True),
    "late": Fault(late=1.2, body="{}"),
    "malformed": Fault(200, '{"choices": ['),
    "empty": Fault(200, ""),
    "empty object": Fault(200, "{}"),
    "a page": Fault(200, "<html>hello</html>", content_type="text/html"),
    "an error as a success": Fault(200, '{"error": {"message": "the pool is empty", "code": 503}}'),
}


@pytest.mark.parametrize(
    ("provider", "fault"),
    [("openai", fault) for fault in FAULTS]
    + [("ollama", fault) for fault in ("too many requests", "dropped", "late", "empty object", "an error as a success")]
    + [("tensorzero", fault) for fault in ("server error", "dropped", "late", "malformed")],
)
def test_a_fault_is_retried(server, backend_of, provider, fault):
    server.faults.append(FAULTS[fault])
    slow = fault == "late"  # on a busy machine the next answer may be late as well
    backend = backend_of(server, provider, timeout=1.0 if slow else 30.0, retries=4 if slow else 1)
    assert backend.answer([QUESTION])[0].text == "go forward"
    assert len(server.requests) == 2 or (slow and len(server.requests) > 2)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_after_the_last_try_the_error_has_the_servers_words(server, backend_of, provider):
    server.faults.extend([Fault(500, "oops")] * 2)
    with pytest.raises(PolicyError, match=r"500.*oops.*\(2 tries\)"):
        backend_of(server, provider, retries=1).answer([QUESTION])
    assert len(server.requests) == 2


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_retry_after_is_honoured_and_too_long_a_wait_is_not_waited(server, backend_of, provider):
    server.faults.append(Fault(429, "slow down", {"Retry-After": "1"}))
    start = time.monotonic()
    backend_of(server, provider, retries=1).answer([QUESTION])
    assert time.monotonic() - start >= 1
    server.faults.append(Fault(429, "slow down", {"Retry-After": "3600"}))
    with pytest.raises(PolicyError, match="HTTP 429"):
        backend_of(server, provider, retries=5).answer([QUESTION])
    assert len(server.requests) == 3


def make_goto():
    return gym.make("BabyAIText-v0", task="goto", expert="off", max_episode_steps=4)


def policy_of(backend):
    return LLMPolicy(backend, text_spec(make_goto()))


def test_a_provider_that_does_everything_wrong_ends_no_run(server, backend_of, tmp_path):
    server.text = "turn left"
    server.faults += random_mischief(5 * len(mischief(0)), seed=0, silence=3.0)
    with EpisodeStore(tmp_path, {}) as store:
        policy = policy_of(backend_of(server, retries=1, timeout=2.0))
        for episode in rollout(make_goto, policy, range(30), workers=8, num_envs=1):
            store.append(episode)
    assert not server.faults, "every fault has happened"
    episodes = list(store.episodes())
    assert sorted(episode.seed for episode in episodes) == list(range(30))
    outcomes = Counter(episode.outcome for episode in episodes)
    assert sum(outcomes.values()) == 30 and outcomes["error"] > 0 and outcomes["truncated"] + outcomes["lost"] > 0
    assert all(episode.error.startswith("PolicyError: openai:m: ") for episode in episodes if episode.outcome == "error")
    assert all(len(episode.error) < 1500 for episode in episodes if episode.error)
    assert all(episode.length == 4 for episode in episodes if episode.outcome == "truncated")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_key_appears_in_no_record_log_error_configuration_or_cache(server, backend_of, provider, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    backend = backend_of(server, provider, cache=str(tmp_path / "cache"), retries=1)
    policy = policy_of(backend)
    store = EpisodeStore(tmp_path / "run", {"policy": policy.config})
    server.faults.append(Fault(500, f"the key {KEY} met an error"))
    server.faults.append(Fault(401, f"Incorrect API key provided: {KEY}"))
    for episode in rollout(make_goto, policy, range(3), num_envs=1):
        store.append(episode)
    errors = [episode.error for episode in store.episodes() if episode.error]
    assert len(errors) == 1 and "(not kept)" in errors[0]
    headers = {name.lower(): value for name, value in server.requests[0][1].items()}
    assert headers["authorization"] == f"Bearer {KEY}", "the key was in use"
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 3 and not any(KEY.encode() in data for data in written)
    assert KEY not in caplog.text and KEY not in repr(backend) + repr(vars(backend)) + json.dumps(policy.config)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("openai:m", {"api_key": KEY}, "environment variables only"),
        ("openai:m", {"timeuot": 3}, "timeout"),
        ("openai:m", {"key_variable": KEY}, "name of an environment variable"),
        ("openai:m", {"retries": -1}, "from 0 to 100; got -1"),
        ("openai:m", {"max_cost": 1}, "expected prices"),
        ("openai:m", {"prices": {"other": {"input": 1, "output": 1}}}, "prices: expected"),
        ("openai:m", {"cache": 5}, "cache: expected a text"),
        ("openai:m", {"extra": ["reasoning_effort"]}, "extra: expected names and values"),
        ("openai:m", {"server": "lab"}, "server: expected none without a base_url"),
        ("openai:m", {"key_variable": None}, "expected a key in the environment variable"),
        ("opnai:m", {}, r"openai:MODEL.*got 'opnai:m'"),
        ("ollama:m", {"num_ctx": 0}, "num_ctx: expected an integer"),
        ("tensorzero:f", {}, "got both or neither"),
    ],
)
def test_wrong_options_are_refused_and_no_key_is_shown(server, model, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        load_backend(model, **options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        ["http://a", "http://b"],
        5,
        "host",
        "http://[::1",
        "http://a:b/v1",
        "ftp://a",
        "",
        f"http://me:{KEY}@[h/v1",
        f"https://h/v1?key={KEY}",
    ],
)
def test_what_is_no_address_is_refused_and_no_key_of_it_is_shown(url):
    with pytest.raises(UsageError, match="base_url: expected an address") as caught:
        check_url(url)
    assert KEY not in str(caught.value)
