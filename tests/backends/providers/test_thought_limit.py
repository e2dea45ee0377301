"""Models that think, behind servers: their thoughts are read, counted and given room, and none of them is played."""

import functools
import json
from dataclasses import replace

import gymnasium as gym
import pytest
from provider_server import Fault
from thinking_server import KINDS, THOUGHT, expert_of, served

from gym_text import UsageError
from gym_text.errors import BudgetError
from gym_text_policies import LLMPolicy, rollout
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.thought_limit import ThoughtLimit
from gym_text_policies.policy import text_spec

SEEDS = range(3)
QUESTION = Request(({"role": "system", "content": "You play."}, {"role": "user", "content": "A red ball."}))
JSON = {
    "type": "object",
    "properties": {"action": {"type": "string", "enum": ["go forward", "drop"]}},
    "required": ["action"],
    "additionalProperties": False,
}
WORDS = len(THOUGHT.split())

pytestmark = [pytest.mark.usefixtures("no_addresses_of_the_environment")]
make = functools.partial(gym.make, "BabyAIText-v0", task="goto")


@pytest.fixture(scope="module")
def player():
    return expert_of(make, SEEDS)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("vllm", mode) for mode in ("text", "json", "tool")),
        *(("openai", mode) for mode in ("json", "choose", "tool")),
        *(("ollama", "text"), ("vllm without a parser", "text"), ("vllm without a parser", "tool")),
    ],
)
def test_a_thinking_model_wins_all_levels_at_default_limits(kind, mode, player):
    with served(kind, player) as (server, backend):
        policy = LLMPolicy(backend, text_spec(make()), mode=mode, strategy="tool" if mode == "tool" else "zero_shot")
        policy.check()
        episodes = list(rollout(functools.partial(make, expert="off"), policy, SEEDS, workers=4, num_envs=1))
    assert [episode.outcome for episode in episodes] == ["won"] * len(SEEDS) and server.refusal is None
    decisions = [step.decision for episode in episodes for step in episode.steps]
    assert all(decision.valid for decision in decisions)
    if mode != "choose":
        assert all(0 < decision.tokens_reasoning < decision.tokens_out for decision in decisions)
        assert all(decision.reasoning == (None if kind == "openai" else THOUGHT) for decision in decisions)
        assert len(server.requests) <= len(decisions) + 12, "once the model is known to think, each question takes one request"


@pytest.mark.parametrize(("kind", "mode"), [*((kind, "text") for kind in KINDS), ("vllm without a parser", "json")])
def test_no_part_of_a_thought_is_in_the_answer(kind, mode):
    with served(kind) as (_, backend):
        (answer,) = backend.answer([Request(QUESTION.messages, schema=JSON if mode == "json" else None)])
    assert answer.text == ('{"action": "go forward"}' if mode == "json" else "go forward") and answer.finish == "stop"
    assert answer.reasoning == (None if kind == "openai" else THOUGHT), "OpenAI counts the tokens of thoughts and hides them"
    assert 0 < answer.tokens_reasoning < answer.tokens_out and answer.tokens_reasoning >= WORDS - 2 and not answer.thought_cut


@pytest.mark.parametrize("opens", [True, False])
def test_a_thought_that_leaked_into_the_text_is_split_off_with_or_without_its_opening_marker(opens):
    with served("vllm without a parser", opens=opens) as (server, backend):
        (answer,) = backend.answer([QUESTION])
        assert (answer.text, answer.reasoning) == ("go forward", THOUGHT)
        assert [body["max_tokens"] for _, _, body in server.requests] == [16, 16 + 2048]
        backend.answer([QUESTION])
        assert [body["max_tokens"] for _, _, body in server.requests[2:]] == [16 + 2048], "it is known to think"


@pytest.mark.parametrize("kind", KINDS)
def test_a_thought_that_reaches_its_budget_is_cut_and_the_answer_asked_for(kind):
    with served(kind) as (server, backend):
        (answer,) = backend.answer([Request(QUESTION.messages, think_tokens=20)])
        first, second = server.answered[0], server.answered[-1]
    assert (answer.text, answer.thought_cut) == ("go forward", True)
    assert answer.tokens_out > 20 + 16 and answer.tokens_reasoning >= 20 + 16 - 1, "the tokens of both requests count"
    question = second["messages"][-1]["content"]
    assert question.startswith("A red ball.") and ("I do not want to pick up" in question) == (kind != "openai")
    limit = {"openai": "max_completion_tokens"}.get(kind, "max_tokens")
    limits = [body["options"]["num_predict"] if kind == "ollama" else body[limit] for body in (first, second)]
    assert limits == [36, 16]


def test_a_model_that_does_not_think_is_asked_once_more_and_then_as_ever():
    talk = (
        "I would say that the best thing to do in this situation is probably to go straight ahead to the ball and then stop there"
    )
    with served("vllm", lambda *chat: talk, thought="") as (server, backend):
        server._thinks = lambda body: False
        answers = [backend.answer([QUESTION])[0] for _ in range(3)]
        limits = [body["max_tokens"] for _, _, body in server.requests]
        assert limits == [16, 16 + 2048, 16, 16] and backend.spent.tokens > sum(
            answer.tokens_in + answer.tokens_out for answer in answers
        )
    assert {(answer.text, answer.finish, answer.reasoning) for answer in answers} == {(" ".join(talk.split()[:16]), "length", None)}
    assert answers[0] == answers[1] == answers[2], "what was asked to find that out belongs to no answer"


def test_threads_that_meet_cut_answers_at_once_find_out_once_whether_the_model_thinks():
    with served("vllm without a parser", opens=False) as (server, backend):
        answers = backend.answer([Request(({"role": "user", "content": f"Ball {i}."},)) for i in range(12)])
    assert {answer.text for answer in answers} == {"go forward"}
    assert len(server.requests) <= 24


def test_a_thought_that_is_seen_while_another_request_finds_none_is_not_forgotten():
    cut = Answer("I see a ball and so", finish="length", tokens_out=16)

    def ask(request, *, once=False):
        if once:  # meanwhile the answer to another request shows a thought
            thinking._thinks[None] = True
            return replace(cut, text="I see no ball.", finish="stop")
        return cut if request.think_tokens is None else Answer("go forward", finish="stop", reasoning="A ball.")

    thinking = ThoughtLimit(ask)
    assert [thinking.answer(QUESTION).text for _ in range(2)] == ["I see no ball.", "go forward"]


def test_thinking_stays_within_the_limits_of_a_run():
    with served("vllm", options={"max_total_tokens": 12_000}) as (server, backend):
        with pytest.raises(BudgetError, match="max_total_tokens"):
            for i in range(100):
                backend.answer([Request(({"role": "user", "content": f"Ball {i}."},), max_tokens=7)])
        assert 12_000 - 2_600 < backend.spent.tokens <= 12_000 and len(server.requests) > 10


def check_of(kind, *, change=None, options=None, **fields):
    """Ask a question before a run, of a server whose `thinks` is changed."""
    with served(kind, options=options) as (server, backend):
        if change is not None:
            server._thinks = lambda body: change
        backend.check(Request(QUESTION.messages, **fields))
        return server


@pytest.mark.parametrize(("kind", "think"), [("vllm", "low"), ("openai", True), ("ollama", False), ("vllm without a parser", None)])
def test_the_check_before_a_run_passes_where_the_model_thinks_as_it_is_asked_to(kind, think):
    assert check_of(kind, think=think).refusal is None


def test_the_check_before_a_run_says_what_to_set():
    with pytest.raises(UsageError, match="think=False: expected a model that can answer without a thought"):
        check_of("vllm", change=True, think=False)
    with pytest.raises(UsageError, match=r"think=True: expected a model that thinks; .*showed no thought.*'reasoning'"):
        check_of("vllm", change=False, think=True)
    empty = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": " "}}
    with served("vllm") as (server, backend):
        server.faults.append(Fault(200, json.dumps({"choices": [empty]})))
        with pytest.raises(UsageError, match=r"expected an answer; .*said nothing \(it ended by 'stop'\)"):
            backend.check(QUESTION)
