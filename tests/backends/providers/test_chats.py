"""What providers answer, of every form: what is no answer ends its episode alone, and is never played, priced or kept."""

import contextlib
import json

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text_policies import EpisodeStore, LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.checks import normalised
from gym_text_policies.policy import text_spec

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
QUESTION = Request(({"role": "user", "content": "A red ball."},), max_tokens=7)
CHOICES = Request(QUESTION.messages, ("go", "wait"))


@pytest.fixture
def server(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)
    with running(ProviderServer()) as server, contextlib.ExitStack() as stack:
        server.stack = stack
        yield server


def backend_of(server, provider="openai", **options):
    url = {"openai": f"{server.url}/v1"}.get(provider, server.url)
    backend = load_backend(f"{provider}:m", base_url=url, **({"retries": 0} | options))
    return server.stack.enter_context(contextlib.closing(backend))


def completion(content="go forward", *, finish="stop", usage=USAGE, message=None, **more):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content} | (message or {})}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice | more], "usage": usage}


def ollama_chat(content="go forward", **more):
    answer = {"model": "m", "message": {"role": "assistant", "content": content}, "done": True, "done_reason": "stop"}
    return answer | {"prompt_eval_count": 9, "eval_count": 2} | more


def answer(server, body, provider="openai", request=QUESTION, **options):
    """Return the answer of a provider whose server says `body`."""
    server.faults.append(Fault(200, body if isinstance(body, str) else json.dumps(body)))
    return backend_of(server, provider, **options).answer([request])[0]


def test_parts_of_text_are_one_text_and_other_parts_are_none_of_it(server):
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "go "}, {"type": "text", "text": "forward"}]
    assert answer(server, completion(parts)).text == "go forward"


THOUGHTS = {
    "DeepSeek and SGLang": {"reasoning_content": " A wall.\n"},
    "vLLM": {"reasoning": "A wall."},
    "others": {"thinking": "A wall."},
    "OpenRouter": {
        "reasoning_details": [{"type": "reasoning.text", "text": "A wall."}, {"type": "reasoning.encrypted", "data": "x"}]
    },
    "OpenRouter, in short": {"reasoning": None, "reasoning_details": [{"type": "reasoning.summary", "summary": "A wall."}]},
    "Mistral": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "A wall."}]}, {"type": "text", "text": "go"}]
    },
    "Anthropic": {"content": [{"type": "thinking", "thinking": "A wall."}, {"type": "text", "text": "go"}]},
    "a server without a parser": {"content": "<think>A wall.</think>go"},
    "one whose prompt opens the thought": {"content": "A wall.\n</think>\n\ngo"},
}


@pytest.mark.parametrize("whose", THOUGHTS)
def test_a_thought_is_read_wherever_a_server_puts_it(server, whose):
    told = answer(server, completion("go", message=THOUGHTS[whose], usage=USAGE | {"completion_tokens": 10, "total_tokens": 19}))
    assert (told.text, told.reasoning, told.finish) == ("go", "A wall.", "stop")
    assert 5 <= told.tokens_reasoning < told.tokens_out == 10, "its share of the characters, where the server does not count"


def test_what_stands_for_no_thought_is_none(server):
    for message in (
        {"reasoning": {"effort": "low"}},
        {"reasoning_content": ""},
        {"reasoning_details": [{"data": "x"}]},
        {"thinking": 5},
    ):
        assert answer(server, completion("go", message=message)).reasoning is None


def test_ollamas_thought_is_read(server):
    told = answer(
        server, ollama_chat("go", message={"role": "assistant", "content": "go", "thinking": "A wall."}, eval_count=9), "ollama"
    )
    assert (told.text, told.reasoning, told.tokens_reasoning) == ("go", "A wall.", 7)


def test_tensorzeros_thought_is_read(server):
    body = server._inference({"function_name": "f", "input": {"messages": []}})
    thought = {"type": "thought", "text": "A wall.", "signature": None, "summary": None, "provider_type": None}
    told = answer(server, body | {"content": [thought, *body["content"]]}, "tensorzero")
    assert (told.text, told.reasoning) == ("go forward", "A wall.")


@pytest.mark.parametrize(
    ("usage", "tokens_out", "thought"),
    [
        ({"completion_tokens": 30, "total_tokens": 39, "completion_tokens_details": {"reasoning_tokens": 25}}, 30, 25),
        ({"completion_tokens": 5, "total_tokens": 39, "completion_tokens_details": {"reasoning_tokens": 25}}, 30, 25),  # as xAI
        ({"completion_tokens": 5, "total_tokens": 39}, 30, 25),  # as Gemini
        ({"completion_tokens": 5, "total_tokens": None}, 5, 0),
    ],
)
def test_tokens_of_thoughts_are_counted_and_priced_whether_a_server_adds_them_to_the_answers_or_not(
    server, usage, tokens_out, thought
):
    prices = {"m": {"input": 0, "output": 1000, "reasoning": 100}}
    told = answer(server, completion(usage=USAGE | usage), prices=prices)
    assert (told.tokens_out, told.tokens_reasoning) == (tokens_out, thought)
    assert told.cost == pytest.approx((thought * 100 + (tokens_out - thought) * 1000) / 1e6)
    told = answer(server, completion(usage=USAGE | usage), prices={"m": {"input": 0, "output": 1000}})
    assert told.cost == pytest.approx(tokens_out * 1000 / 1e6), "without a price of their own they cost what an answer costs"


@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), (None, None), ("x", None)]
)
def test_an_answer_says_how_it_ended(server, reason, finish):
    assert answer(server, completion(finish=reason)).finish == finish


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), (None, None)])
def test_an_answer_of_ollama_says_how_it_ended(server, reason, finish):
    assert answer(server, ollama_chat(done_reason=reason), "ollama").finish == finish


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter")])
def test_an_answer_of_tensorzero_says_how_it_ended(server, reason, finish):
    body = server._inference({"function_name": "f", "input": {"messages": []}}) | {"finish_reason": reason}
    assert answer(server, body, "tensorzero").finish == finish


def test_a_refusal_is_told_with_its_words(server):
    told = answer(server, completion(None, message={"refusal": "I cannot go forward"}))
    assert (told.text, told.finish) == ("I cannot go forward", "refusal")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the pool is empty", "code": 503}},
        {"error": "the pool is empty"},
        completion(None, finish="error", error={"message": "the pool is empty"}),
        {"choices": None, "detail": "the pool is empty"},
    ],
)
def test_an_error_that_comes_as_a_success_is_a_failed_call_in_the_servers_words(server, body):
    with pytest.raises(PolicyError, match="the pool is empty"):
        answer(server, body)
    server.faults.append(Fault(200, json.dumps(body)))
    assert backend_of(server, retries=1).answer([QUESTION])[0].text == "go forward", "it may pass, and is tried again"


def test_an_error_of_ollama_that_comes_as_a_success_keeps_the_servers_words(server):
    with pytest.raises(PolicyError, match="the pool is empty"):
        answer(server, {"error": "the pool is empty"}, "ollama")


def test_an_answer_that_ends_in_an_error_is_not_played(server):
    with pytest.raises(PolicyError, match="ended the answer by 'error'"):
        answer(server, completion("go for", finish="error"))


def usage(**changed):
    return completion(usage=USAGE | changed)


OTHER_FORMS = {
    "content a list of words": completion(["go forward"]),
    "content a number": completion(5),
    "a part of text that is a list": completion([{"type": "text", "text": ["go"]}]),
    "half of a surrogate pair": completion("go \ud800"),
    "a refusal that is a list": completion(message={"refusal": ["no"]}),
    "no choices": {},
    "choices a text": {"choices": "go forward"},
    "a text alone": '"go forward"',
    "nothing": "null",
    "tokens many": usage(prompt_tokens="many"),
    "tokens not a number": usage(prompt_tokens=float("nan")),
    "tokens infinite": usage(completion_tokens=float("inf")),
    "tokens without end": usage(completion_tokens=10**400),
    "tokens in parts": usage(completion_tokens=0.5),
    "tokens below none": usage(prompt_tokens=-5),
    "tokens true": usage(prompt_tokens=True),
    "more thought than generated": usage(completion_tokens_details={"reasoning_tokens": 10}),
    "more cached than read": usage(prompt_tokens_details={"cached_tokens": 10}),
    "fewer cached than none": usage(prompt_tokens_details={"cached_tokens": -1}),
    "usage a list": completion(usage=[1]),
    "nested without end": '{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_an_answer_of_another_form_is_a_policy_error(server, form):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(server, OTHER_FORMS[form])


def test_an_answer_that_is_no_json_is_shown_in_the_servers_words(server):
    server.faults.append(Fault(200, "<h1>upstream is restarting</h1>", content_type="text/html"))
    with pytest.raises(PolicyError, match=r"expected an answer of the documented form.*upstream is restarting"):
        answer(server, "")


@pytest.mark.parametrize(
    "changed",
    [
        {"message": {"role": "assistant", "content": ["go"]}},
        {"prompt_eval_count": -3},
        {"eval_count": "many"},
        {"eval_count": 10**12},
        {"message": {"role": "assistant", "content": "go \ud800"}},
    ],
)
def test_an_answer_of_ollama_of_another_form_is_a_policy_error(server, changed):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(server, ollama_chat() | changed, "ollama")


def test_answers_of_other_forms_end_their_own_episodes_and_the_paid_ones_are_kept(server, tmp_path):
    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=2)

    for form in OTHER_FORMS.values():
        server.faults += [Fault(200, form if isinstance(form, str) else json.dumps(form)), None]
    with EpisodeStore(tmp_path, {}) as store:
        policy = LLMPolicy(backend_of(server), text_spec(make()))
        for episode in rollout(make, policy, range(30), workers=4, num_envs=1):
            store.append(episode)
    ends = [episode.outcome for episode in store.episodes()]
    assert len(ends) == 30 and ends.count("error") == len(OTHER_FORMS)


def decision(*, probabilities=((0.75, "go"), (0.25, "wait")), usage=None, type="choice"):
    rows = [{"value": value, "probability": probability} for probability, value in probabilities]
    tokens = {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}}
    return {"answers": [{"type": type, "choice": "go", "probabilities": rows}], "model": "m", "usage": tokens | (usage or {})}


@pytest.mark.parametrize(
    "body",
    [
        decision(probabilities=[(float("nan"), "go"), (0.25, "wait")]),
        decision(probabilities=[(float("inf"), "go"), (0.25, "wait")]),
        decision(probabilities=[(-0.1, "go"), (1.1, "wait")]),
        decision(probabilities=[(0.5, "go")]),
        decision(probabilities=[("many", "go"), (0.5, "wait")]),
        decision(usage={"input_tokens": -9}),
        decision(usage={"input_tokens_details": {"cached_tokens": 99}}),
    ],
)
def test_a_decision_of_another_form_is_a_policy_error(server, body):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(server, body, request=CHOICES)


@pytest.mark.parametrize("found", [{"a": float("nan"), "b": 1.0}, {"a": float("inf"), "b": 0.0}, {"a": -0.05, "b": 1.0}])
def test_what_are_no_probabilities_is_not_rescaled(found):
    with pytest.raises(ValueError, match="probabilities that sum to"):
        normalised(("a", "b"), found)


@pytest.mark.parametrize("log_prob", [float("nan"), float("inf"), float("-inf"), 0.5, "many", None])
def test_letters_take_log_probabilities_alone(server, log_prob):
    top = [{"token": "A", "logprob": log_prob}, {"token": "B", "logprob": -1.0}]
    body = completion("A", logprobs={"content": [{"token": "A", "logprob": -0.1, "top_logprobs": top}]})
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(server, body, request=CHOICES, decide="letter")
    top[0]["logprob"] = -0.5
    body = completion("A", logprobs={"content": [{"token": "A", "logprob": -0.1, "top_logprobs": top}]})
    assert answer(server, body, request=CHOICES, decide="letter").probabilities["go"] > 0.5


def test_an_empty_answer_that_was_cut_is_said_before_the_run(server):
    server.faults.extend([Fault(200, json.dumps(completion("", finish="length")))] * 3)
    with pytest.raises(UsageError, match=r"think_tokens.*cut after 2048 tokens for its thought and 7 for its answer.*think=False"):
        backend_of(server).check(QUESTION)
    limits = [body["max_tokens"] for _, _, body in server.requests]
    assert limits == [7, 2055, 7], "it is asked with room for a thought, and then for its answer without one"
    server.faults.append(Fault(200, json.dumps(completion("yes or", finish="length"))))
    backend_of(server).check(QUESTION)


def test_ollama_is_told_the_context_and_says_when_it_cut_a_chat_that_grew(server, caplog):
    assert "num_ctx" not in backend_of(server, "ollama").config
    backend = backend_of(server, "ollama", num_ctx=8192)
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    dropped = []
    for tokens in (20, 40, 30, 35):
        server.faults.append(Fault(200, json.dumps(ollama_chat(prompt_eval_count=tokens))))
        dropped.append(backend.answer([Request(tuple(chat), episode="7")])[0].turns_dropped)
        chat += [{"role": "assistant", "content": "go"}, {"role": "user", "content": "b"}]
    assert dropped == [0, 0, 1, 1], "what was read is compared with the most that was read of this chat"
    assert caplog.text.count("its oldest turns are left out. Set num_ctx") == 1
    server.faults.append(Fault(200, json.dumps(ollama_chat(prompt_eval_count=5))))
    assert backend.answer([Request((chat[0], chat[1]), episode="7")])[0].turns_dropped == 0, "another chat may be shorter"
    assert server.requests[0][2]["options"]["num_ctx"] == backend.config["num_ctx"] == 8192
