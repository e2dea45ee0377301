"""Checkpoints of an actor and critic in training: weights, optimiser and counters, whole or not at all, in safetensors alone."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gym_text.errors import UsageError
from gym_text_policies.store import write_atomically

if TYPE_CHECKING:
    import torch

    from gym_text_policies.training.actor_critic import ActorCritic


@dataclass
class State:
    """What a run has to know, beside weights and optimiser, to go on."""

    iteration: int = 0
    seed: int = 0
    """Of the next episode."""
    kl_weight: float = 0.0
    best_success: float = -1.0


def save_checkpoint(
    folder: Path, learner: ActorCritic, optimizer: torch.optim.Optimizer, state: State, metrics: dict[str, float]
) -> None:
    """Save all that the run has to know to go on, whole or not at all; the one before it goes."""
    log = folder / "metrics.jsonl"
    lines = log.read_text("utf-8").splitlines()[: state.iteration - 1] if log.exists() else []
    write_atomically(log, "\n".join([*lines, json.dumps(metrics)]) + "\n")

    def save(target: Path) -> None:
        from safetensors.torch import save_file

        save_weights(learner, target)
        moments = {
            f"{number}.{name}": tensor.contiguous()
            for number, values in optimizer.state_dict()["state"].items()
            for name, tensor in values.items()
        }
        save_file(moments, target / "optimizer.safetensors")
        write_atomically(target / "state.json", json.dumps(dataclasses.asdict(state)) + "\n")

    replace_folder(folder / f"checkpoint-{state.iteration}", save)
    for old in folder.glob("checkpoint-*"):
        if old.name != f"checkpoint-{state.iteration}":
            shutil.rmtree(old)


def load_checkpoint(folder: Path, learner: ActorCritic, optimizer: torch.optim.Optimizer) -> State | None:
    """Load the newest checkpoint and return its state, or None where there is none.

    Raises:
        UsageError: If it is not whole.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from gym_text_policies.training.lora import load_weights

    found = [path for path in folder.glob("checkpoint-*") if not path.name.endswith(".partial")]
    if not found:
        return None
    path = max(found, key=lambda path: int(path.name.partition("-")[2]))
    try:
        state = State(**json.loads((path / "state.json").read_text("utf-8")))
        load_weights(learner.model, path)
        learner.head.load_state_dict(load_file(path / "value_head.safetensors"))
        moments = load_file(path / "optimizer.safetensors")
    except (OSError, ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
        raise UsageError(f"{path}: expected a whole checkpoint; got {error}. Remove it to begin anew.") from error
    saved = optimizer.state_dict()
    saved["state"] = {}
    for name, tensor in moments.items():
        number, _, kind = name.partition(".")
        saved["state"].setdefault(int(number), {})[kind] = tensor
    optimizer.load_state_dict(saved)
    return state


def save_weights(learner: ActorCritic, folder: Path) -> None:
    """Save adapter and head in full precision."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    weights = get_peft_model_state_dict(learner.model, adapter_name="default")
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "adapter_model.safetensors")
    save_file(learner.head.state_dict(), folder / "value_head.safetensors")


def replace_folder(folder: Path, save: Callable[[Path], None]) -> None:
    """Make a folder anew so that it is whole or the old one."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save(partial)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
