"""What providers answer, of every form: what is no answer ends its episode alone, and is never played, priced or kept."""

import json

import pytest
from provider_server import Fault

from gym_text import UsageError
from gym_text_policies import PolicyError
from gym_text_policies.backends.base import Request

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
QUESTION = Request(({"role": "user", "content": "A red ball."},), max_tokens=7)
INFERENCE = {"function_name": "f", "input": {"messages": []}}
CHOICES = Request(QUESTION.messages, ("go", "wait"))


def completion(content="go forward", *, finish="stop", usage=USAGE, message=None, **more):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content} | (message or {})}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice | more], "usage": usage}


def ollama_chat(content="go forward", **more):
    answer = {"model": "m", "message": {"role": "assistant", "content": content}, "done": True, "done_reason": "stop"}
    return answer | {"prompt_eval_count": 9, "eval_count": 2} | more


@pytest.fixture
def answer(server, backend_of):
    """Return a function that gives the answer of a provider whose server says `body`."""

    def give(body, provider="openai", request=QUESTION, **options):
        server.faults.append(Fault(200, body if isinstance(body, str) else json.dumps(body)))
        return backend_of(server, provider, **options).answer([request])[0]

    give.server, give.backend_of = server, backend_of
    return give


def test_parts_of_text_are_one_text_and_other_parts_are_none_of_it(answer):
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "go "}, {"type": "text", "text": "forward"}]
    assert answer(completion(parts)).text == "go forward"


THOUGHTS = {
    "DeepSeek and SGLang": {"reasoning_content": " A wall.\n"},
    "vLLM": {"reasoning": "A wall."},
    "others": {"thinking": "A wall."},
    "OpenRouter": {"reasoning": "A wall.", "reasoning_details": [{"type": "reasoning.text", "text": "A wall."}]},
    "Mistral": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "A wall."}]}, {"type": "text", "text": "go"}]
    },
    "Anthropic": {"content": [{"type": "thinking", "thinking": "A wall."}, {"type": "text", "text": "go"}]},
    "a server without a parser": {"content": "<think>A wall.</think>go"},
    "one whose prompt opens the thought": {"content": "A wall.\n</think>\n\ngo"},
}


@pytest.mark.parametrize("whose", THOUGHTS)
def test_a_thought_is_read_wherever_a_server_puts_it(answer, whose):
    said = answer(completion("go", message=THOUGHTS[whose], usage=USAGE | {"completion_tokens": 10, "total_tokens": 19}))
    assert (said.text, said.reasoning, said.finish) == ("go", "A wall.", "stop")
    assert 5 <= said.tokens_reasoning < said.tokens_out == 10, "its share of the characters, where the server does not count"


def test_ollamas_thought_is_read(answer):
    said = answer(ollama_chat("go", message={"role": "assistant", "content": "go", "thinking": "A wall."}, eval_count=9), "ollama")
    assert (said.text, said.reasoning, said.tokens_reasoning) == ("go", "A wall.", 7)


def test_tensorzeros_thought_is_read(answer):
    body = answer.server._inference(INFERENCE)
    thought = {"type": "thought", "text": "A wall.", "signature": None, "summary": None, "provider_type": None}
    said = answer(body | {"content": [thought, *body["content"]]}, "tensorzero")
    assert (said.text, said.reasoning) == ("go forward", "A wall.")


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
    answer, usage, tokens_out, thought
):
    prices = {"m": {"input": 0, "output": 1000, "reasoning": 100}}
    said = answer(completion(usage=USAGE | usage), prices=prices)
    assert (said.tokens_out, said.tokens_reasoning) == (tokens_out, thought)
    assert said.cost == pytest.approx((thought * 100 + (tokens_out - thought) * 1000) / 1e6)
    said = answer(completion(usage=USAGE | usage), prices={"m": {"input": 0, "output": 1000}})
    assert said.cost == pytest.approx(tokens_out * 1000 / 1e6), "without a price of their own they cost what an answer costs"


@pytest.mark.parametrize(
    ("provider", "reason", "finish"),
    [
        *(
            ("openai", reason, finish)
            for reason, finish in (("length", "length"), ("content_filter", "content_filter"), ("x", None))
        ),
        *(("ollama", reason, reason) for reason in ("stop", "length", None)),
        *(("tensorzero", reason, reason) for reason in ("stop", "length")),
    ],
)
def test_an_answer_says_how_it_ended(answer, provider, reason, finish):
    bodies = {
        "openai": lambda: completion(finish=reason),
        "ollama": lambda: ollama_chat(done_reason=reason),
        "tensorzero": lambda: answer.server._inference(INFERENCE) | {"finish_reason": reason},
    }
    assert answer(bodies[provider](), provider).finish == finish


def test_a_refusal_is_told_with_its_words(answer):
    said = answer(completion(None, message={"refusal": "I cannot go forward"}))
    assert (said.text, said.finish) == ("I cannot go forward", "refusal")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the pool is empty", "code": 503}},
        {"error": "the pool is empty"},
        completion(None, finish="error", error={"message": "the pool is empty"}),
        {"choices": None, "detail": "the pool is empty"},
    ],
)
def test_an_error_that_comes_as_a_success_is_a_failed_call_in_the_servers_words(answer, body):
    with pytest.raises(PolicyError, match="the pool is empty"):
        answer(body)
    assert answer(body, retries=1).text == "go forward", "it may pass, and is tried again"


def test_an_answer_that_ends_in_an_error_is_not_played(answer):
    with pytest.raises(PolicyError, match="ended the answer by 'error'"):
        answer(completion("go for", finish="error"))


def usage(**changed):
    return completion(usage=USAGE | changed)


OTHER_FORMS = {
    "content a list of words": completion(["go forward"]),
    "half of a surrogate pair": completion("go \ud800"),
    "a refusal that is a list": completion(message={"refusal": ["no"]}),
    "no choices": {},
    "a text alone": '"go forward"',
    "tokens not a number": usage(prompt_tokens=float("nan")),
    "tokens without end": usage(completion_tokens=10**400),
    "tokens below none": usage(prompt_tokens=-5),
    "more thought than generated": usage(completion_tokens_details={"reasoning_tokens": 10}),
    "more cached than read": usage(prompt_tokens_details={"cached_tokens": 10}),
    "nested without end": '{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "two calls at one place": completion(message={"tool_calls": [{"function": "go"}]}),
}
OLLAMAS = {
    "content a list": {"message": {"role": "assistant", "content": ["go"]}},
    "tokens below none": {"prompt_eval_count": -3},
    "tokens many": {"eval_count": 10**12},
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_an_answer_of_another_form_is_a_policy_error(answer, form):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(OTHER_FORMS[form])


@pytest.mark.parametrize("form", OLLAMAS)
def test_an_answer_of_ollama_of_another_form_is_a_policy_error(answer, form):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(ollama_chat() | OLLAMAS[form], "ollama")


def decision(*, probabilities=((0.75, "go"), (0.25, "wait")), usage=None, type="choice"):
    rows = [{"value": value, "probability": probability} for probability, value in probabilities]
    tokens = {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}}
    return {"answers": [{"type": type, "choice": "go", "probabilities": rows}], "model": "m", "usage": tokens | (usage or {})}


@pytest.mark.parametrize(
    "body",
    [
        decision(probabilities=[(float("nan"), "go"), (0.25, "wait")]),
        decision(probabilities=[(-0.1, "go"), (1.1, "wait")]),
        decision(probabilities=[(0.5, "go")]),
        decision(usage={"input_tokens": -9}),
        decision(usage={"input_tokens_details": {"cached_tokens": 99}}),
    ],
)
def test_a_decision_of_another_form_is_a_policy_error(answer, body):
    with pytest.raises(PolicyError, match="expected an answer of the documented form"):
        answer(body, request=CHOICES)


def test_a_refused_decision_is_an_error_that_is_not_retried(answer):
    with pytest.raises(PolicyError, match="refused to decide"):
        answer(decision(type="refusal"), request=CHOICES, retries=2)
    assert len(answer.server.requests) == 1


def test_an_empty_answer_that_was_cut_is_said_before_the_run(answer):
    server = answer.server
    server.faults.extend([Fault(200, json.dumps(completion("", finish="length")))] * 3)
    with pytest.raises(UsageError, match=r"think_tokens.*cut after 2048 tokens for its thought and 7 for its answer.*think=False"):
        answer.backend_of(server).check(QUESTION)
    limits = [body["max_tokens"] for _, _, body in server.requests]
    assert limits == [7, 2055, 7], "it is asked with room for a thought, and then for its answer without one"


def test_ollama_is_sent_the_context_and_says_when_it_cut_a_chat_that_grew(server, backend_of, caplog):
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
