"""Prompts come from templates, and the expert's hint cannot get into one."""

import json

import gymnasium as gym
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
