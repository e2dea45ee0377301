"""Calls of the tool behind OpenAI's and Ollama's clients, and feedback to TensorZero."""

import dataclasses
import json

import gymnasium as gym
import pytest
from provider_server import Fault

from gym_text import UsageError
from gym_text_policies import PolicyError, load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.environments import environment_maker
from gym_text_policies.prompts.tools import argument_schema, tool_function

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=3"
BOTH = pytest.mark.parametrize("provider", ["openai", "ollama"])


def tool_request(names=("go left", "go right")):
    with gym.make("BabyAIText-v0") as env:
        spec = env.get_wrapper_attr("text_spec")
    return Request(({"role": "user", "content": "A wall."},), schema=argument_schema(spec, names), tool=tool_function(spec))


@BOTH
def test_an_episode_of_calls_is_a_chat_that_the_client_and_the_server_accept(server, backend_of, provider):
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
def test_the_argument_can_only_be_what_is_valid_now_and_words_are_no_call(server, backend_of, provider):
    server.text = "I go left, I think"
    (answer,) = backend_of(server, provider).answer([tool_request(("open door", "wait"))])
    assert (answer.arguments, answer.text) == (None, "I go left, I think")
    (tool,) = server.requests[-1][2]["tools"]
    assert tool["function"]["parameters"]["properties"]["action"]["enum"] == ["open door", "wait"]
    assert tool["function"]["name"] == "act" and "return" not in tool["function"]
    with pytest.raises(UsageError, match=r"expected a model that calls tools; asked before the run, .* said 'I go left"):
        backend_of(server, provider).check(tool_request())


def test_a_server_with_openais_protocol_has_to_let_the_model_call_once(server, backend_of):
    server.text = "go right"
    assert backend_of(server).answer([tool_request()])[0].arguments == '{"action": "go right"}'
    ((_, _, body),) = server.requests
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert body["tools"][0]["function"]["strict"]
    with pytest.raises(UsageError, match="tool: expected none"):
        backend_of(server, "tensorzero").answer([tool_request()])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (('{"action": "go left"}',), '{"action": "go left"}'),
        (('{"action": "go left"}', '{"action": "go right"}'), None),
        (("{",), "{"),
    ],
)
@pytest.mark.parametrize("name", ["act", "search"])
def test_one_call_of_the_tool_is_an_answer_and_other_calls_are_none(server, backend_of, arguments, expected, name):
    calls = [{"id": str(i), "type": "function", "function": {"name": name, "arguments": text}} for i, text in enumerate(arguments)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    server.faults.append(Fault(200, json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]})))
    (answer,) = backend_of(server).answer([tool_request()])
    assert (answer.arguments, answer.text, answer.finish) == (expected if name == "act" else None, "", "stop")


def test_a_call_of_another_function_is_none_behind_ollama(server, backend_of):
    call = {"function": {"name": "search", "arguments": {"action": "go left"}}}
    server.faults.append(
        Fault(200, json.dumps({"model": "m", "message": {"role": "assistant", "tool_calls": [call]}, "done": True}))
    )
    assert backend_of(server, "ollama").answer([tool_request()])[0].arguments is None


def test_a_schema_that_a_server_refuses_is_not_to_be_left_out_but_asked_in_text(server, backend_of):
    server.faults.append(Fault(400, json.dumps({"error": {"message": "Invalid schema for response_format 'answer': 1001 values"}})))
    with pytest.raises(PolicyError, match=r"1001 values.* Mode 'text' sends no schema"):
        backend_of(server).answer([dataclasses.replace(tool_request(), tool=None)])


def test_feedback_of_tensorzero_reports_return_and_progression(server, backend_of):
    make, backend = environment_maker("BabyAIText-v0?max_episode_steps=2"), backend_of(server, "tensorzero", retries=1)
    with make() as env:
        policies = [load_policy(model, env) for model in (backend, "scripted:turn left")]
    episode, other = (next(rollout(make, policy, [0], num_envs=1)) for policy in policies)
    server.faults.append(Fault(500, "oops"))
    backend.feedback(episode)
    sent = [(body["metric_name"], body["value"], body["episode_id"]) for path, _, body in server.requests if path == "/feedback"]
    reference = episode.steps[0].decision.reference
    metrics = [("episode_return", episode.total_reward)] * 2 + [("progression", episode.steps[-1].score)]
    assert sent == [(*metric, reference) for metric in metrics], "the first call failed and was sent again"
    with pytest.raises(UsageError, match="without a TensorZero episode id"):
        backend.feedback(other)
