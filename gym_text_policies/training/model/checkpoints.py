"""Checkpoints of on-policy training: weights and optimiser in safetensors, counters in JSON.

A checkpoint is written whole or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import UsageError
from gym_text_policies.files.folders import replace_folder, whole_folders
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.training.model.lora import load_weights
from gym_text_policies.training.model.optim import as_stored, flat_state
from gym_text_policies.training.model.saving import adapter_of, write_files, write_tensors

if TYPE_CHECKING:
    import torch

    from gym_text_policies.training.model.actor_critic import Actor

_VALUE_HEAD = "value_head.safetensors"


@dataclass
class Progress:
    """How far a run is."""

    iteration: int = 0
    """Iterations that are done."""
    best_success: float = -1.0
    """Highest success in the dev fold so far."""
    episodes: int = 0
    """Number of training episodes so far, without those that ended in an error."""
    minutes: float = 0.0
    """Time of play and learning, without the dev fold."""

    @property
    def title(self) -> str:
        """Name of the present iteration, for messages."""
        return f"iteration {self.iteration + 1}"


def save_metrics(folder: Path, metrics: Mapping[str, float]) -> None:
    """Append an iteration's line of metrics. Lines of this and later iterations, left by a killed run, are removed before."""
    log = folder / "metrics.jsonl"
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    kept = [line for line in lines if json.loads(line)["iteration"] < metrics["iteration"]]
    write_atomically(log, "\n".join([*kept, json.dumps(metrics)]) + "\n")


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the metrics of all iterations."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def save_checkpoint(
    folder: Path, actor: Actor, optimizer: torch.optim.Optimizer, progress: Progress, record: Mapping[str, Any]
) -> None:
    """Save everything that the run needs to go on, and remove the checkpoint before.

    Args:
        folder: Folder of the run.
        actor: The model.
        optimizer: The optimiser of the model's parameters.
        progress: How far the run is.
        record: How the model is prompted. So the checkpoint is an adapter that can play.

    Raises:
        RunError: If a weight is not finite; the checkpoint before is kept.
        StoreError: If the checkpoint cannot be written; the checkpoint before is kept.
    """

    def save(target: Path) -> None:
        save_weights(actor, target, record)
        moments = {
            f"{number}.{name}": tensor
            for number, values in optimizer.state_dict()["state"].items()
            for name, tensor in flat_state(values)
        }
        write_tensors(moments, target / "optimizer.safetensors")
        write_atomically(target / "state.json", json.dumps(dataclasses.asdict(progress)) + "\n")

    replace_folder(folder / f"checkpoint-{progress.iteration}", save)
    for old in folder.glob("checkpoint-*"):
        if old.name != f"checkpoint-{progress.iteration}":
            shutil.rmtree(old)


def load_checkpoint(folder: Path, actor: Actor, optimizer: torch.optim.Optimizer) -> Progress | None:
    """Load the newest checkpoint and return how far the run was, or None if there is no checkpoint.

    Raises:
        UsageError: If the checkpoint is not complete.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    saved = whole_folders(folder, "checkpoint-*")
    if not saved:
        return None
    path = max(saved, key=lambda path: int(path.name.partition("-")[2]))
    try:
        counters = json.loads((path / "state.json").read_text("utf-8"))
        progress = Progress(**counters)
        load_weights(actor.model, path)
        if hasattr(actor, "value_head"):
            actor.value_head.load_state_dict(load_file(path / _VALUE_HEAD))
        moments = load_file(path / "optimizer.safetensors")
    except (OSError, ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
        raise UsageError(f"{path}: expected a whole checkpoint; got {error}. Remove it to begin anew.") from error
    state = optimizer.state_dict() | {"state": {}}
    for name, tensor in moments.items():
        number, _, kind = name.partition(".")
        state["state"].setdefault(int(number), {})[kind] = as_stored(tensor)
    optimizer.load_state_dict(state)
    return progress


def save_weights(actor: Actor, folder: Path, record: Mapping[str, Any]) -> None:
    """Save the adapter in full precision and its record, and the value head if the actor has one."""
    write_files(folder, *adapter_of(actor.model), record)
    if hasattr(actor, "value_head"):
        write_tensors(actor.value_head.state_dict(), folder / _VALUE_HEAD)
