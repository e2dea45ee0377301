"""Prompts come from templates, and the expert's hint cannot get into one."""

import dataclasses
import json
import os

import gymnasium as gym
import numpy as np
import pytest

import gym_text
from gym_text import UsageError
from gym_text.wrappers import GoldAction
from gym_text_policies import LLMPolicy, ScriptedBackend
from gym_text_policies.backends.base import Request
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import STRATEGIES, Prompt

BABY = "BabyAIText-v0"

HINT = "sing the gold song"


class Whisper(gym.ObservationWrapper):
    """Replace the expert's hint by words that no game says."""

    def observation(self, observation):
        return observation | {"gold_action": HINT}


@pytest.mark.parametrize("mode", ["text", "choose"])
@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "TextCraftText-v0"])
def test_gold_action_never_reaches_the_prompt(env_id, mode):
    asked: list[Request] = []
    env = Whisper(GoldAction(gym.make(env_id, expert="replan")))
    policy = LLMPolicy(ScriptedBackend(lambda request: asked.append(request) or "?"), text_spec(env), mode=mode)
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        assert obs["gold_action"] == HINT
        obs, _, over, *_ = env.step(policy(obs))
        if over:
            obs, _ = env.reset()
    assert len(asked) == 3
    assert not any(HINT in message["content"] for request in asked for message in request.messages)
    assert not any(HINT in choice for request in asked for choice in request.choices or ())


def template(tmp_path, system="S", user="U"):
    path = tmp_path / "own.jinja"
    path.write_text("{% block system %}" + system + "{% endblock %}{% block user %}" + user + "{% endblock %}")
    return str(path)


def test_a_template_of_ones_own_is_a_file(tmp_path):
    env = gym.make("BabyAIText-v0", expert="off")
    obs, _ = env.reset(seed=0)
    prompt = Prompt(template(tmp_path, "", "{{ obs.goal }} with {{ names[0] }}"))
    assert prompt.render(text_spec(env), obs) == ({"role": "user", "content": f"{obs['goal']} with turn left"},)
    other = Prompt(template(tmp_path, "", "{{ obs.goal }}!"))
    assert prompt.config["template"] != other.config["template"]


@pytest.mark.parametrize(
    ("user", "message"),
    [("{{ wind }}", "'wind' is undefined"), ("{{ obs.gold_action }}", "gold_action"), ("{% if %}", "expected a Jinja template")],
)
def test_a_mistake_in_a_template_is_named(tmp_path, user, message):
    obs = {"text": "", "goal": "", "gold_action": "turn left"}
    with pytest.raises(gym_text.UsageError, match=message):
        Prompt(template(tmp_path, user=user)).render(text_spec(gym.make("BabyAIText-v0")), obs)


OBS = {"text": "A ball.", "goal": "go", "numbers": np.arange(3.0)}


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ spec.fields.clear() }}", "unsafe"),
        ("{% set obs.text = 'other' %}", "cannot assign"),
        ("{{ names.append('x') }}", "no attribute 'append'"),
        ("{{ obs.numbers.fill(0) }}", "unsafe"),
        ("{{ obs.numbers.tofile('stolen') }}", "unsafe"),
        ("{{ range(10 ** 9) | list | length }}", "Range too big"),
        ("{{ obs.text + 1 }}", "can only concatenate"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_template_changes_nothing(tmp_path, monkeypatch, user, message):
    monkeypatch.chdir(tmp_path)
    spec = text_spec(gym.make(BABY))
    before, numbers = spec.to_json(), OBS["numbers"].copy()
    spec_with_numbers = dataclasses.replace(spec, fields={**spec.fields, "numbers": spec.fields["text"]})
    with pytest.raises(UsageError, match=message):
        Prompt(template(tmp_path, user=user)).render(spec_with_numbers, OBS)
    assert spec.to_json() == before and set(spec_with_numbers.fields) == {"text", "goal", "numbers"}
    assert (OBS["numbers"] == numbers).all() and {path.name for path in tmp_path.iterdir()} == {"own.jinja"}


def test_no_link_is_followed_and_only_the_templates_that_ship_are_included(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.jinja").write_text("key")
    (tmp_path / "folder").mkdir()
    own = tmp_path / "folder"
    (own / "link.jinja").symlink_to(tmp_path / "secret" / "key.jinja")
    (own / "part.jinja").write_text("part")
    for include in ("part.jinja", "../secret/key.jinja", "/etc/passwd", str(tmp_path / "secret" / "key.jinja")):
        with pytest.raises(UsageError, match="expected a Jinja template"):
            Prompt(template(own, user=f"{{% include '{include}' %}}"))
    with pytest.raises(UsageError, match=r"'part\.jinja' not found"):
        Prompt(template(own, user="{% include obs.text %}")).render(text_spec(gym.make(BABY)), {"text": "part.jinja", "goal": ""})
    assert Prompt(template(own, user="{% include '_situation.jinja' %}"))
    (own / "named.jinja").symlink_to(own / "own.jinja")
    assert Prompt(str(own / "named.jinja"))
    with pytest.raises(UsageError, match="is a link out of it"):
        Prompt(str(own / "link.jinja"))
    os.mkfifo(own / "pipe.jinja")
    with pytest.raises(UsageError, match="expected a regular file"):
        Prompt(str(own / "pipe.jinja"))


def test_an_unknown_strategy_and_a_template_without_blocks_are_refused(tmp_path):
    with pytest.raises(gym_text.UsageError, match="Did you mean 'zero_shot'"):
        Prompt("zero_shoot")
    path = tmp_path / "flat.jinja"
    path.write_text("hello")
    with pytest.raises(gym_text.UsageError, match="missing: system, user"):
        Prompt(str(path))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_reward_is_said_when_asked(strategy, tmp_path):
    spec = text_spec(gym.make(BABY))
    obs = gym.make(BABY).reset(seed=0)[0]
    said = ["".join(m["content"] for m in Prompt(strategy, with_reward=w).render(spec, obs)) for w in (False, True)]
    assert [spec.reward in text for text in said] == [False, True]


def test_a_block_answer_must_end_with_the_action(tmp_path):
    path = tmp_path / "own.jinja"
    blocks = "{% block system %}S{% endblock %}{% block user %}U{% endblock %}{% block answer %}"
    for answer in ("[]", "{}", json.dumps({"action": "a", "plan": "p"}), "nonsense"):
        path.write_text(f"{blocks}{answer}{{% endblock %}}")
        with pytest.raises(UsageError, match="the last of them 'action'"):
            Prompt(str(path))
