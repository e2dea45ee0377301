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
from gym_text_policies import LLMPolicy, ScriptedBackend, rollout
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


def test_a_prompt_says_goal_actions_and_situation(env_id):
    env = gym.make(env_id, expert="off")
    obs, _ = env.reset(seed=0)
    system, user = Prompt("zero_shot").render(text_spec(env), obs)
    assert (system["role"], user["role"]) == ("system", "user")
    assert text_spec(env).goal in system["content"]
    assert obs["goal"] in user["content"] and obs["text"].splitlines()[0].strip() in user["content"]
    for name in text_spec(env).names(obs):
        assert f"- {name}\n" in user["content"]


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
    [
        ("{{ wind }}", "'wind' is undefined"),
        ("{{ obs.gold_action }}", "gold_action"),
        ("{% if %}", "expected a Jinja template"),
    ],
)
def test_a_mistake_in_a_template_is_named(tmp_path, user, message):
    obs = {"text": "", "goal": "", "gold_action": "turn left"}
    with pytest.raises(gym_text.UsageError, match=message):
        Prompt(template(tmp_path, user=user)).render(text_spec(gym.make("BabyAIText-v0")), obs)


def test_a_template_runs_in_a_sandbox(tmp_path):
    escape = Prompt(template(tmp_path, user="{{ ''.__class__.__mro__ }}"))
    with pytest.raises(gym_text.UsageError, match="unsafe"):
        escape.render(text_spec(gym.make("BabyAIText-v0")), {"text": "", "goal": ""})


OBS = {"text": "A ball.", "goal": "go", "numbers": np.arange(3.0)}


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("{{ spec.fields.clear() }}", "unsafe"),
        ("{{ spec.fields.update(a=1) }}", "unsafe"),
        ("{% set obs.text = 'other' %}", "cannot assign"),
        ("{{ names.append('x') }}", "no attribute 'append'"),
        ("{{ obs.numbers.fill(0) }}", "unsafe"),
        ("{{ obs.numbers.tofile('stolen') }}", "unsafe"),
        ("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", "200,000 turns of loops"),
        ("{% macro m(n) %}{% for i in range(9) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}", "recursion|turns of loops"),
        ("{% for x in [[1, 2, 3]] * 99 recursive %}{{ loop([1, 2] * 9) }}{% endfor %}", "recursion|turns of loops"),
        ("{{ 'x' * 10 ** 10 }}", "too large"),
        ("{{ 2 ** 9999999999 }}", "binary digits"),
        ("{{ '%1000000000d' % 1 }}", "too large"),
        ("{{ '%*d' % (1000000000, 1) }}", "too large"),
        ("{{ '{:1000000000}'.format(1) }}", "too large"),
        ("{{ '{:{w}}'.format(1, w=1000000000) }}", "too large"),
        ("{{ 'x'.ljust(1000000000) }}", "too large"),
        ("{{ 'x' | center(1000000000) }}", "too large"),
        ("{{ '%1000000000d' | format(1) }}", "too large"),
        ("{% set a = 'x' * 90000 %}{{ a | replace('x', a) }}", "too large"),
        ("{% set a = 'x' * 90000 %}{% for i in range(99) %}{{ a }}{% endfor %}", "1,000,000 characters"),
        ("{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}", "1,000,000"),
        ("{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}", "1,000,000"),
        ("{% set a %}{{ 'x' * 900000 }}{% endset %}{% set b %}{{ a }}{{ a }}{% endset %}{{ b | length }}", "1,000,000"),
        ("{% set a = [1] * 999 %}{% set b = [a] * 999 %}{% set c = [b] * 999 %}{{ c }}", "1,000,000"),
        ("{% set n = namespace(a=['x']) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}", "1,000,000"),
        ("{% set a = [1] * 90000 %}{% for i in range(90000) %}{{ 'x' if 2 in a }}{% endfor %}", "200,000 turns of loops"),
        ("{% set a = 'x' * 90000 %}{% for i in range(90000) %}{{ a[1:] == a }}{% endfor %}", "200,000 turns of loops"),
        ("{{ ([[1] * 9] * 90000) | sum(start=[]) }}", "a number as the start of sum"),
        ("{{ range(10 ** 9) | list | length }}", "too large|Range too big"),
        ("{{ lipsum(n=1000) }}", "undefined"),
        ("{{ obs.text + 1 }}", "can only concatenate"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_template_changes_nothing_and_ends(tmp_path, monkeypatch, user, message):
    monkeypatch.chdir(tmp_path)
    spec = text_spec(gym.make(BABY))
    before, numbers = spec.to_json(), OBS["numbers"].copy()
    spec_with_numbers = dataclasses.replace(spec, fields={**spec.fields, "numbers": spec.fields["text"]})
    with pytest.raises(UsageError, match=message):
        Prompt(template(tmp_path, user=user)).render(spec_with_numbers, OBS)
    assert spec.to_json() == before and set(spec_with_numbers.fields) == {"text", "goal", "numbers"}
    assert (OBS["numbers"] == numbers).all() and {path.name for path in tmp_path.iterdir()} == {"own.jinja"}


def test_each_text_has_its_own_bound(tmp_path):
    spec = text_spec(gym.make(BABY))
    prompt = Prompt(template(tmp_path, user="{% for i in range(90000) %}{{ 'x' if loop.last }}{% endfor %}"))
    for _ in range(3):
        assert prompt.render(spec, {"text": "", "goal": ""})[-1]["content"] == "x"


def test_no_link_is_followed_and_only_templates_are_included(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.jinja").write_text("key")
    (tmp_path / "folder").mkdir()
    own = tmp_path / "folder"
    (own / "key.txt").write_text("key")
    (own / "link.jinja").symlink_to(tmp_path / "secret" / "key.jinja")
    (own / "up").symlink_to(tmp_path / "secret")
    (own / "part.jinja").write_text("part")
    (own / "self.jinja").write_text("{% include 'self.jinja' %}")
    (own / "large.jinja").write_text("x" * 2_000_000)
    for include, message in (
        ("'link.jinja'", "is a link out of it"),
        ("'up/key.jinja'", "is a link out of it"),
        ("'../secret/key.jinja'", "expected a Jinja template"),
        ("'key.txt'", r"expected to include \.jinja files"),
        ("'self.jinja'", "none of them of itself"),
        ("'large.jinja'", "at most 1,000,000 bytes"),
        ("obs.text", "by their names"),
    ):
        with pytest.raises(UsageError, match=message):
            Prompt(template(own, user=f"{{% include {include} %}}"))
    assert Prompt(template(own, user="{% include 'part.jinja' %}"))
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


def test_an_observation_without_the_fields_names_them():
    env = gym.make("BabyAIText-v0")
    policy = LLMPolicy(ScriptedBackend(["drop"]), text_spec(env))
    with pytest.raises(gym_text.UsageError, match=r"missing: \['goal'\]"):
        policy({"text": ""})


def test_prompts_are_stored_with_the_episode():
    env = gym.make("BabyAIText-v0")
    policy = LLMPolicy(ScriptedBackend(["drop"]), text_spec(env))
    (episode,) = rollout(lambda: gym.make("BabyAIText-v0", max_episode_steps=3), policy, [0])
    assert all(step.decision.messages[1]["content"].startswith("Task:") for step in episode.steps)


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
