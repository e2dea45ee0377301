"""The loop of on-policy training: iterations, and the gradient steps that all algorithms take."""

import contextlib
import dataclasses
import json

import pytest
import torch
from training_data import with_random_adapter

from gym_text import UsageError
from gym_text_policies.training import expert_iteration, loop
from gym_text_policies.training.expert_iteration import ExpertIterationConfig
from gym_text_policies.training.grpo import GRPOConfig, run
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.trajectories import play

pytestmark = [pytest.mark.usefixtures("one_thread", "corridor")]


def settings(tiny_model, folder, **options):
    usual = {"environments": ("Corridor-v0?length=1",), "episodes_per_iteration": 8, "episodes_per_step": 8, "dev_every": 0}
    return GRPOConfig(**{"folder": str(folder), "model": tiny_model, **usual, **options})


def test_a_tracker_gets_the_metrics_of_each_iteration_that_is_played_and_no_others(tiny_model, tmp_path, monkeypatch):
    logged = []
    monkeypatch.setattr(loop, "tracking", lambda _: contextlib.nullcontext(lambda metrics, step: logged.append((step, metrics))))
    config = settings(tiny_model, tmp_path / "run", iterations=2, dev_every=2, dev_episodes=1)
    run(config)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1, 2], "the dev fold is played before learning, too"
    assert logged == [(line["iteration"], line) for line in lines[1:]] and "dev_success" in logged[1][1]
    run(dataclasses.replace(config, iterations=3))
    assert [step for step, _ in logged] == [1, 2, 3], "a run that goes on logs what it plays"


def test_the_learning_rate_follows_its_schedule_also_when_a_run_goes_on(tiny_model, tmp_path):
    def rates(iterations):
        played = {"environments": ("Corridor-v0?length=1",), "episodes_per_iteration": 1, "simulations": 1, "dev_every": 0}
        config = ExpertIterationConfig(folder=str(tmp_path), model=tiny_model, **played, iterations=iterations, learning_rate=1e-3)
        expert_iteration.run(config)
        return [json.loads(line)["learning_rate"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]

    assert rates(2) == pytest.approx([1e-3, 5e-4])
    assert rates(4) == pytest.approx([1e-3, 5e-4, 5e-4, 2.5e-4]), "two of four are done"


def test_an_iteration_plays_seeds_of_its_own(tiny_model, tmp_path):
    two = ("Corridor-v0?length=1", "Corridor-v0?length=2")
    config = settings(tiny_model, tmp_path, environments=two, group_size=2, episodes_per_step=2, first_seed=5)
    actor = Actor(tiny_model)
    seeds = [[one.episode.seed for one in play(config, actor, Progress(number), config.group_size)] for number in (0, 1)]
    assert seeds == [2 * [5, 5, 6, 6], 2 * [7, 7, 8, 8]], "two levels of each environment, each twice"


def test_the_gradients_are_of_the_objective_and_of_the_weighted_kl(tiny_model, tmp_path):
    config = settings(tiny_model, tmp_path, epochs=1, kl_weight=0.5)
    actor = Actor(tiny_model)
    trajectories = play(config, actor, Progress())
    with_random_adapter(actor.model)
    batch = loop.make_batch(config, actor, trajectories, [[True] * len(one.actions) for one in trajectories])

    def objective(rows, log_probs):
        return {"policy_loss": -log_probs[:, 1].sum()}

    sums = loop.pass_sums(actor, batch, batch.conversations, objective)
    old, reference = actor.evaluate(batch.conversations).log_probs.detach(), batch.reference
    assert float(sums["entropy"].detach()) == pytest.approx(-float((old.exp() * old).sum()), rel=1e-4)
    assert float(sums["kl"].detach()) == pytest.approx(float((old.exp() * (old - reference)).sum()), rel=1e-4)
    ((sums["policy_loss"] + 0.5 * sums["kl"]) / len(old)).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in actor.parameters])
    actor.model.zero_grad()
    before = torch.cat([parameter.detach().flatten() for parameter in actor.parameters])
    metrics = loop.update_policy(config, actor, torch.optim.SGD(actor.parameters, lr=1.0), Progress(), batch, objective)
    moved = before - torch.cat([parameter.detach().flatten() for parameter in actor.parameters])
    norm = float(expected.norm())
    torch.testing.assert_close(moved, expected * min(1.0, 1 / norm), atol=1e-4, rtol=1e-3)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-3) and norm > loop.MAX_GRAD_NORM


def test_settings_that_make_no_sense_are_refused():
    for name, value in (("iterations", 0), ("epochs", 0), ("kl_weight", -1), ("temperature", 0), ("learning_rate", 0)):
        with pytest.raises(UsageError, match=f"{name}: expected .*; got {value}"):
            GRPOConfig(**{name: value})
