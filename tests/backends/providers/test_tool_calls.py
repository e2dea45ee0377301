"""Calls of the tool behind servers, by the official clients of OpenAI and Ollama."""

import contextlib
import json

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.environments import environment_maker
from gym_text_policies.prompts.tools import argument_schema, tool_function

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
BOTH = pytest.mark.parametrize("provider", ["openai", "ollama"])


@pytest.fixture
def server(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running(ProviderServer()) as server, contextlib.ExitStack() as stack:
        server.stack = stack
        yield server


def backend_of(server, provider):
    url = f"{server.url}/v1" if provider == "openai" else server.url
    return server.stack.enter_context(contextlib.closing(load_backend(f"{provider}:m", base_url=url, retries=0)))


def request(enum=("go left", "go right")):
    with gym.make("BabyAIText-v0") as env:
        spec = env.get_wrapper_attr("text_spec")
    return Request(({"role": "user", "content": "A wall."},), schema=argument_schema(spec, enum), tool=tool_function(spec))


@BOTH
def test_an_episode_of_calls_is_a_chat_that_the_client_and_the_server_accept(server, provider):
    make = environment_maker(GOTO, fold="train")
    with make() as env:
        policy = load_policy(backend_of(server, provider), env, mode="tool")
    server.text = "yes"
    policy.check()
    server.text = "turn left"
    (episode,) = rollout(make, policy, [3])
    assert episode.error is None and server.refusal is None and episode.invalid == 0
    assert [step.decision.action for step in episode.steps] == ["turn left"] * 3
    assert episode.steps[0].decision.completion == '{"action": "turn left"}' and episode.steps[0].decision.finish is None
    _, _, body = server.requests[-1]
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert body["messages"][2]["tool_calls"][0]["function"]["name"] == "act" and "call" not in body["messages"][2]
    assert not {"response_format", "format"} & {name for name, value in body.items() if value is not None}


@BOTH
def test_the_argument_can_only_be_what_is_valid_now(server, provider):
    backend_of(server, provider).answer([request(("open door", "wait"))])
    (tool,) = server.requests[-1][2]["tools"]
    assert tool["function"]["parameters"]["properties"]["action"]["enum"] == ["open door", "wait"]
    assert tool["function"]["name"] == "act" and "return" not in tool["function"]


def test_a_server_with_openais_protocol_is_told_to_let_the_model_call_once(server):
    backend_of(server, "openai").answer([request()])
    body = server.requests[-1][2]
    assert (body["tool_choice"], body["parallel_tool_calls"], body["tools"][0]["function"]["strict"]) == ("required", False, True)


def test_a_server_that_takes_no_field_for_parallel_calls_is_asked_without_it(server):
    backend = backend_of(server, "openai")
    server.faults.append(Fault(400, json.dumps({"error": {"message": "Unsupported parameter: 'parallel_tool_calls'"}})))
    server.text = "go right"
    assert backend.answer([request()])[0].arguments == '{"action": "go right"}'
    assert "parallel_tool_calls" not in server.requests[-1][2]


@BOTH
def test_words_are_no_call(server, provider):
    server.text = "I go left, I think"
    (answer,) = backend_of(server, provider).answer([request()])
    assert (answer.arguments, answer.text) == (None, "I go left, I think")
    with pytest.raises(UsageError, match=r"expected a model that calls tools; asked before the run, .* said 'I go left"):
        backend_of(server, provider).check(request())


def completion(*arguments):
    calls = [{"id": str(i), "type": "function", "function": {"name": "act", "arguments": text}} for i, text in enumerate(arguments)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (('{"action": "go left"}',), '{"action": "go left"}'),
        (('{"action": "go left"}', '{"action": "go right"}'), None),
        ((), None),
        (("{",), "{"),
    ],
)
def test_one_call_is_an_answer_and_several_are_none(server, arguments, expected):
    server.faults.append(Fault(200, completion(*arguments)))
    (answer,) = backend_of(server, "openai").answer([request()])
    assert (answer.arguments, answer.text, answer.finish) == (expected, "", "stop")


def test_a_provider_without_tools_is_refused(server):
    backend = server.stack.enter_context(contextlib.closing(load_backend("tensorzero:f", base_url=server.url, retries=0)))
    with pytest.raises(UsageError, match="tool: expected none"):
        backend.answer([request()])
