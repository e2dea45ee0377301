"""Several servers of one model that share the load."""

import contextlib
import functools

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text_policies import LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.backends.providers.servers import Servers
from gym_text_policies.policy import text_spec

QUESTION = Request(({"role": "user", "content": "A red ball."},))


@pytest.fixture
def two(monkeypatch):
    """Yield two servers, and a function that makes a backend of their addresses."""
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running(ProviderServer()) as one, running(ProviderServer()) as other, contextlib.ExitStack() as stack:

        def backend(**options):
            urls = [f"{server.url}/v1" for server in (one, other)]
            return stack.enter_context(contextlib.closing(load_backend("openai:m", base_url=urls, **options)))

        yield one, other, backend


def counts(*servers):
    return [len(server.requests) for server in servers]


def test_servers_take_turns(two):
    one, other, backend = two
    backend = backend()
    for _ in range(6):
        assert backend.answer([QUESTION])[0].text == "go forward"
    assert counts(one, other) == [3, 3]
    assert backend.config["base_url"] == [f"{one.url}/v1", f"{other.url}/v1"]


def test_the_retry_goes_to_another_server_which_then_answers_alone(two):
    one, other, backend = two
    one.faults.append(Fault(503, "full", {"Retry-After": "3600"}))  # too long to wait for, but for nothing is waited
    backend = backend(retries=1)
    for _ in range(4):
        assert backend.answer([QUESTION])[0].text == "go forward"
    assert counts(one, other) == [1, 4]


def test_a_request_that_no_server_would_take_leaves_none_out(two):
    one, other, backend = two
    one.faults.append(Fault(400, "no"))
    backend = backend(retries=1)
    with pytest.raises(PolicyError, match="HTTP 400"):
        backend.answer([QUESTION])
    for _ in range(2):
        backend.answer([QUESTION])
    assert counts(one, other) == [2, 1]


def test_where_all_servers_fail_the_episode_ends_as_with_one(two):
    one, other, backend = two
    one.faults.extend([Fault(500, "oops")] * 2)
    other.faults.extend([Fault(drop=True)] * 2)
    with pytest.raises(PolicyError, match=r"\(3 tries\)"):
        backend(retries=2).answer([QUESTION])
    assert sum(counts(one, other)) == 3


def test_many_workers_share_two_servers_one_of_which_is_gone(two):
    one, other, backend = two
    one.faults.extend([Fault(drop=True)] * 50)
    make = functools.partial(gym.make, "BabyAIText-v0", expert="off", max_episode_steps=3)
    policy = LLMPolicy(backend(retries=3), text_spec(make()))
    episodes = list(rollout(make, policy, range(8), workers=8, num_envs=1))
    assert [episode.error for episode in episodes] == [None] * 8
    assert len(other.requests) == sum(episode.length for episode in episodes) > 8


def test_a_server_comes_back_after_a_while_and_the_first_to_come_back_is_asked():
    now = 0.0
    servers = Servers("abc", clock=lambda: now)

    def ask(fails=None):
        with contextlib.suppress(CallError), servers.turn() as client:
            if client == fails:
                raise CallError("gone", retry=True, after=10.0 if client == "b" else None)
        return client

    assert [ask() for _ in range(4)] == ["a", "b", "c", "a"]
    assert [ask("b"), ask(), ask(), ask()] == ["b", "c", "a", "c"]
    now = 11.0
    assert [ask(), ask("b"), ask("c"), ask("a")] == ["a", "b", "c", "a"]
    assert ask() == "b", "all are out; b said when it comes back, the others are left out for longer"
    now = 100.0
    assert sorted([ask(), ask(), ask()]) == ["a", "b", "c"]


def test_addresses_that_are_none_are_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="base_url: expected an address such as"):
        load_backend("openai:m", base_url=["http://127.0.0.1:1/v1", "127.0.0.1"])
