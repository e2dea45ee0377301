"""What on-policy training plays, as it is learnt from, and the dev fold."""

import dataclasses
import json

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from training_data import GOTO, Corridor, thinker

from gym_text import UsageError
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.policies.config import TRAINED, PolicyConfig, settings_of
from gym_text_policies.training import trajectories as module
from gym_text_policies.training.model.actor_critic import ActorCritic
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.ppo import PPOConfig, make_batch, run
from gym_text_policies.training.trajectories import dev_success, play

pytestmark = [pytest.mark.usefixtures("one_thread")]


def settings(tiny_model, folder, **options):
    played = {"environments": (f"{GOTO}&max_episode_steps=5",), "episodes_per_iteration": 8, "group_size": 1, "dev_every": 0}
    return PPOConfig(**{"folder": str(folder), "model": tiny_model, **played, **options})


def test_a_model_with_thoughts_plays_and_learns_without_them_and_its_adapter_is_asked_so(tiny_model, tmp_path):
    model = thinker(tiny_model, tmp_path / "thinker")
    folder = run(settings(model, tmp_path / "run", iterations=1, episodes_per_iteration=2, dev_every=1, dev_episodes=1))
    assert json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["rollout_gap"] < 1e-3, (
        "play reads what is learnt"
    )
    assert settings_of(str(folder))["think"] is settings_of(str(tmp_path / "run/best"))["think"] is False
    learner = ActorCritic(model)
    trajectory, *_ = play(settings(model, tmp_path / "run", episodes_per_iteration=1), learner, Progress())
    (conversation,) = trajectory.conversations(settings(model, tmp_path / "run"), learner)
    start = conversation.decisions[0].prompt_end + 1
    assert learner.tokenizer.decode(conversation.tree.tokens[:start]).endswith("<think>\n\n</think>\n\n")


def test_actions_that_play_seldom_draws_are_left_out(tiny_model, tmp_path):
    counts, gaps = [], []
    for least in (0.0, 0.1):
        config = settings(tiny_model, tmp_path, temperature=0.2)
        learner = ActorCritic(tiny_model, temperature=0.2)
        trajectories = play(config, learner, Progress(), least_probability=least)
        counts.append([len(candidates) for trajectory in trajectories for candidates in trajectory.candidates])
        gaps.append(make_batch(config, learner, trajectories).rollout["rollout_gap"])
        assert all(sum(some.values()) == pytest.approx(1) for trajectory in trajectories for some in trajectory.candidates)
    assert len(counts[0]) == len(counts[1]), "the same decisions"
    assert all(min(4, every) <= some <= every for every, some in zip(*counts, strict=True)) and sum(counts[1]) < sum(counts[0])
    assert max(gaps) < 1e-3, "the probabilities are those of play, among the actions that are left"


def test_it_plays_with_names_exchanged(tiny_model, tmp_path):
    plain = settings(tiny_model, tmp_path, episodes_per_iteration=4)
    exchanged = dataclasses.replace(plain, interchangeable=("red", "green", "blue", "purple", "yellow", "grey"))
    learner = ActorCritic(tiny_model)
    first, second = (play(config, learner, Progress()) for config in (plain, exchanged))
    goals = [[one.episode.steps[0].observation["goal"] for one in trajectories] for trajectories in (first, second)]
    assert [goal.split()[-1] for goal in goals[0]] == [goal.split()[-1] for goal in goals[1]] and goals[0] != goals[1]
    with pytest.raises(UsageError, match=r"^interchangeable: expected two or more different names"):
        dataclasses.replace(plain, interchangeable=("red",))


def test_it_plays_and_learns_at_its_temperature(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path / "cold", temperature=0.01, episodes_per_iteration=2)
    decisions = [step.decision for one in play(config, ActorCritic(tiny_model), Progress()) for step in one.episode.steps]
    assert all(decision.probabilities[decision.action] == max(decision.probabilities.values()) for decision in decisions)
    run(dataclasses.replace(config, folder=str(tmp_path / "warm"), temperature=2.0, iterations=1))
    assert json.loads((tmp_path / "warm/metrics.jsonl").read_text())["rollout_gap"] < 1e-3
    with pytest.raises(UsageError, match=r"temperature: expected a number from 0\.01 to 100; got 200"):
        dataclasses.replace(config, temperature=200)


def test_each_environments_dev_episodes_are_played_as_the_model_is_trained(monkeypatch):
    played, rollout = [], module.rollout

    def noted(*arguments, **options):
        for episode in rollout(*arguments, **options):
            played.append(episode)
            yield episode

    monkeypatch.setattr(module, "rollout", noted)
    names = (f"{GOTO}&max_episode_steps=3", "BabyAIText-v0?task=open&max_episode_steps=2")
    asked = []
    success = dev_success(ScriptedBackend(lambda request: asked.append(request) or "go forward"), names, 2, TRAINED)
    assert success == {"dev_success": sum(episode.outcome == "won" for episode in played) / 4}
    assert [episode.seed for episode in played] == [0, 1, 0, 1]
    assert {episode.environment["kwargs"]["fold"] for episode in played} == {"dev"}
    assert all(episode.policy["mode"] == "choose" and episode.policy["history"] == "all" for episode in played)
    assert asked and not any(request.probabilities for request in asked), "nobody reads them"
    assert {episode.length for episode in played} <= {1, 2, 3} and PolicyConfig() != TRAINED


class Silent(gym.Wrapper):
    """A corridor without an expert that does not say what a success is."""

    def __init__(self, fold=None):
        super().__init__(Corridor(length=1, fold=fold))
        self.text_spec = self.env.text_spec

    def step(self, action):
        *rest, info = self.env.step(action)
        return *rest, {name: value for name, value in info.items() if name != "success"}


def test_success_is_of_environments_that_say_what_it_is(corridor, monkeypatch):
    monkeypatch.setitem(gym.registry, "Silent-v0", EnvSpec("Silent-v0", Silent))
    policy = ScriptedBackend(["right"] * 8)
    assert dev_success(policy, ("Silent-v0",), 2, TRAINED) == {}, "so the last weights are kept, not the first"
    assert dev_success(policy, ("Silent-v0", "Corridor-v0?length=1"), 2, TRAINED) == {"dev_success": 1.0}
