"""What is sent for a request: chats, schemas, typed decisions, settings of thoughts and draws, calls of the tool."""

import json

import pytest
from provider_server import Fault
from thinking_server import served

from gym_text import UsageError
from gym_text_policies import PolicyError, load_policy, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_to_measure
from gym_text_policies.policies.config import PolicyConfig

SCHEMA = {
    "type": "object",
    "properties": {"reasoning": {"type": "string"}, "action": {"type": "string", "enum": ["go forward", "drop"]}},
    "required": ["reasoning", "action"],
    "additionalProperties": False,
}
pytestmark = [pytest.mark.usefixtures("no_addresses_of_the_environment")]
CHAT = ({"role": "user", "content": "A red ball."},)
BEFORE = (
    {"role": "user", "content": "A wall."},
    {"role": "assistant", "content": "turn left", "reasoning": "Left is free."},
    *CHAT,
)


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_a_text_is_a_chat_with_the_requests_settings(server, backend_of, provider):
    (answer,) = backend_of(server, provider).answer([Request(CHAT, max_tokens=7, temperature=0.5, seed=3)])
    assert (answer.text, server.refusal) == ("go forward", None)
    assert answer.tokens_in > 0 < answer.tokens_out
    body = server.requests[0][2]
    settings = {"openai": body, "ollama": body.get("options"), "tensorzero": body.get("params", {}).get("chat_completion")}
    most = "num_predict" if provider == "ollama" else "max_tokens"
    assert [settings[provider][name] for name in ("temperature", "seed", most)] == [0.5, 3, 7]


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_a_schema_goes_along_in_the_providers_own_form(server, backend_of, provider):
    server.text = '{"reasoning": "", "action": "drop"}'
    (answer,) = backend_of(server, provider).answer([Request(CHAT, schema=SCHEMA)])
    assert (json.loads(answer.text)["action"], server.refusal) == ("drop", None)
    body = server.requests[0][2]
    assert (body["format"] if provider == "ollama" else body["response_format"]["json_schema"]["schema"]) == SCHEMA


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_a_server_that_ignores_schemas_is_refused_before_a_run(server, backend_of, provider):
    with environment_maker("BabyAIText-v0")() as env:
        policy = load_policy(backend_of(server, provider), env, mode="json")
    for server.text in ("Yes.", "[1]", '{"answer": "yes"}'):
        with pytest.raises(UsageError, match=r"expected a server that makes .* follow a JSON schema; .* said .*Take mode 'text'"):
            policy.check()
    server.text = '{"action": "go forward"}'
    policy.check()


@pytest.mark.parametrize(
    ("provider", "options", "path"),
    [
        ("openai", {}, "/v1/decisions"),
        ("openai", {"decide": "systemone"}, "/v1/systemone"),
        ("ollama", {}, "/v1/systemone"),
    ],
)
def test_choices_are_one_typed_decision(server, backend_of, provider, options, path):
    backend = backend_of(server, provider, **options)
    (answer,) = backend.answer([Request(CHAT, ("turn left", "go forward", "drop"))])
    assert (server.requests[0][0], server.refusal) == (path, None)
    assert answer.probabilities == pytest.approx({"turn left": 6 / 11, "go forward": 3 / 11, "drop": 2 / 11})
    assert (answer.text, answer.probability_kind, answer.confidence, answer.rounds) == (None, "decision", 0.5, 1)
    assert answer.tokens_in > 0 and answer.tokens_cached == (40 if path == "/v1/decisions" else 0)
    (alone,) = backend.answer([Request(CHAT, ("turn left",))])
    assert alone.probabilities == {"turn left": 1.0} and len(server.requests) == 1, "one choice needs no call"
    server.most_options = 26
    sizes = (27, 700, 700)
    rounds = [backend.answer([Request(CHAT, tuple(map(str, range(size))))])[0] for size in sizes]
    assert [answer.rounds for answer in rounds] == [2, 3, 3] and len(server.requests) == 1 + 1 + 2 + 3 + 3, "one refusal teaches"
    assert all(max(answer.probabilities, key=answer.probabilities.get) == "0" for answer in rounds)
    assert rounds[1].tokens_in == 3 * answer.tokens_in and rounds[1].confidence is None
    with pytest.raises(PolicyError, match=r"rounds=False expected at most 255 choices.*; got 256.*'text' has no limit"):
        backend_of(server, provider, **options, rounds=False).answer([Request(CHAT, tuple(map(str, range(256))))])
    with pytest.raises(PolicyError, match="at most 26 options"):
        backend_of(server, provider, **options, rounds=False).answer([Request(CHAT, tuple(map(str, range(27))))])
    assert backend_of(server, provider, **options, rounds=3).answer([Request(CHAT, tuple("abcdefghij"))])[0].rounds == 3
    before = len(server.requests)
    (wide,) = backend_of(server, provider, **options, rounds=3).answer([Request(CHAT, tuple(map(str, range(200))))])
    asked = [len(body["questions"]) for _, _, body in server.requests[before:]]
    assert asked == [64, 3, 23, 8, 3, 1] and wide.rounds == 6, "67 groups, then the winners; a request has at most 64 questions"
    with pytest.raises(UsageError, match="think=True: expected another mode; a typed decision is made without a thought"):
        backend.answer([Request(CHAT, ("a", "b"), think=True)])


@pytest.mark.parametrize("path", ["systemone", "decisions"])
def test_the_situation_is_sent_as_json_with_what_the_actions_mean_to_any_path(server, path):
    make = environment_maker("LunarLanderLLM-v2?max_episode_steps=2")
    with make() as env:
        policy = load_policy(
            "openai:m", env, mode="choose", strategy="json_state", history=1, base_url=f"{server.url}/proxy/v1/{path}/"
        )
        meanings = {action.name: action.meaning for action in env.get_wrapper_attr("text_spec").actions}
    (episode,) = rollout(make, policy, [0], num_envs=1)
    policy._backend.close()
    assert server.refusal is None and {at for at, *_ in server.requests} == {f"/proxy/v1/{path}"}
    decision, body = episode.steps[1].decision, server.requests[1][2]
    assert (decision.confidence, decision.rounds, decision.probability_kind) == (0.5, 1, "decision")
    if path == "systemone":
        state, sent = body["state"], body["questions"]["action"]["criteria"]
    else:
        state = json.loads(body["input"][0]["content"])
        sent = {row["value"]: row["description"] for row in body["questions"][0]["choices"]}
    assert sent == meanings
    assert [step["action"] for step in state["past"]] == [episode.steps[0].decision.action]
    assert set(state["lander_cartesian"]) == {"x", "y", "vx", "vy"}


def test_a_provider_without_typed_decisions_says_which_mode_to_take(server, backend_of):
    with pytest.raises(UsageError, match="mode 'text' or 'json'"):
        backend_of(server, "tensorzero").answer([Request(CHAT, ("a", "b"))])
    server.faults.append(Fault(404, '{"error": "no such route"}'))
    with pytest.raises(PolicyError, match=r"HTTP 404.*Mode 'json'"):
        backend_of(server).answer([Request(CHAT, ("a", "b"))])


def test_extra_fields_are_sent_and_none_leaves_one_out(server, backend_of):
    backend = backend_of(server, extra={"temperature": None, "reasoning_effort": "low"})
    backend.answer([Request(CHAT)])
    body = server.requests[0][2]
    assert "temperature" not in body and body["reasoning_effort"] == "low" and server.refusal is None
    assert backend.config["extra"] == {"temperature": None, "reasoning_effort": "low"}


def test_a_policy_passes_on_what_is_not_its_own(server):
    make = environment_maker("BabyAIText-v0?max_episode_steps=2")
    with make() as env:
        policy = load_policy("openai:m", env, mode="choose", base_url=f"{server.url}/v1", timeout=9.0)
        assert policy.config["base_url"] == f"{server.url}/v1" and "timeout" not in policy.config
        (episode,) = rollout(make, policy, [0], num_envs=1)
        assert episode.steps[0].decision.probabilities and server.requests[0][0] == "/v1/decisions"
        policy._backend.close()
        with pytest.raises(UsageError, match=r"'stratgy'\. Did you mean 'strategy'"):
            load_policy("openai:m", env, stratgy="x")
        with pytest.raises(UsageError, match=r"'timeot'\. Did you mean 'timeout'"):
            load_policy("openai:m", env, timeot=3)
        given = load_policy("ollama:m", env, max_tokens=4, noise=0.5)
        among = load_to_measure(PolicyConfig("ollama:m", options={"max_tokens": 4, "noise": 0.5}), env)
        assert among.config == given.config and type(among) is type(given)


def sent(kind, *, options=None, messages=CHAT, **fields):
    """Return what a server gets for a request that it answers."""
    with served(kind, options=options) as (server, backend):
        backend.answer([Request(messages, max_tokens=500, **fields)])
        assert server.refusal is None
        return server.answered[0]


@pytest.mark.parametrize(
    ("think", "arguments", "effort"),
    [
        (None, None, None),
        (True, {"enable_thinking": True, "thinking": True}, None),
        (False, {"enable_thinking": False, "thinking": False}, None),
        ("low", {"enable_thinking": True, "thinking": True, "reasoning_effort": "low"}, "low"),
    ],
)
def test_a_server_of_ones_own_is_asked_to_think_by_arguments_of_its_template(think, arguments, effort):
    body = sent("vllm", think=think)
    assert (body.get("chat_template_kwargs"), body.get("reasoning_effort")) == (arguments, effort)


@pytest.mark.parametrize(("think", "effort"), [(None, None), (True, "medium"), (False, "none"), ("high", "high")])
def test_a_hosted_model_is_asked_by_an_effort(think, effort):
    body = sent("openai", think=think)
    assert (body.get("reasoning_effort"), "chat_template_kwargs" in body) == (effort, False)


def test_ollama_is_asked_to_think_by_its_own_field():
    assert [sent("ollama", think=think).get("think") for think in (None, True, False, "low")] == [None, True, False, "low"]
    with served("ollama", options={"retries": 0}) as (server, backend):
        server.faults.append(Fault(400, '{"error": "\\"m\\" does not support thinking"}'))
        with pytest.raises(PolicyError, match="does not support thinking"):
            backend.answer([Request(CHAT, think=True)])


def test_limits_have_room_for_a_thought_that_is_asked_for():
    assert sent("vllm", think=True)["max_tokens"] == 500 + 2048
    assert sent("vllm", think=True, think_tokens=300)["max_tokens"] == 800
    assert sent("openai", think="low", think_tokens=300)["max_completion_tokens"] == 800
    assert sent("ollama", think=True, think_tokens=300)["options"]["num_predict"] == 800
    assert sent("vllm", think=False, think_tokens=300)["max_tokens"] == 500


def test_settings_of_draws_are_sent():
    draws = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.1}
    body = sent("vllm", seed=1, **draws)
    assert {name: body[name] for name in draws} == draws
    body = sent("ollama", seed=1, **draws)
    assert {name: body["options"][name] for name in draws} == draws
    assert not {"top_p", "top_k", "min_p"} & sent("vllm").keys()
    with served("openai") as (_, backend), pytest.raises(UsageError, match="top_k: expected none; OpenAI has no such"):
        backend.answer([Request(CHAT, top_k=20)])


def test_earlier_thoughts_stand_in_the_servers_field_or_are_left_out():
    assert sent("vllm", messages=BEFORE)["messages"][1] == {
        "role": "assistant",
        "content": "turn left",
        "reasoning_content": "Left is free.",
    }
    assert sent("ollama", messages=BEFORE)["messages"][1]["thinking"] == "Left is free."
    assert "Left is free." not in json.dumps(sent("openai", messages=BEFORE))


def test_the_users_template_arguments_go_along_and_win():
    body = sent("vllm", options={"template_kwargs": {"enable_thinking": False, "style": "short"}}, think=True)
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": True, "style": "short"}


def refusal(words, **more):
    return Fault(400, json.dumps({"error": {"message": words, **more}}))


@pytest.mark.parametrize(
    ("fault", "left_out"),
    [
        (refusal("Unsupported value: only 1 is supported, whatever the seed is.", param="temperature"), "temperature"),
        (refusal("Unrecognized request argument supplied: seed"), "seed"),
        (refusal("'chat_template_kwargs' is not supported with this model."), "chat_template_kwargs"),
    ],
)
def test_a_field_that_is_not_needed_and_that_a_server_refuses_is_left_out_with_one_warning(caplog, fault, left_out):
    with served("vllm", options={"retries": 0}) as (server, backend):
        server.faults.append(fault)
        for _ in range(2):
            assert backend.answer([Request(CHAT, seed=1, think=False)])[0].text == "go forward"
        first, *later = (body for _, _, body in server.requests)
        assert len(later) >= 2 and all(first.keys() - body.keys() == {left_out} for body in later)
        assert [record.getMessage() for record in caplog.records] == [
            f"openai:m: the server takes no {left_out}; it is left out from now on."
        ]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Unsupported parameter: 'top_p' is not supported.", "takes no top_p, leave it out: extra={'top_p': None}"),
        ("seed: expected a number that is larger", "takes no seed, leave it out"),
        ("'chat_template_kwargs' is not supported", "takes no chat_template_kwargs"),
        ("The model m does not exist", "$"),
    ],
)
def test_what_a_server_refuses_otherwise_is_an_error_that_says_how_to_leave_it_out(words, hint):
    with served("vllm", options={"template_kwargs": {"style": "short"}}) as (server, backend):
        server.faults.append(refusal(words))
        with pytest.raises(PolicyError, match=rf"HTTP 400.*{words}.*{hint}"):
            backend.answer([Request(CHAT, seed=1, top_p=0.5)])
        assert len(server.requests) == 1


def test_a_hosted_model_that_takes_neither_temperature_nor_seed_is_asked_without_them():
    assert not {"temperature", "seed"} & sent("openai", seed=1).keys()
