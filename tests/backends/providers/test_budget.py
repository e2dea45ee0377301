"""Limits on money and tokens: one for a run, of what is really sent, whatever a provider says it has counted."""

import contextlib
import json
import threading

import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text.errors import BudgetError, PolicyError
from gym_text_policies import cli
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.budget import Purse, one_purse

PRICES = {"m": {"input": 2.0, "output": 10.0}}


@pytest.fixture
def server(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)
    with running(ProviderServer()) as server, contextlib.ExitStack() as stack:
        server.stack = stack
        yield server


def backend_of(server, **options):
    backend = load_backend("openai:m", **{"base_url": f"{server.url}/v1", "prices": PRICES, "retries": 0} | options)
    return server.stack.enter_context(contextlib.closing(backend))


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


def test_backends_of_a_run_share_one_budget(server):
    with one_purse(Purse()):
        backends = [backend_of(server, max_cost=0.003) for _ in range(4)]
    assert 0.0015 < spend(backends) <= 0.003
    assert backend_of(server, max_cost=0.003)._budget._purse is not backends[0]._budget._purse, "another run has its own"


def test_rows_of_a_benchmark_share_one_budget(server, tmp_path, capsys):
    row = {"model": "openai:m", "mode": "text", "base_url": f"{server.url}/v1", "prices": PRICES, "max_cost": 0.005}
    rows = {f"row {i}": row | {"history": i} for i in range(4)}
    (tmp_path / "variants.yaml").write_text(json.dumps(rows))
    words = f"--variants {tmp_path / 'variants.yaml'} --baselines none --llm-episodes 1"
    environment = ["--environments", "BabyAIText-v0?max_episode_steps=3"]
    assert cli.main(["bench", "--folder", str(tmp_path / "run"), *environment, *words.split()]) != 0
    assert "max_cost=0.005" in capsys.readouterr().err
    spent = 0.0
    for _, _, body in server.requests:
        tokens = len(json.dumps(body["messages"]).split())
        spent += (tokens * 2 + 2 * 10) / 1e6
    assert 0.001 < spent <= 0.005


def test_what_extra_adds_counts_before_it_is_sent(server):
    server.latency = lambda number: 0.002
    documents = "word " * 800
    plan = {"metadata": {"notes": documents[:500]}, "max_tokens": 300, "prediction": {"type": "content", "content": documents}}
    backend = backend_of(server, extra=plan, max_cost=0.02)
    server.faults.extend(Fault(200, usage(1500, 300)) for _ in range(100))
    assert 0.005 < spend([backend] * 8) <= 0.02


def test_several_answers_to_a_request_count(server):
    plain = backend_of(server, max_cost=1)
    more = backend_of(server, max_cost=1, extra={"n": 5, "max_completion_tokens": 100})
    request = Request(({"role": "user", "content": "x"},), max_tokens=10)
    assert plain._sent(request)[1] == 10
    assert more._sent(request)[1] == 500


@pytest.mark.parametrize("extra", [{"max_tokens": None}, {"max_tokens": "many"}, {"max_tokens": -1}, {"n": 0.5}])
def test_an_answer_without_a_bound_is_refused_where_there_is_a_limit(server, extra):
    with pytest.raises(UsageError, match=r"extra: expected max_tokens.*has no bound"):
        backend_of(server, extra=extra, max_cost=1).answer([Request(({"role": "user", "content": "x"},))])
    assert server.requests == []


def test_a_provider_that_counts_more_than_was_sent_passes_the_limit_by_one_call_at_most(server):
    server.faults.extend(Fault(200, usage(2000, 10)) for _ in range(100))
    assert spend([backend_of(server, max_cost=0.02)]) <= 0.02


@pytest.mark.parametrize("counted", [(-(10**6), 0, 0), (0, -(10**6), 0), (10, 1, 10**6), (10, 1, -(10**6)), (float("nan"), 1, 0)])
@pytest.mark.parametrize("limit", [{"max_cost": 0.01}, {"max_total_tokens": 5000}])
def test_counts_that_cannot_be_stop_at_the_limit_as_well(server, counted, limit):
    server.faults.extend(Fault(200, usage(*counted)) for _ in range(200))
    backend = backend_of(server, **limit)
    with pytest.raises(BudgetError):
        for _ in range(200):
            with contextlib.suppress(PolicyError):
                backend.answer([Request(({"role": "user", "content": "x"},))])
    assert backend.spent.cost >= 0 and len(server.requests) < 60


@pytest.mark.parametrize(
    "price", [True, float("nan"), float("inf"), "2", -1, 10**400, None], ids=["bool", "nan", "inf", "text", "-1", "long", "none"]
)
def test_a_price_that_is_none_is_one_sentence(server, price):
    with pytest.raises(UsageError, match="prices: expected"):
        backend_of(server, prices={"m": {"input": price, "output": 1}})
