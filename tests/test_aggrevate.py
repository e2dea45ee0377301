"""AggreVaTe: an expert's costs to go are learnt."""

import functools
import json
import math

import gymnasium as gym
import pytest
import torch
from training_data import GOTO

from gym_text import UsageError
from gym_text.errors import EngineError, RunError
from gym_text.textworld_express.cooking_world import CookingWorldEnv
from gym_text_policies.training.aggrevate import (
    AggreVaTeConfig,
    experts_of,
    make_batch,
    play_with_costs,
    target_probabilities,
    train,
)
from gym_text_policies.training.loop import pass_sums, update_policy
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.targets import divergence_from_targets

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
]
GAME = "CookingWorldText-v0?num_locations=1&num_ingredients=1&max_episode_steps=2"


def settings(tiny_model, folder, **options):
    played = {"environments": (GAME,), "kl_weight": 0.0, "temperature": 20.0, "episodes_per_step": 2, "dev_every": 0}
    return AggreVaTeConfig(**{"folder": str(folder), "model": tiny_model, **played, **options})


def test_it_learns_from_the_steps_that_a_win_would_take_after_each_candidate(tiny_model, tmp_path, monkeypatch):
    config = settings(tiny_model, tmp_path, episodes_per_iteration=2, epochs=16)
    actor = Actor(tiny_model, temperature=20.0)
    with experts_of(config) as experts:
        trajectories = play_with_costs(experts, config, actor, Progress())
    env = gym.make("CookingWorldText-v0", num_locations=1, num_ingredients=1, expert="replan")
    for trajectory in trajectories:
        env.reset(seed=trajectory.episode.seed)
        for step, taken, steps in zip(trajectory.episode.steps, trajectory.actions, trajectory.costs, strict=True):
            action = step.decision.action
            looks = env.unwrapped.looks_further(action)
            assert steps[taken] == (min(steps) if looks else env.unwrapped.plan_steps(action))
            assert max(steps) > min(steps), "steps of a plan, and others"
            env.step(action)
    monkeypatch.setattr(Actor, "reference", None)  # kl has no weight, so the reference is not run
    batch = make_batch(config, actor, trajectories)
    objective = functools.partial(divergence_from_targets, batch.targets)
    segments = [segment for episode in batch.segments for segment in episode]
    with torch.no_grad():
        before = pass_sums(actor, batch, segments, objective)["policy_loss"] / len(batch.targets)
    metrics = update_policy(config, actor, torch.optim.AdamW(actor.parameters, 1e-2), Progress(), batch, objective)
    assert metrics.keys() == {"policy_loss", "entropy", "grad_norm"}
    assert metrics["policy_loss"] < 0.9 * before, "nearer to the target probabilities"


def test_a_run_goes_on_and_its_record_says_how_it_was_made(tiny_model, tmp_path):
    game = GAME.replace("steps=2", "steps=1")
    config = settings(tiny_model, tmp_path, environments=(game,), episodes_per_iteration=1, epochs=1, kl_weight=0.1, iterations=1)
    train(config)
    folder = train(
        settings(tiny_model, tmp_path, environments=(game,), episodes_per_iteration=1, epochs=1, kl_weight=0.1, iterations=2)
    )
    record = json.loads((folder / "training.json").read_text())
    assert record["made_by"]["aggrevate"]["cost_temperature"] == 0.25 and record["asked"]["mode"] == "choose"
    assert [line["iteration"] for line in record["curve"]] == [1, 2]
    assert all(line["rollout_gap"] < 1e-3 and abs(line["kl"]) < 1e-3 for line in record["curve"])


def test_only_games_whose_expert_counts_its_steps_are_taken(tiny_model, tmp_path):
    for names in ((), ("red", "green")):
        config = settings(tiny_model, tmp_path, environments=(GOTO,), interchangeable=names)
        with pytest.raises(UsageError, match=r"environments: expected TextWorldExpress's games, .* got 'BabyAIText"):
            train(config)


def test_a_step_more_divides_the_odds_and_what_is_never_drawn_has_a_floor(tiny_model, tmp_path):
    log_probs = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.5, 0.5, 0.0]]).log()
    steps = torch.tensor([[4.0, 3.0, math.inf], [math.inf, 2.0, 2.0], [math.inf, math.inf, math.inf]])
    targets = target_probabilities(log_probs, steps, 0.5, 0.0)
    assert float(targets[0, 0] / targets[0, 1]) == pytest.approx(9 * math.exp(-2))
    assert targets[1].tolist() == pytest.approx([0.0, 0.6, 0.4]) and targets[2].tolist() == pytest.approx([0.5, 0.5, 0.0])
    floored = target_probabilities(log_probs, steps, 0.5, 0.1)
    assert float(floored[0, 0] / floored[0, 1]) == pytest.approx((0.81 + 0.05) / (0.09 + 0.05) * math.exp(-2))
    for name, value in (("least_probability", 0.6), ("cost_temperature", 0)):
        with pytest.raises(UsageError, match=f"{name}: expected a number .*; got {value}"):
            settings(tiny_model, tmp_path, **{name: value})


class Failing(CookingWorldEnv):
    """A game whose expert fails in some levels."""

    failing = (1,)
    level_seed = None

    def reset(self, *, seed=None, options=None):
        self.level_seed = seed
        return super().reset(seed=seed, options=options)

    def plan_steps(self, action):
        if self.level_seed in self.failing:
            raise EngineError("the expert has no plan")
        return super().plan_steps(action)


@pytest.mark.filterwarnings("ignore:.*the expert needs")
def test_episodes_in_which_the_expert_fails_are_told_and_not_learnt_from(tiny_model, tmp_path, caplog, monkeypatch):
    gym.register("Failing-v0", entry_point=Failing, max_episode_steps=1)
    options = {
        "environments": ("Failing-v0?num_locations=1&num_ingredients=1",),
        "episodes_per_iteration": 2,
        "epochs": 1,
        "iterations": 1,
    }
    try:
        with caplog.at_level("WARNING"):
            train(settings(tiny_model, tmp_path / "run", **options))
        assert "iteration 1: 1 of 2 episodes ended in an error; of Failing-v0, seed 1: EngineError: the expert" in caplog.text
        (line,) = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
        assert (line["episodes"], line["failed"]) == (1, 1)
        monkeypatch.setattr(Failing, "failing", (0, 1))
        with pytest.raises(RunError, match="iteration 1: 2 of 2 episodes ended in an error"):
            train(settings(tiny_model, tmp_path / "all", **options))
    finally:
        del gym.registry["Failing-v0"]
