"""Providers as they are: `transformers serve` with a small model, an Ollama proxy in front of it, TensorZero's gateway."""

import contextlib
import json

import pytest
from provider_server import ProviderServer, running
from serving import serving

from gym_text_policies import PolicyError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend

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


def test_a_served_model_compares_letters_and_more_than_it_has_in_rounds(openai):
    choices = ("turn left", "go forward", "pick up")
    answer = openai.answer([Request(MESSAGES, choices)])[0]
    assert tuple(answer.probabilities) == choices and sum(answer.probabilities.values()) == pytest.approx(1)
    assert len(set(answer.probabilities.values())) == 3
    assert answer.probability_kind == "decision" and answer.tokens_in > answer.tokens_out == 0
    for count, rounds in ((26, 1), (27, 2)):
        many = openai.answer([Request(MESSAGES, tuple(map(str, range(count))))])[0]
        assert (len(many.probabilities), many.rounds, openai.most_choices) == (count, rounds, 255 if rounds == 1 else 26)


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
    with contextlib.closing(load_backend(f"ollama:{tiny_model}", base_url=served, rounds=False)) as backend:
        answer = backend.answer([request])[0]
        with pytest.raises(PolicyError, match=r"HTTP 422.*at most 26.*Mode 'json'"):
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
