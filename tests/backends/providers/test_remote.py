"""Providers behind their own clients, against a server that checks every request: answers, faults, limits, cache, keys."""

import contextlib
import functools
import json
import logging
import subprocess
import sys
import threading
import time

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text.errors import BudgetError
from gym_text_policies import EpisodeStore, LLMPolicy, PolicyError, load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.load import load_when_asked
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import text_spec
from gym_text_policies.run.experiment_folder import run_experiment

KEY = "sk-1234567890-very-secret"
PRICES = {"m": {"input": 2.0, "cached": 0.5, "output": 10.0}}
SCHEMA = {
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "action": {"type": "string", "enum": ["go forward", "drop"]}},
    "required": ["reasoning", "action"],
    "additionalProperties": False,
}


@pytest.fixture
def server(monkeypatch):
    """Return a provider that has answered nothing yet; keys and addresses of the environment do not count."""
    for name in ("OPENAI_BASE_URL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.05)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OLLAMA_API_KEY", KEY)
    monkeypatch.setenv("TENSORZERO_API_KEY", KEY)
    with running(ProviderServer()) as server, contextlib.ExitStack() as stack:
        server.stack = stack
        yield server


def backend_of(server, provider="openai", /, **options):
    url = {"openai": f"{server.url}/v1"}.get(provider, server.url)
    return server.stack.enter_context(contextlib.closing(load_backend(f"{provider}:m", base_url=url, **options)))


def ask(backend, text="A red ball.", **fields):
    messages = ({"role": "system", "content": "You play."}, {"role": "user", "content": text})
    return backend.answer([Request(messages, **fields)])[0]


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_a_text_is_a_chat_with_the_requests_settings(server, provider):
    answer = ask(backend_of(server, provider), max_tokens=7, temperature=0.5, seed=3)
    assert (answer.text, server.refusal) == ("go forward", None)
    assert answer.tokens_in > 0 < answer.tokens_out
    body = server.requests[0][2]
    settings = {"openai": body, "ollama": body.get("options"), "tensorzero": body.get("params", {}).get("chat_completion")}[
        provider
    ]
    assert (settings["temperature"], settings["seed"]) == (0.5, 3)
    assert settings["num_predict" if provider == "ollama" else "max_tokens"] == 7


def test_openai_counts_cached_tokens_apart_and_prices_them(server):
    answer = ask(backend_of(server, prices=PRICES), "one two three four five")
    assert answer.tokens_cached == answer.tokens_in // 2 > 0
    new = answer.tokens_in - answer.tokens_cached
    assert answer.cost == pytest.approx((new * 2 + answer.tokens_cached * 0.5 + answer.tokens_out * 10) / 1e6)


def test_openai_itself_is_asked_with_the_name_that_its_newer_models_know(server):
    backend = server.stack.enter_context(contextlib.closing(load_backend("openai:m")))
    backend._client.clients[0]._client.base_url = f"{server.url}/v1"
    assert ask(backend, max_tokens=7).text == "go forward"
    assert server.requests[0][2]["max_completion_tokens"] == 7 and "base_url" not in backend.config


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_a_schema_goes_along_in_the_providers_own_form(server, provider):
    server.text = '{"reasoning": "", "action": "drop"}'
    answer = ask(backend_of(server, provider), schema=SCHEMA)
    assert (json.loads(answer.text)["action"], server.refusal) == ("drop", None)
    body = server.requests[0][2]
    sent = body["format"] if provider == "ollama" else body["response_format"]["json_schema"]["schema"]
    assert sent == SCHEMA


def test_the_server_refuses_what_openai_would_refuse(server):
    for schema in (SCHEMA | {"required": ["action"]}, {key: SCHEMA[key] for key in SCHEMA if key != "additionalProperties"}):
        with pytest.raises(PolicyError, match="HTTP 400"):
            ask(backend_of(server), schema=schema)
    with pytest.raises(PolicyError, match="HTTP 400"):
        backend_of(server).answer([Request(({"role": "wizard", "content": "x"},))])


@pytest.mark.parametrize(
    ("provider", "options", "path", "kind"),
    [
        ("openai", {}, "/v1/decisions", "decision"),
        ("openai", {"decide": "systemone"}, "/v1/systemone", "letter"),
        ("ollama", {}, "/v1/systemone", "decision"),
    ],
)
def test_choices_are_one_typed_decision(server, provider, options, path, kind):
    backend = backend_of(server, provider, **options)
    answer = ask(backend, choices=("turn left", "go forward", "drop"))
    assert (server.requests[0][0], server.refusal) == (path, None)
    assert list(answer.probabilities) == ["turn left", "go forward", "drop"]
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-9)
    assert (answer.text, answer.probability_kind) == (None, kind)
    assert answer.tokens_in > 0
    alone = ask(backend, choices=("turn left",))
    assert alone.probabilities == {"turn left": 1.0} and len(server.requests) == 1, "one choice needs no call"


@pytest.mark.parametrize(("options", "most"), [({}, 255), ({"decide": "systemone"}, 26)])
def test_more_choices_than_a_provider_allows_name_the_mode_json(server, options, most):
    backend = backend_of(server, **options)
    assert len(ask(backend, choices=tuple(map(str, range(most)))).probabilities) == most
    with pytest.raises(PolicyError, match=f"1 to {most} choices; got {most + 1}.*'json'"):
        ask(backend, choices=tuple(map(str, range(most + 1))))
    assert len(server.requests) == 1


def test_a_provider_without_typed_decisions_says_which_mode_to_take(server):
    with pytest.raises(UsageError, match="mode 'text' or 'json'"):
        ask(backend_of(server, "tensorzero"), choices=("a", "b"))
    server.faults.append(Fault(404, '{"error": "no such route"}'))
    with pytest.raises(PolicyError, match=r"HTTP 404.*Mode 'json'"):
        ask(backend_of(server), choices=("a", "b"))


def test_a_refused_decision_is_an_error_that_is_not_retried(server):
    usage = {"input_tokens": 9, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 0}}
    server.faults.append(Fault(200, json.dumps({"answers": [{"type": "refusal"}], "model": "m", "usage": usage})))
    with pytest.raises(PolicyError, match="refused to decide"):
        ask(backend_of(server), choices=("a", "b"))
    assert len(server.requests) == 1


def test_extra_fields_are_sent_and_none_leaves_one_out(server):
    backend = backend_of(server, extra={"temperature": None, "reasoning_effort": "low"})
    ask(backend)
    body = server.requests[0][2]
    assert "temperature" not in body and body["reasoning_effort"] == "low" and server.refusal is None
    assert backend.config["extra"] == {"temperature": None, "reasoning_effort": "low"}


FAULTS = {
    "too many requests": Fault(429, '{"error": {"message": "slow down"}}', {"Retry-After": "0"}),
    "server error": Fault(500, "oops"),
    "bad gateway": Fault(502, "<html>", content_type="text/html"),
    "dropped": Fault(drop=True),
    "late": Fault(late=1.2, body="{}"),
    "malformed": Fault(200, '{"choices": ['),
    "empty": Fault(200, ""),
    "empty object": Fault(200, "{}"),
    "a page": Fault(200, "<html>hello</html>", content_type="text/html"),
}


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_retried(server, provider, fault):
    server.faults.append(FAULTS[fault])
    late = fault == "late"  # on a busy machine the next answer may be late as well
    assert ask(backend_of(server, provider, timeout=1.0 if late else 30.0, retries=4 if late else 1)).text == "go forward"
    assert len(server.requests) == 2 or (late and len(server.requests) > 2)


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_after_the_last_try_the_episode_ends_and_the_run_goes_on(server, provider):
    server.faults.extend([Fault(500, "oops")] * 2)
    with pytest.raises(PolicyError, match=r"500.*oops.*\(2 tries\)"):
        ask(backend_of(server, provider, retries=1))
    assert len(server.requests) == 2


def test_a_server_that_is_not_there_is_a_policy_error():
    for provider in ("openai", "ollama"):
        backend = load_backend(f"{provider}:m", base_url="http://127.0.0.1:9/v1", retries=0)
        with contextlib.closing(backend), pytest.raises(PolicyError, match="connection failed"):
            ask(backend)


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_retry_after_is_honoured_and_too_long_a_wait_is_not_waited(server, provider):
    server.faults.append(Fault(429, "slow down", {"Retry-After": "1"}))
    start = time.monotonic()
    ask(backend_of(server, provider, retries=1))
    assert time.monotonic() - start >= 1
    server.faults.append(Fault(429, "slow down", {"Retry-After": "3600"}))
    with pytest.raises(PolicyError, match="HTTP 429"):
        ask(backend_of(server, provider))
    assert len(server.requests) == 3


def test_the_same_request_is_not_paid_twice(server, tmp_path):
    cached = functools.partial(backend_of, server, cache=str(tmp_path), prices=PRICES)
    backend = cached()
    first, second = ask(backend), ask(backend)
    assert first.cost > 0 == second.cost and second.text == first.text
    assert second.tokens_cached == second.tokens_in == first.tokens_in
    assert ask(cached(), episode="7") == second, "another run, and another episode, read the same answer"
    assert len(server.requests) == 1
    ask(backend, "Another question.")
    ask(backend, max_tokens=3)
    ask(backend, choices=("a", "b"))
    assert ask(backend, choices=("a", "b")).probabilities == {"a": pytest.approx(2 / 3), "b": pytest.approx(1 / 3)}
    assert len(server.requests) == 4
    assert backend.spent.cost == pytest.approx(first.cost + 3 * first.cost, rel=2)


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_a_named_server_is_known_at_another_address(server, provider, tmp_path):
    with running(ProviderServer()) as moved:
        moved.stack = server.stack
        named = {"cache": str(tmp_path), "server": "lab"}
        first = backend_of(server, provider, **named)
        again = backend_of(moved, provider, **named)
        assert (first.config, first.config["server"]) == (again.config, "lab") and "base_url" not in first.config
        assert ask(first).text == ask(again).text
        assert (len(server.requests), len(moved.requests)) == (1, 0), "its answers are found again"
        assert ask(backend_of(moved, provider, cache=str(tmp_path))).text and len(moved.requests) == 1
    assert "base_url" in backend_of(server, provider).config, "without a name the address counts, as ever"


def tell(server, provider, weights):
    """Let a server tell of its models, as vLLM and Ollama do."""
    row = {"id": "m", "object": "model", "created": len(server.requests), "owned_by": "vllm", "root": weights, "parent": None}
    server.tells["/v1/models"] = {"data": [row, row | {"id": "other", "root": "other"}]}
    ollama = {"modified_at": "2026-01-01T00:00:00Z", "size": 9, "details": {}}
    models = [ollama | {"model": "other:latest", "digest": "other"}, ollama | {"model": "m:latest", "digest": weights}]
    server.tells["/api/tags"] = {"models": models}


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_other_weights_behind_a_name_are_known_by_what_the_server_tells(server, provider, tmp_path):
    options = {"identify_weights": True, "server": "lab", "cache": str(tmp_path)}
    tell(server, provider, "one")
    first = backend_of(server, provider, **options)
    assert ask(first).text and list(first.config["weights"].values()) == ["one"]
    assert ask(backend_of(server, provider, **options)).text and len(server.requests) == 1, "the same weights are found again"
    tell(server, provider, "another")
    assert first.config["weights"] != backend_of(server, provider, **options).config["weights"]
    assert ask(backend_of(server, provider, **options)).text and len(server.requests) == 2
    assert "weights" not in backend_of(server, provider).config, "without the option no server is asked"


def test_servers_that_tell_nothing_or_of_different_weights_are_refused(server):
    with pytest.raises(
        UsageError, match=r"identify_weights: .*that of 'm' tells nothing\. Name the weights yourself, by server=NAME"
    ):
        _ = backend_of(server, identify_weights=True).config
    server.tells["/api/tags"] = {"models": []}
    with pytest.raises(UsageError, match=r"identify_weights: .*that of 'm' tells nothing"):
        _ = backend_of(server, "ollama", identify_weights=True).config
    with running(ProviderServer()) as other:
        tell(server, "openai", "one")
        tell(other, "openai", "another")
        both = load_backend("openai:m", base_url=[f"{one.url}/v1" for one in (server, other)], identify_weights=True)
        with contextlib.closing(both), pytest.raises(UsageError, match="identify_weights: expected servers of one model"):
            _ = both.config
    gone = load_backend("openai:m", base_url="http://127.0.0.1:9/v1", identify_weights=True, retries=0)
    with contextlib.closing(gone), pytest.raises(UsageError, match=r"identify_weights: .*connection failed"):
        _ = gone.config


def test_a_run_goes_on_at_another_address_of_a_named_server(server, tmp_path):
    def run(at, **options):
        agent = {"model": "openai:m", "mode": "choose", "options": {"base_url": f"{at.url}/v1", **options}}
        name = options.get("server", "unnamed")
        run_experiment(
            {
                "agent": agent,
                "environment": {"name": "BabyAIText-v0", "kwargs": {"max_episode_steps": 2, "expert": "off"}},
                "experiment": {"parent": str(tmp_path), "name": name, "episodes": 2, "verbose": False},
            }
        )

    with running(ProviderServer()) as moved:
        run(server, server="lab")
        asked = len(server.requests)
        run(moved, server="lab")
        assert asked > 0 == len(moved.requests), "all is found"
        run(server)
        with pytest.raises(UsageError, match=r"these keys differ: agent.options"):
            run(moved)


def test_a_servers_name_without_an_address_is_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(UsageError, match="server: expected none without a base_url"):
        load_backend("openai:m", server="lab")


def test_sampling_is_cached_with_a_seed_alone(server, tmp_path):
    backend = backend_of(server, cache=str(tmp_path))
    for _ in range(2):
        ask(backend, temperature=1.0)
    assert len(server.requests) == 2
    for seed in (1, 1, 2, 2):
        ask(backend, temperature=1.0, seed=seed)
    assert len(server.requests) == 4


def test_equal_requests_at_the_same_time_are_asked_once(server, tmp_path):
    server.latency = lambda number: 0.3
    backend = backend_of(server, cache=str(tmp_path))
    answers = backend.answer([Request(({"role": "user", "content": "x"},))] * 4)
    assert len(server.requests) == 1 and {answer.text for answer in answers} == {"go forward"}


def test_a_failed_request_is_not_cached(server, tmp_path):
    backend = backend_of(server, cache=str(tmp_path), retries=0)
    server.faults.append(Fault(500, "oops"))
    with pytest.raises(PolicyError):
        ask(backend)
    assert ask(backend).text == "go forward"


@pytest.mark.parametrize("limit", [{"max_total_tokens": 2000}, {"max_cost": 0.002}])
def test_a_limit_stops_before_it_is_passed_however_many_ask(server, limit):
    server.latency = lambda number: 0.002
    backend = backend_of(server, prices=PRICES, **limit)
    stopped = []

    def work():
        try:
            for i in range(200):
                ask(backend, f"Question {i}. " + "word " * (i % 20))
        except BudgetError as error:
            stopped.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    name, most = next(iter(limit.items()))
    spent = backend.spent.tokens if name == "max_total_tokens" else backend.spent.cost
    assert most / 2 < spent <= most
    assert len(stopped) == 8 and all(name in text and "run it again" in text for text in stopped)


def test_a_call_whose_price_is_unknown_counts_in_full(server):
    backend = backend_of(server, max_total_tokens=2000, retries=0)
    for _ in range(2):
        server.faults.append(Fault(200, "{}"))
        with pytest.raises(PolicyError):
            ask(backend)
    assert 200 < backend.spent.tokens < 1000
    server.faults.append(Fault(500, ""))
    before = backend.spent
    with pytest.raises(PolicyError):
        ask(backend)
    assert backend.spent == before, "a server that says it failed is not paid"


def make_babyai():
    return gym.make("BabyAIText-v0", expert="off", max_episode_steps=4)


def policy_of(backend, **options):
    return LLMPolicy(backend, text_spec(make_babyai()), **options)


def test_a_run_that_a_limit_stopped_is_resumed(server, tmp_path):
    def play(**options):
        policy = policy_of(backend_of(server, **options))
        for episode in rollout(make_babyai, policy, [seed for seed in range(6) if seed not in done], workers=2, num_envs=1):
            store.append(episode)
            done.add(episode.seed)

    done, store = set(), EpisodeStore(tmp_path)
    with pytest.raises(BudgetError):
        play(max_total_tokens=4000)
    assert 0 < len(store) < 6
    play()
    assert len(store) == 6 and all(episode.error is None for episode in store.episodes())


def test_faults_end_their_own_episodes_alone(server):
    server.faults.extend([Fault(400, "no")] * 2)
    episodes = list(rollout(make_babyai, policy_of(backend_of(server)), range(6), workers=6, num_envs=1))
    assert sorted(episode.outcome == "error" for episode in episodes) == [False] * 4 + [True] * 2
    assert all("HTTP 400: no" in episode.error for episode in episodes if episode.error)


def test_a_slow_answer_holds_up_only_its_own_episode(server):
    others_have_ended, in_time = threading.Event(), []

    def latency(number):
        if number == 5:
            in_time.append(others_have_ended.wait(50))
        return 0.0

    server.latency = latency
    ended = 0
    for _ in rollout(make_babyai, policy_of(backend_of(server, timeout=60)), range(8), workers=4, num_envs=1):
        ended += 1
        if ended == 7:
            others_have_ended.set()
    assert ended == 8 and in_time == [True]


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_a_key_appears_in_no_record_log_error_configuration_or_cache(server, provider, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    backend = backend_of(server, provider, cache=str(tmp_path / "cache"), retries=1)
    policy = policy_of(backend)
    store = EpisodeStore(tmp_path / "run", {"policy": policy.config})
    server.faults.append(Fault(500, f"the key {KEY} met an error"))
    server.faults.append(Fault(401, f"Incorrect API key provided: {KEY}"))
    for episode in rollout(make_babyai, policy, range(3), num_envs=1):
        store.append(episode)
    errors = [episode.error for episode in store.episodes() if episode.error]
    assert len(errors) == 1 and "(not kept)" in errors[0]
    headers = {name.lower(): value for name, value in server.requests[0][1].items()}
    assert headers["authorization"] == f"Bearer {KEY}", "the key was in use"
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 3 and not any(KEY.encode() in data for data in written)
    assert KEY not in caplog.text and KEY not in repr(backend) + repr(vars(backend)) + json.dumps(policy.config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key": KEY}, "environment variables only"),
        ({"timeuot": 3}, "timeout"),
        ({"base_url": f"https://user:{KEY}@host/v1"}, "without user"),
        ({"base_url": f"https://host/v1?key={KEY}"}, "without user"),
        ({"base_url": "host"}, "such as http://"),
        ({"key_variable": KEY}, "name of an environment variable"),
        ({"retries": -1}, "from 0 to 100; got -1"),
        ({"timeout": 0}, "above 0.*; got 0"),
        ({"max_cost": 1}, "expected prices"),
        ({"prices": {"other": {"input": 1, "output": 1}}}, "prices: expected"),
        ({"prices": {"m": {"input": 1}}}, "prices: expected"),
        ({"decide": "coin"}, "'systemone', 'logprobs', 'letter'; got 'coin'"),
        ({"base_url": 5}, "base_url: expected an address"),
        ({"base_url": ["http://a/v1", 5]}, "base_url: expected an address"),
        ({"base_url": {"a": 1}}, "base_url: expected an address"),
        ({"base_url": f"http://me:{KEY}@[host/v1"}, "base_url: expected an address"),
        ({"key_variable": 5}, "name of an environment variable"),
        ({"retries": "many"}, "retries: expected an integer"),
        ({"timeout": "long"}, "timeout: expected a number"),
        ({"timeout": None}, "timeout: expected a number"),
        ({"timeout": float("nan")}, "timeout: expected a number"),
        ({"timeout": float("inf")}, "timeout: expected a number"),
        ({"timeout": 10**400}, "timeout: expected a number"),
        ({"max_cost": "1", "prices": PRICES}, "max_cost: expected a number"),
        ({"max_total_tokens": float("nan")}, "max_total_tokens: expected a number"),
        ({"prices": 5}, "prices: expected"),
        ({"prices": {"m": {"input": "1", "output": 1}}}, "prices: expected"),
        ({"prices": {"m": [1, 2]}}, "prices: expected"),
        ({"cache": 5}, "cache: expected a text"),
        ({"cache": ""}, "cache: expected a text"),
        ({"server": ["lab"]}, "server: expected a text"),
        ({"identify_weights": "yes"}, "identify_weights: expected True or False"),
        ({"decide": ["letter"]}, "decide: expected one of"),
        ({"tokenizer": 5}, "tokenizer: expected a text"),
        ({"extra": 5}, "extra: expected names and values"),
        ({"extra": ["reasoning_effort"]}, "extra: expected names and values"),
        ({"extra": {5: "x"}}, "extra: expected names and values"),
        ({"extra": {"a": float("nan")}}, "extra: expected names and values"),
        ({"extra": {"a": object()}}, "extra: expected names and values"),
    ],
)
def test_wrong_options_are_refused_and_no_key_is_shown(monkeypatch, options, message):
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    with pytest.raises(UsageError, match=message) as caught:
        load_backend("openai:m", **options)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("ollama:m", {"num_ctx": "large"}, "num_ctx: expected an integer"),
        ("ollama:m", {"num_ctx": 0}, "num_ctx: expected an integer"),
        ("ollama:m", {"base_url": 5}, "base_url: expected an address"),
        ("tensorzero:f", {"base_url": 5}, "base_url: expected an address"),
        ("tensorzero:f", {"config_file": 5}, "config_file: expected a text"),
    ],
)
def test_wrong_options_of_other_providers_are_refused(model, options, message):
    with pytest.raises(UsageError, match=message):
        load_backend(model, **options)


def test_a_missing_key_and_a_missing_name_are_said(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        load_backend("openai:m")
    with pytest.raises(UsageError, match="openai:NAME"):
        load_backend("openai:")
    with pytest.raises(UsageError, match=r"openai:MODEL.*got 'opnai:m'"):
        load_backend("opnai:m")


def test_a_script_is_a_model_too():
    backend = load_backend("scripted:turn left|go forward")
    assert [ask(backend).text for _ in range(3)] == ["turn left", "go forward", "turn left"]
    assert load_backend(backend) is backend
    with pytest.raises(UsageError, match=r"unknown option 'timeout'.*Options: none"):
        load_backend(backend, timeout=3)


def test_a_policy_passes_on_what_is_not_its_own(server):
    env = make_babyai()
    policy = load_policy("openai:m", env, mode="choose", base_url=f"{server.url}/v1", timeout=9.0)
    assert policy.config["base_url"] == f"{server.url}/v1" and "timeout" not in policy.config
    (episode,) = rollout(make_babyai, policy, [0], num_envs=1)
    assert episode.steps[0].decision.probabilities and server.requests[0][0] == "/v1/decisions"
    server.stack.callback(policy._backend.close)
    with pytest.raises(UsageError, match=r"'stratgy'\. Did you mean 'strategy'"):
        load_policy("openai:m", env, stratgy="x")
    with pytest.raises(UsageError, match=r"'timeot'\. Did you mean 'timeout'"):
        load_policy("openai:m", env, timeot=3)


@pytest.mark.parametrize("model", ["ollama:m", "scripted:go", "smollm2"])
def test_a_setting_of_the_policy_among_the_models_options_is_taken_as_one(model):
    env = make_babyai()
    given = load_policy(model, env, max_tokens=4, noise=0.5)
    for load in (load_policy, load_when_asked):
        among = load(PolicyConfig(model, options={"max_tokens": 4, "noise": 0.5}), env)
        assert among.config == given.config and type(among) is type(given)


def test_importing_the_policies_loads_no_client():
    script = "import sys, gym_text_policies; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300).stdout
    heavy = {"httpx", "httpx2", "ollama", "openai", "pydantic", "tenacity", "tensorzero", "torch", "transformers"}
    assert {name.partition(".")[0] for name in loaded.split()} & heavy == set()
