"""Providers as they are: `transformers serve` with a small model, an Ollama proxy in front of it, TensorZero's gateway."""

import contextlib
import json

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running
from serving import serving

from gym_text import UsageError
from gym_text_policies import LLMPolicy, PolicyError, rollout
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.policy import text_spec

MESSAGES = ({"role": "system", "content": "You play a game."}, {"role": "user", "content": "You see a red ball. What do you do?"})


@pytest.fixture(scope="module")
def served(tiny_model, tmp_path_factory):
    """Return the address of a server of the small model."""
    command = ["transformers", "serve", tiny_model, "--dtype", "float32", "--device", "cpu"]
    with serving(command, "/health", tmp_path_factory.mktemp("serve") / "log", HF_HUB_OFFLINE="1") as url:
        yield url


@pytest.fixture(scope="module")
def local_answer(tiny_model):
    """Return the small model's answer to MESSAGES, computed in this process."""
    return load_backend(tiny_model).answer([Request(MESSAGES, max_tokens=6)])[0]


@pytest.fixture
def openai(served, tiny_model, monkeypatch):
    """Return the server's model by the OpenAI client."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with contextlib.closing(load_backend(f"openai:{tiny_model}", base_url=f"{served}/v1", decide="systemone")) as backend:
        yield backend


def test_a_served_model_says_what_it_says_in_this_process(openai, local_answer):
    answer = openai.answer([Request(MESSAGES, max_tokens=6)])[0]
    assert answer.text == local_answer.text
    assert (answer.tokens_in, answer.tokens_out) == (local_answer.tokens_in, local_answer.tokens_out)


def test_a_served_model_compares_letters(openai):
    choices = ("turn left", "go forward", "pick up")
    answer = openai.answer([Request(MESSAGES, choices)])[0]
    assert tuple(answer.probabilities) == choices and sum(answer.probabilities.values()) == pytest.approx(1)
    assert len(set(answer.probabilities.values())) == 3
    assert answer.probability_kind == "letter" and answer.tokens_in > answer.tokens_out == 0
    assert len(openai.answer([Request(MESSAGES, tuple(map(str, range(26))))])[0].probabilities) == 26
    with pytest.raises(PolicyError, match="26 choices; got 27"):
        openai.answer([Request(MESSAGES, tuple(map(str, range(27))))])


def test_what_a_server_does_not_have_is_said(served, tiny_model, openai):
    backend = load_backend(f"openai:{tiny_model}", base_url=f"{served}/v1")
    with contextlib.closing(backend), pytest.raises(PolicyError, match=r"HTTP 40.*Mode 'json'"):
        backend.answer([Request(MESSAGES, ("yes", "no"))])
    backend = load_backend("openai:another", base_url=f"{served}/v1", retries=0)
    with contextlib.closing(backend), pytest.raises(PolicyError, match="HTTP"):
        backend.answer([Request(MESSAGES)])


def test_episodes_are_played_by_a_served_model(openai):
    def make():
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=2)

    policy = LLMPolicy(openai, text_spec(make()), max_tokens=4)
    (episode,) = rollout(make, policy, [0], num_envs=1)
    assert (episode.length, episode.error) == (2, None)
    assert all(step.decision.tokens_in > 0 and step.decision.seconds > 0 for step in episode.steps)


def test_ollamas_client_chats_through_a_proxy(served, tiny_model, tmp_path, local_answer):
    environment = {"PROVIDERS_LOCAL_BASE_URL": f"{served}/v1", "PROVIDERS_LOCAL_API_KEY": "none"}
    with (
        serving(["ollama-proxy", "serve"], "/", tmp_path / "log", **environment) as url,
        contextlib.closing(load_backend(f"ollama:local/{tiny_model}", base_url=url)) as backend,
    ):
        answer = backend.answer([Request(MESSAGES, max_tokens=6)])[0]
    assert answer.text == local_answer.text
    assert answer.tokens_in > 0 < answer.tokens_out, "roughly: the proxy counts words"


def test_ollamas_client_asks_the_server_itself_for_a_decision(served, tiny_model, openai):
    request = Request(MESSAGES, ("turn left", "go forward", "pick up"))
    with contextlib.closing(load_backend(f"ollama:{tiny_model}", base_url=served)) as backend:
        answer = backend.answer([request])[0]
        with pytest.raises(PolicyError, match=r"HTTP 422.*Mode 'json'"):
            backend.answer([Request(MESSAGES, tuple(map(str, range(27))))])
    assert answer.probabilities == pytest.approx(dict(openai.answer([request])[0].probabilities), abs=1e-4)


TENSORZERO = """
gateway.observability.enabled = false
models.m.routing = ["local"]
models.m.providers.local = {{type = "openai", model_name = "{model}", api_base = "{url}/v1/", api_key_location = "none"}}
functions.play.type = "chat"
functions.play.variants.one = {{type = "chat_completion", model = "m"}}
functions.play.variants.two = {{type = "chat_completion", model = "m"}}
functions.write.type = "json"
functions.write.variants.one = {{type = "chat_completion", model = "m", json_mode = "strict"}}
metrics.episode_return = {{type = "float", level = "episode", optimize = "max"}}
metrics.progression = {{type = "float", level = "episode", optimize = "max"}}
"""


@pytest.fixture
def gateway(tmp_path):
    """Return a function that opens TensorZero's gateway in this process, in front of a server."""
    with contextlib.ExitStack() as stack:

        def open_gateway(function, url, model, **options):
            path = tmp_path / "tensorzero.toml"
            path.write_text(TENSORZERO.format(url=url, model=model))
            backend = load_backend(f"tensorzero:{function}", config_file=str(path), **options)
            return stack.enter_context(contextlib.closing(backend))

        yield open_gateway


def test_tensorzero_plays_and_groups_by_episode(served, tiny_model, gateway, local_answer, capfd):
    backend = gateway("play::two", served, tiny_model)
    first, again, other = (backend.answer([Request(MESSAGES, max_tokens=6, episode=name)])[0] for name in ("0", "0", "1"))
    assert first.text == again.text == other.text
    assert first.tokens_in > 0 and first.tokens_out == 6
    assert first.reference == again.reference != other.reference
    assert capfd.readouterr() == ("", "")


def test_tensorzero_takes_a_schema_for_a_function_of_type_json(gateway):
    schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": ["drop", "go"]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    with running(ProviderServer(text='{"action": "drop"}')) as server:
        answer = gateway("write", server.url, "m").answer([Request(MESSAGES, schema=schema, temperature=0.5, seed=1)])[0]
    assert (json.loads(answer.text), server.refusal) == ({"action": "drop"}, None)
    body = server.requests[0][2]
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert (body["temperature"], body["seed"]) == (0.5, 1)


def test_tensorzero_errors_end_the_episode(gateway):
    with running(ProviderServer()) as server:
        server.faults.extend([Fault(500, "oops")] * 2)
        with pytest.raises(PolicyError, match=r"oops.*\(2 tries\)"):
            gateway("play::one", server.url, "m", retries=1).answer([Request(MESSAGES)])
        with pytest.raises(PolicyError, match=r"HTTP 404.*Unknown variant"):
            gateway("play::none", server.url, "m").answer([Request(MESSAGES)])


def episode_with(reference):
    """Return a short episode whose decisions came from the gateway's episode `reference`."""
    env = gym.make("BabyAIText-v0", expert="off", max_episode_steps=2)
    (episode,) = rollout(lambda: env, LLMPolicy(load_backend("scripted:turn left"), text_spec(env)), [0])
    for step in episode.steps:
        object.__setattr__(step.decision, "reference", reference)
    return episode


def test_feedback_reports_return_and_progression(monkeypatch):
    monkeypatch.delenv("TENSORZERO_API_KEY", raising=False)
    with running(ProviderServer()) as server, contextlib.ExitStack() as stack:
        backend = stack.enter_context(contextlib.closing(load_backend("tensorzero:play", base_url=server.url, retries=1)))
        reference = backend.answer([Request(MESSAGES, episode="7")])[0].reference
        server.faults.append(Fault(500, "oops"))
        backend.feedback(episode_with(reference))
        with pytest.raises(UsageError, match="without a TensorZero episode id"):
            backend.feedback(episode_with(None))
    sent = [(body["metric_name"], body["value"], body["episode_id"]) for path, _, body in server.requests if path == "/feedback"]
    assert sent == [("episode_return", 0.0, reference)] * 2 + [("progression", 0.0, reference)]


def test_a_gateway_without_its_database_refuses_feedback_clearly(gateway):
    with running(ProviderServer()) as server:
        backend = gateway("play", server.url, "m")
        reference = backend.answer([Request(MESSAGES, episode="0")])[0].reference
        with pytest.raises(PolicyError, match=r"HTTP 400.*observability"):
            backend.feedback(episode_with(reference))


def test_a_gateway_needs_a_configuration_or_an_address(tmp_path):
    broken = tmp_path / "tensorzero.toml"
    broken.write_text("functions = 3")
    for options, message in [
        ({}, "got both or neither"),
        ({"config_file": "no.toml"}, "no file"),
        ({"config_file": broken}, "config"),
    ]:
        with pytest.raises(UsageError, match=message):
            load_backend("tensorzero:play", **options)
