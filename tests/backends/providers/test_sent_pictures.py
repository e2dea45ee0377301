"""Pictures that a model behind a provider sees: what arrives, what is refused, and what records keep of them."""

import base64
import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image
from provider_server import ProviderServer, running

from gym_text.errors import BudgetError, UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.providers.chat_messages import picture_tokens
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.seen_pictures import picture_digest
from gym_text_policies.policy import text_spec
from gym_text_policies.run.engine import LocalEngine
from gym_text_policies.run.plan import PlanRow

pytestmark = [pytest.mark.usefixtures("no_addresses_of_the_environment")]
BABYAI, CART = "BabyAIText-v0?task=goto&max_episode_steps=5", "CartPole-v1?max_episode_steps=5"
BABYAI_TURNS, CART_PUSHES = (BABYAI, "turn left"), (CART, "push right")


@contextlib.contextmanager
def served(provider="openai", text="turn left", **options):
    """Yield a server that says `text`, and the settings of a model behind it that sees pictures."""
    with running(ProviderServer(text=text)) as server:
        url = server.url if provider == "ollama" else f"{server.url}/v1"
        yield server, PolicyConfig.of(f"{provider}:m", pictures=True, base_url=url, retries=0, **options)
        assert server.refusal is None


def played(config, environment, seeds=(0,), *, check=True, **arguments):
    """Return episodes as every command plays them: the engine makes the environment by its name."""
    row, engine = PlanRow("", environment, config, seeds, arguments), LocalEngine(max_concurrency=1)
    with contextlib.closing(engine._player(row)[1]._backend):
        if check:
            engine.check(row)
        return list(engine.play([row]))


def pictures_of(server):
    """Return for each request the messages without their picture, the picture in the last message, and its detail."""
    found = []
    for path, _, body in server.requests:
        *before, last = body["messages"]
        if path == "/api/chat":
            (encoded,), detail = last.pop("images"), None
        else:
            *text, part = last["content"]
            assert part["type"] == "image_url"
            kind, encoded = part["image_url"]["url"].split(",")
            assert kind == "data:image/png;base64"
            last, detail = last | {"content": "".join(each["text"] for each in text)}, part["image_url"].get("detail")
        with Image.open(io.BytesIO(base64.b64decode(encoded))) as image:
            assert image.format == "PNG"
            found.append(([*before, last], np.asarray(image), detail))
    return found


def rendered(environment, episode):
    """Return what the environment renders before each step of an episode."""
    with environment_maker(environment, render_mode="rgb_array")() as env:
        obs, _ = env.reset(seed=episode.seed)
        for step in episode.steps:
            yield np.array(env.render())
            obs, *_ = env.step(text_spec(env).encode(step.decision.action, dict(obs)))


@pytest.mark.parametrize(
    ("provider", "mode", "environment", "text"),
    [
        *(("openai", mode, *BABYAI_TURNS) for mode in ("text", "json", "tool")),
        *(("ollama", mode, *CART_PUSHES) for mode in ("text", "tool")),
    ],
)
def test_the_server_gets_each_steps_pixels_in_the_last_message_and_the_record_their_digest(provider, mode, environment, text):
    said = json.dumps({"action": text}) if mode == "json" else text
    with served(provider, said, mode=mode) as (server, config):
        check = mode != "tool"  # the server's one answer is no yes
        (episode,) = played(config, environment, check=check)
        *example, _, _, _, _, _ = seen = pictures_of(server)
    frames = list(rendered(environment, episode))
    assert [picture.shape for _, picture, _ in example] == [(64, 64, 3)] * check, "the question before the run"
    seen = seen[len(example) :]
    assert len(seen) == len(frames) == episode.length == 5 and not episode.error and not episode.invalid
    assert len({frame.tobytes() for frame in frames}) > 1
    for step, frame, (messages, picture, detail) in zip(episode.steps, frames, seen, strict=True):
        assert np.array_equal(picture, frame) and detail is None
        assert step.decision.picture == picture_digest(frame)
        if mode == "tool" and step is not episode.steps[0]:
            assert {"content": "", **messages.pop()} == {"role": "user", "content": ""}, "a tool's result has no picture"
            assert messages[-1]["role"] == "tool"
        assert [message["content"] or "" for message in messages if "tool_calls" not in message] == [
            message["content"] for message in step.decision.messages if "call" not in message
        ]
        assert "picture" not in step.observation
    assert "picture" not in episode.last_observation and len(json.dumps(episode.to_json())) < 30_000
    assert type(episode).from_json(json.loads(json.dumps(episode.to_json()))) == episode


def png(width, height):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_detail_arrives_and_is_of_the_identity():
    with served(picture_detail="low") as (server, config):
        (episode,) = played(config, BABYAI)
        seen = pictures_of(server)[1:]
    assert {detail for _, _, detail in seen} == {"low"}
    assert {name: episode.policy[name] for name in ("pictures", "picture_detail")} == {"pictures": True, "picture_detail": "low"}
    assert ["Picture", {}] in episode.environment["wrappers"]
    with pytest.raises(UsageError, match="picture_detail: expected"):
        load_backend("openai:m", picture_detail="much")


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("scripted:go", {}, "pictures: expected a model behind openai: or ollama:.*takes none"),
        ("openai:m", {"tokens": True}, "pictures: expected tokens=False"),
        ("openai:m", {"mode": "choose"}, "pictures: expected mode 'text', 'json' or 'tool'; typed"),
        ("ollama:m", {"mode": "choose"}, "pictures: expected mode 'text'"),
    ],
)
def test_who_sees_no_pictures_refuses_them_before_a_run(model, settings, message):
    with pytest.raises(UsageError, match=message) as error:
        played(PolicyConfig.of(model, **{"pictures": True, **settings}), BABYAI)
    assert str(error.value).count("\n") == 0


def test_a_picture_counts_for_the_limits_by_its_squares_and_not_by_its_bytes():
    assert [picture_tokens(picture) for picture in (None, png(512, 512), png(513, 512), png(1, 1))] == [0, 9000, 15000, 9000]
    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)).save(noise, "PNG")
    request = Request(({"role": "user", "content": "Where?"},), picture=noise.getvalue())
    assert len(request.picture) > 200_000
    for provider in ("openai", "ollama"):
        with served(provider) as (server, config):
            for limit, enough in ((8_999, False), (9_500, True)):
                backend = load_backend(config.model, **config.options, max_total_tokens=limit)
                refused = contextlib.nullcontext() if enough else pytest.raises(BudgetError, match="may take")
                with contextlib.closing(backend), refused:
                    backend.answer([request])
            assert len(server.requests) == 1


def test_the_digest_is_of_the_shape_and_the_pixels():
    picture = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    assert picture_digest(picture) == picture_digest(np.asfortranarray(picture)) != picture_digest(picture.reshape(4, 3, 3))
