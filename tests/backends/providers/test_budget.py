"""Limits on money and tokens: one for a run, of what is really sent, whatever a provider says it has counted."""

import contextlib
import functools
import json
import threading

import gymnasium as gym
import pytest
from provider_server import Fault

from gym_text import UsageError
from gym_text.errors import BudgetError, PolicyError
from gym_text_policies import EpisodeStore, LLMPolicy, cli, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.policy import text_spec

PRICES = {"m": {"input": 2.0, "output": 10.0}}


@pytest.fixture
def priced(server, backend_of):
    """Return a function that makes a backend whose calls have prices."""
    return functools.partial(backend_of, server, prices=PRICES)


def usage(tokens_in, tokens_out, cached=0):
    counted = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "prompt_tokens_details": {"cached_tokens": cached}}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "go"}}
    return json.dumps({"choices": [choice], "usage": counted})


def spend(backends, *, texts=400):
    """Ask by all backends at once until a limit stops them; return what was spent together."""

    def work(backend):
        with contextlib.suppress(BudgetError):
            for i in range(texts):
                backend.answer([Request(({"role": "user", "content": f"Question {i}"},))])

    threads = [threading.Thread(target=work, args=(backend,)) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return sum(backend.spent.cost for backend in set(backends))


def test_rows_of_a_benchmark_share_one_budget(server, tmp_path, capsys):
    row = {"model": "openai:m", "mode": "text", "base_url": f"{server.url}/v1", "prices": PRICES, "max_cost": 0.005}
    rows = {f"row {i}": row | {"history": i} for i in range(4)}
    (tmp_path / "variants.yaml").write_text(json.dumps(rows))
    words = f"--plan {tmp_path / 'variants.yaml'} --baselines none --llm-episodes 1"
    environment = ["--environments", "BabyAIText-v0?max_episode_steps=3"]
    assert cli.main(["bench", "--folder", str(tmp_path / "run"), *environment, *words.split()]) != 0
    assert "max_cost=0.005" in capsys.readouterr().err
    spent = 0.0
    for _, _, body in server.requests:
        tokens = len(json.dumps(body["messages"]).split())
        spent += (tokens * 2 + 2 * 10) / 1e6
    assert 0.001 < spent <= 0.005


def test_what_extra_adds_counts_before_it_is_sent(server, priced):
    server.latency = lambda number: 0.002
    documents = "word " * 800
    plan = {"metadata": {"notes": documents[:500]}, "max_tokens": 300, "prediction": {"type": "content", "content": documents}}
    backend = priced(extra=plan, max_cost=0.02)
    server.faults.extend(Fault(200, usage(1500, 300)) for _ in range(100))
    assert 0.005 < spend([backend] * 8) <= 0.02


@pytest.mark.parametrize("extra", [{"max_tokens": None}, {"max_tokens": "many"}, {"n": 0.5}])
def test_an_answer_without_a_bound_is_refused_where_there_is_a_limit(server, priced, extra):
    with pytest.raises(UsageError, match=r"extra: expected max_tokens.*has no bound"):
        priced(extra=extra, max_cost=1).answer([Request(({"role": "user", "content": "x"},))])
    assert server.requests == []


@pytest.mark.parametrize("counted", [(-(10**6), 0, 0), (10, 1, 10**6), (float("nan"), 1, 0)])
@pytest.mark.parametrize("limit", [{"max_cost": 0.01}, {"max_total_tokens": 5000}])
def test_counts_that_cannot_be_stop_at_the_limit_as_well(server, priced, counted, limit):
    server.faults.extend(Fault(200, usage(*counted)) for _ in range(200))
    backend = priced(**limit)
    with pytest.raises(BudgetError):
        for _ in range(200):
            with contextlib.suppress(PolicyError):
                backend.answer([Request(({"role": "user", "content": "x"},))])
    assert backend.spent.cost >= 0 and len(server.requests) < 60


@pytest.mark.parametrize("limit", [{"max_total_tokens": 2000}, {"max_cost": 0.002}])
def test_a_limit_stops_before_it_is_passed_however_many_ask(server, priced, limit):
    server.latency = lambda number: 0.002
    backend, stopped = priced(**limit), []

    def work():
        try:
            for i in range(200):
                backend.answer([Request(({"role": "user", "content": f"Question {i}. " + "word " * (i % 20)},))])
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


def test_a_call_whose_price_is_unknown_counts_in_full(server, priced):
    backend, request = priced(max_total_tokens=2000), Request(({"role": "user", "content": "x" * 100},))
    for _ in range(2):
        server.faults.append(Fault(200, "{}"))
        with pytest.raises(PolicyError):
            backend.answer([request])
    assert 200 < backend.spent.tokens < 1000
    server.faults.append(Fault(500, ""))
    before = backend.spent
    with pytest.raises(PolicyError):
        backend.answer([request])
    assert backend.spent == before, "a server that says it failed is not paid"
    server.faults.extend((None, Fault(500, "")))
    rounds = priced(rounds=3, retries=0, max_total_tokens=5000)
    with pytest.raises(PolicyError):
        rounds.answer([Request(request.messages, tuple("abcde"))])
    assert rounds.spent.tokens > 0, "the first round was answered"


def test_a_run_that_a_limit_stopped_is_resumed(server, priced, tmp_path):
    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=4)

    def play(**options):
        policy = LLMPolicy(priced(**options), text_spec(make()))
        for episode in rollout(make, policy, [seed for seed in range(6) if seed not in done], workers=2, num_envs=1):
            store.append(episode)
            done.add(episode.seed)

    done, store = set(), EpisodeStore(tmp_path)
    with pytest.raises(BudgetError):
        play(max_total_tokens=4000)
    assert 0 < len(store) < 6
    play()
    assert len(store) == 6 and all(episode.error is None for episode in store.episodes())


def test_openais_cached_tokens_have_a_price_of_their_own(server, backend_of):
    prices = {"m": {"input": 2.0, "cached": 0.5, "output": 10.0}}
    (answer,) = backend_of(server, prices=prices).answer([Request(({"role": "user", "content": "one two three four"},))])
    assert answer.tokens_cached == answer.tokens_in // 2 > 0
    new = answer.tokens_in - answer.tokens_cached
    assert answer.cost == pytest.approx((new * 2 + answer.tokens_cached * 0.5 + answer.tokens_out * 10) / 1e6)
