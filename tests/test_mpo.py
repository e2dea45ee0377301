"""MPO: what is learnt of actions that nobody took, on a small random model."""

import dataclasses
import functools
import json
import math

import pytest
import torch

from gym_text import UsageError
from gym_text_policies.training.groups import play_groups
from gym_text_policies.training.loop import pass_sums
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.mpo import MPOConfig, learn, level_targets, train
from gym_text_policies.training.targets import divergence_from_targets, make_batch

pytestmark = [
    pytest.mark.usefixtures("one_thread", "corridor"),
]


def settings(tiny_model, folder, **options):
    usual = {"environments": ("Corridor-v0?length=2",), "episodes_per_iteration": 12, "group_size": 6, "episodes_per_step": 12}
    return MPOConfig(**{"folder": str(folder), "model": tiny_model, **usual, "temperature": 5.0, "dev_every": 0, **options})


@pytest.fixture
def played(tiny_model, tmp_path):
    """Return a configuration, a model, and two levels with six episodes each, some of them won."""
    config = settings(tiny_model, tmp_path, seed=4)
    torch.manual_seed(0)
    actor = Actor(tiny_model, temperature=5.0)
    return config, actor, play_groups(config, actor, Progress())


def test_an_action_that_nobody_took_is_learnt_from_one_step_in_a_copy(played):
    config, actor, trajectories = played
    lost = [one for one in trajectories if "right" not in {step.decision.action for step in one.episode.steps}]
    config = dataclasses.replace(config, environments=("Corridor-v0?length=1",))  # there right wins at once
    lost = [dataclasses.replace(one, environment=config.environments[0]) for one in lost]
    assert lost, "some episodes begin with another action"
    optimizer = torch.optim.AdamW(actor.parameters, lr=1e-2)
    metrics = learn(config, actor, optimizer, Progress(), lost)
    levels = {one.level for one in lost}
    assert metrics["mixed"] == 1 and metrics["states"] == metrics["learnt"] == len(levels), "each has one prompt"
    assert metrics["simulator_steps"] == len(lost) + 2 * len(levels), "two other actions in each state"
    (before, *_), (after, *_) = lost[0].candidates, play_groups(config, actor, Progress())[0].candidates
    assert after["right"] > 1.5 * before["right"]


def test_prompts_that_come_again_are_learnt_once_and_targets_are_those_of_their_states(played):
    config, actor, trajectories = played
    env = config.env_maker(config.environments[0])()
    targets, states, steps = level_targets(config, env, trajectories[:6])
    assert states == 2 and steps == sum(one.episode.length for one in trajectories[:6]) + 2 * 2
    learnt = [
        (one, t) for one, of_episode in zip(trajectories, targets, strict=False) for t, target in enumerate(of_episode) if target
    ]
    assert len(learnt) == len({str(one.prompts[t]) for one, t in learnt}) == 2, "the two places"
    for one, t in learnt:
        target, prior = targets[trajectories.index(one)][t], one.candidates[t]
        worth = 1 if t == 1 else config.discount  # nearly: of the next place, where right is the best
        odds = target["right"] / target["left"] / ((0.98 * prior["right"] + 0.02 / 3) / (0.98 * prior["left"] + 0.02 / 3))
        assert math.log(odds) * config.return_temperature == pytest.approx(worth, abs=0.1)
    batch = make_batch(config, actor, trajectories[:6], targets)
    assert batch.targets.tolist() == [pytest.approx([*targets[trajectories.index(one)][t].values()]) for one, t in learnt]


def test_learning_comes_nearer_to_the_targets(played):
    config, actor, trajectories = played
    env = config.env_maker(config.environments[0])()
    targets = [of_episode for start in (0, 6) for of_episode in level_targets(config, env, trajectories[start : start + 6])[0]]
    batch = make_batch(config, actor, trajectories, targets)
    segments, objective = (
        [segment for level in batch.segments for segment in level],
        functools.partial(divergence_from_targets, batch.targets),
    )
    with torch.no_grad():
        before = float(pass_sums(actor, batch, segments, objective)["policy_loss"])
    metrics = learn(
        dataclasses.replace(config, epochs=4), actor, torch.optim.AdamW(actor.parameters, lr=1e-2), Progress(), trajectories
    )
    with torch.no_grad():
        after = float(pass_sums(actor, batch, segments, objective)["policy_loss"])
    assert 0 <= after < 0.5 * before and metrics["learnt"] == len(batch.targets)


def test_levels_without_a_reward_teach_nothing(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, environments=("Corridor-v0?length=9&max_episode_steps=1",))
    actor = Actor(tiny_model, temperature=5.0)
    metrics = learn(config, actor, None, Progress(), play_groups(config, actor, Progress()))
    assert (metrics["mixed"], metrics["learnt"]) == (0, 0) and metrics.keys() == {"mixed", "states", "learnt", "simulator_steps"}


def test_it_finds_what_is_rewarded_and_its_record_says_how(tiny_model, tmp_path):
    options = {"episodes_per_iteration": 32, "group_size": 8, "episodes_per_step": 16, "iterations": 3, "learning_rate": 1e-2}
    folder = train(settings(tiny_model, tmp_path / "run", **options, temperature=1.0, kl_weight=0.01))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["success"] < 0.4 and lines[-1]["success"] > 0.9
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert lines[0]["kl"] >= 0 and lines[0]["simulator_steps"] > lines[0]["steps"]
    assert json.loads((folder / "training.json").read_text())["made_by"]["mpo"]["return_temperature"] == 0.01


def test_settings_are_checked(tiny_model, tmp_path):
    with pytest.raises(UsageError, match="return_temperature: expected a number above 0; got 0"):
        settings(tiny_model, tmp_path, return_temperature=0)
    with pytest.raises(UsageError, match="episodes_per_step: expected a multiple of group_size=6; got 16"):
        settings(tiny_model, tmp_path, episodes_per_step=16)
