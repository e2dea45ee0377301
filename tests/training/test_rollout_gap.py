"""A model learns on what it has played, or not at all."""

import dataclasses
import json
import math

import pytest
import torch
from training_data import with_random_adapter

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text_policies.records import Decision
from gym_text_policies.training import expert_iteration, grpo, ppo, rollout_gap
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.saving import Progress

pytestmark = [pytest.mark.usefixtures("one_thread", "corridor")]
ALGORITHMS = {
    ppo: ppo.PPOConfig(group_size=1),
    grpo: grpo.GRPOConfig(group_size=8, episodes_per_step=8, temperature=3.0),
    expert_iteration: expert_iteration.ExpertIterationConfig(),
}
PRIOR = {"left": 0.125, "right": 0.6, "stay": 0.15, "up": 0.125}


def settings(algorithm, tiny_model, folder, **options):
    usual = {"environments": ("Corridor-v0?length=1",), "episodes_per_iteration": 8, "dev_every": 0, "iterations": 1}
    return dataclasses.replace(ALGORITHMS[algorithm], **{"folder": str(folder), "model": tiny_model, **usual, **options})


@pytest.mark.parametrize("dtype", rollout_gap.LIMITS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_learns_by_other_weights_than_it_played_with_stops_and_keeps_nothing(
    algorithm, dtype, tiny_model, tmp_path, monkeypatch
):
    algorithm.run(settings(algorithm, tiny_model, tmp_path / "run", dtype=dtype))
    (line,) = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    name, _ = rollout_gap.LIMITS[dtype]
    smallest = {"float32": 1e-3, "bfloat16": 1e-5}[dtype]
    assert abs(json.loads(line)[name]) < smallest

    player = Actor.player

    def plays_then_changes(actor):
        backend = player(actor)
        with_random_adapter(actor.model)
        return backend

    monkeypatch.setattr(Actor, "player", plays_then_changes)
    monkeypatch.setitem(rollout_gap.LIMITS, dtype, (name, smallest))  # the small model's probabilities hardly depend on its adapter
    with pytest.raises(RunError, match=f"iteration 1: expected {name}, .* to be at most {smallest} in {dtype}; got "):
        algorithm.run(settings(algorithm, tiny_model, tmp_path / "other", dtype=dtype))
    assert not [*(tmp_path / "other").glob("checkpoint-*"), *(tmp_path / "other").glob("metrics.jsonl")]


@pytest.mark.parametrize("mixed", [{"uniform_share": 0.5}, {"uniform_share": 1.0}])
def test_the_prior_of_a_search_is_compared_with_learnings_probabilities_mixed_as_in_play(mixed, tiny_model, tmp_path):
    run = settings(expert_iteration, tiny_model, tmp_path / "run", **mixed)
    expert_iteration.run(run)
    (line,) = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["rollout_gap"] < 1e-4 and abs(json.loads(line)["rollout_kl"]) < 1e-5

    actor = Actor(tiny_model)
    played = expert_iteration.play_ahead(run, actor, Progress())
    with_random_adapter(actor.model)
    learnt = expert_iteration.learn(run, actor, torch.optim.AdamW(actor.parameters), Progress(), played)
    assert (learnt["rollout_gap"] > 1e-4) == (run.uniform_share != 1), "other weights show, unless they do not lead the search"

    decision, few = Decision("right", probabilities=PRIOR), {name: PRIOR[name] / 0.75 for name in ("right", "stay")}
    even = expert_iteration.share_of_each(dataclasses.replace(run, uniform_share=0.5), decision, few)
    model = torch.tensor([[2 * (PRIOR[name] - 0.5 / 4) for name in few]])
    found = expert_iteration.mixed(torch.tensor([[even]]), [0], (model / model.sum()).log()).exp()
    assert torch.allclose(found, torch.tensor([list(few.values())])), "left and up are valid, but no candidates"


def test_the_divergence_is_that_of_all_candidates_and_the_gap_that_of_the_action():
    played = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    learnt = torch.tensor([[0.25, 0.75, 0.0], [0.2, 0.3, 0.5]]).log()
    metrics = rollout_gap.gap_metrics(played, torch.tensor([0, 2]), learnt)
    assert metrics["rollout_gap"] == pytest.approx(math.log(2))
    assert metrics["rollout_kl"] == pytest.approx(0.5 * (0.5 * math.log(2) + 0.5 * math.log(2 / 3)))
    with pytest.raises(RunError, match="expected rollout_kl"):
        rollout_gap.check_gap("bfloat16", "iteration 1", {"rollout_kl": math.nan})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("strategy", "said"), [("reasoning", "a model whose answer is the action alone"), ("labels", "a model that compares the names")]
)
def test_a_strategy_whose_answers_are_not_learnt_is_refused_before_anything_is_loaded(algorithm, strategy, said, tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "training.json").write_text(json.dumps({"asked": {"mode": "choose", "strategy": strategy, "history": 0}}))
    with pytest.raises(UsageError, match=rf"^strategy '{strategy}': expected {said}"):
        algorithm.run(settings(algorithm, str(tmp_path), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
