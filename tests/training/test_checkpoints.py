"""Checkpoints of on-policy training."""

import pytest
import torch

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text_policies.data.rows import prompt_record
from gym_text_policies.policies.config import TRAINED, settings_of
from gym_text_policies.training.model.actor_critic import Actor, ActorCritic, Critic
from gym_text_policies.training.model.saving import Progress, load_checkpoint, save_checkpoint

RECORD = prompt_record(TRAINED)


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
    if kind is ActorCritic:
        actor.critic = Critic(torch.rand_like(actor.critic.weight), torch.tensor(0.5).double())
    optimizer = stepped(actor, actor.parameters, 2)
    for iteration in (1, 2):
        save_checkpoint(tmp_path, actor, optimizer, Progress(iteration, 0.5, 7, 0.1, [{"loss": 0.1}]), RECORD)
    (tmp_path / "checkpoint-3.partial").mkdir()  # left by a process that was killed while it wrote
    assert sorted(path.name for path in tmp_path.glob("checkpoint-?")) == ["checkpoint-2"]
    other = kind(tiny_model)
    again = torch.optim.AdamW(other.parameters, lr=1e-2)
    assert load_checkpoint(tmp_path, other, again) == Progress(2, 0.5, 7, 0.1, [{"loss": 0.1}])
    critics = [one.critic if kind is ActorCritic else () for one in (actor, other)]
    assert all(torch.equal(a, b) for a, b in zip([*actor.parameters, *critics[0]], [*other.parameters, *critics[1]], strict=True))
    for number, moments in optimizer.state_dict()["state"].items():
        assert all(torch.equal(value, again.state_dict()["state"][number][name]) for name, value in moments.items())
    weights = tmp_path / "checkpoint-2/optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(UsageError, match="expected a whole checkpoint"):
        load_checkpoint(tmp_path, other, again)


def test_a_checkpoint_is_an_adapter_that_is_asked_as_it_is_trained(tiny_model, tmp_path):
    actor = Actor(tiny_model)
    optimizer = stepped(actor, actor.parameters)
    save_checkpoint(tmp_path, actor, optimizer, Progress(1), RECORD)
    assert settings_of(str(tmp_path / "checkpoint-1")) == RECORD["asked"]
    other = Actor(str(tmp_path / "checkpoint-1"))
    assert all(torch.equal(a, b) for a, b in zip(actor.parameters, other.parameters, strict=True))


def test_weights_that_are_not_finite_are_not_written_and_the_checkpoint_before_them_stays(tiny_model, tmp_path):
    actor = Actor(tiny_model)
    optimizer = stepped(actor, actor.parameters)
    save_checkpoint(tmp_path, actor, optimizer, Progress(1), RECORD)
    before = [parameter.detach().clone() for parameter in actor.parameters]
    actor.parameters[3].data[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"adapter_model\.safetensors: expected finite numbers; .*lora_B.* is nan"):
        save_checkpoint(tmp_path, actor, optimizer, Progress(2), RECORD)
    assert load_checkpoint(tmp_path, actor, optimizer) == Progress(1)
    assert all(torch.equal(a, b) for a, b in zip(actor.parameters, before, strict=True))
