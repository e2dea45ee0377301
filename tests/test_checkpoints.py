"""Checkpoints of on-policy training."""

import json

import pytest
import torch

from gym_text import UsageError
from gym_text_policies.training.actor_critic import Actor, ActorCritic
from gym_text_policies.training.checkpoints import State, load_checkpoint, replace_folder, save_checkpoint, save_metrics


def stepped(actor, parameters, steps=1):
    """Return an optimiser that has changed all parameters."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    for _ in range(steps):
        sum((parameter + 1).square().sum() for parameter in parameters).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


@pytest.mark.parametrize("kind", [Actor, ActorCritic])
def test_weights_optimiser_and_counters_come_back_and_only_the_newest_checkpoint_is_kept(tiny_model, tmp_path, kind):
    actor = kind(tiny_model)
    heads = list(actor.value_head.parameters()) if kind is ActorCritic else []
    optimizer = stepped(actor, [*actor.parameters, *heads], 2)
    for iteration in (1, 2):
        save_checkpoint(tmp_path, actor, optimizer, State(iteration, 7, 0.1, 0.5))
    (tmp_path / "checkpoint-3.partial").mkdir()  # left by a process that was killed while it wrote
    assert sorted(path.name for path in tmp_path.glob("checkpoint-?")) == ["checkpoint-2"]
    other = kind(tiny_model)
    others = [*other.parameters, *(other.value_head.parameters() if kind is ActorCritic else [])]
    again = torch.optim.AdamW(others, lr=1e-2)
    assert load_checkpoint(tmp_path, other, again) == State(2, 7, 0.1, 0.5)
    assert all(torch.equal(a, b) for a, b in zip([*actor.parameters, *heads], others, strict=True))
    for number, moments in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, again.state_dict()["state"][number][name]) for name, value in moments.items())
    weights = tmp_path / "checkpoint-2/optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(UsageError, match="expected a whole checkpoint"):
        load_checkpoint(tmp_path, other, again)


def test_an_iteration_that_is_learnt_anew_replaces_its_metrics_and_later_ones(tmp_path):
    for iteration, value in ((0, 0.1), (1, 0.2), (2, 0.3), (1, 0.4)):
        save_metrics(tmp_path, {"iteration": iteration, "return": value})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["iteration"], line["return"]) for line in lines] == [(0, 0.1), (1, 0.4)]


def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best/old").touch()

    def fails(folder):
        (folder / "new").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_folder(tmp_path / "best", fails)
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["old"]
    assert load_checkpoint(tmp_path, None, None) is None
