"""Adapters and checkpoints as folders: weights and optimiser in safetensors, everything else in JSON.

Only finite numbers are learnt from and written. A folder appears under its name only when it is complete.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gym_text.errors import RunError, UsageError, import_extra
from gym_text_policies.backends.local.adapters import BASE, CONFIG, RECORD, TEMPLATE, WEIGHTS
from gym_text_policies.files.folders import replace_folder, whole_folders, writing_tensors
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.training.model.lora import load_weights

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

_CRITIC, _MOMENTS, _STATE = "critic.safetensors", "optimizer.safetensors", "state.json"


@dataclass
class Progress:
    """How far a training run is."""

    iteration: int = 0
    """Iterations that are done; in fine-tuning, steps of the optimiser."""
    best_success: float = -1.0
    """Highest success in the dev fold so far."""
    episodes: int = 0
    """Number of training episodes so far, without those that ended in an error."""
    minutes: float = 0.0
    """Time of play and learning, without the dev fold."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """Metrics of each iteration, the lines of ``metrics.jsonl``."""

    @property
    def title(self) -> str:
        """Name of the present iteration, for messages."""
        return f"iteration {self.iteration + 1}"


def check_finite(where: str, **values: Any) -> None:
    """Raise `RunError` if a number, array or tensor has NaN or infinity; `where` says when, or in which file."""
    for name, value in values.items():
        numbers = np.asarray(value.detach().float().cpu() if hasattr(value, "detach") else value, dtype=float)
        if not np.isfinite(numbers).all():
            raise RunError(
                f"{where}: expected finite numbers; {name} is {numbers[~np.isfinite(numbers)].flat[0]}. It is not learnt from and "
                "not written, and what was saved before is kept. Look at the rewards or the data, or take a lower learning rate."
            )


# ---------------------------------------------------------------- adapters


def save_adapter(model: Any, folder: str | Path, record: Mapping[str, Any]) -> None:
    """Save an adapter in 16 bits as a folder, which is written whole or not at all; see `write_adapter`."""
    torch = import_extra("torch", "train")
    replace_folder(Path(folder), lambda target: write_adapter(model, target, record, torch.float16))


def write_adapter(model: Any, folder: Path, record: Mapping[str, Any], dtype: Any = None) -> None:
    """Write an adapter's weights, its configuration, its record, and the chat template if it replaces the base's.

    The configuration names the base as the user does. The record says how the model is prompted, and how the adapter came about.
    `dtype` is torch's number format for the weights; None: full precision.

    Raises:
        RunError: If a weight is not finite.
        StoreError: If a file cannot be written.
    """
    weights = import_extra("peft", "train").get_peft_model_state_dict(model)
    write_tensors({key: tensor.to(dtype or tensor.dtype) for key, tensor in weights.items()}, folder / WEIGHTS)
    config = model.peft_config["default"].to_dict() | {"inference_mode": True, "base_model_name_or_path": model.base_name}
    config["target_modules"] = sorted(config["target_modules"])
    plain = {key: value for key, value in config.items() if isinstance(value, str | int | float | bool | list | dict | None)}
    write_atomically(folder / CONFIG, json.dumps(plain, indent=2, sort_keys=True, default=str) + "\n")
    if template := getattr(model, "chat_template", ""):
        write_atomically(folder / TEMPLATE, template)
    base = {BASE: content} if (content := getattr(model, "base_content", "")) else {}
    write_atomically(folder / RECORD, json.dumps({**record, **base}, indent=2) + "\n")


def write_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Write tensors as safetensors. The errors are those of `write_adapter`."""
    from safetensors.torch import save_file

    check_finite(path.name, **tensors)
    with writing_tensors(path):
        save_file({key: tensor.contiguous().cpu() for key, tensor in tensors.items()}, path)


# ---------------------------------------------------------------- checkpoints


def save_checkpoint(folder: Path, actor: Actor, optimizer: Optimizer, progress: Progress, record: Mapping[str, Any]) -> None:
    """Save everything that a run needs to go on, and remove the checkpoint before. A checkpoint is an adapter that can play.

    Raises:
        RunError: If a weight is not finite; the checkpoint before is kept.
        StoreError: If the checkpoint cannot be written; the checkpoint before is kept.
    """

    def save(target: Path) -> None:
        save_weights(actor, target, record)
        states = optimizer.state_dict()["state"]
        moments = {f"{number}.{name}": tensor for number, state in states.items() for name, tensor in state.items()}
        write_tensors(moments, target / _MOMENTS)
        write_atomically(target / _STATE, json.dumps(dataclasses.asdict(progress)) + "\n")

    replace_folder(folder / f"checkpoint-{progress.iteration}", save)
    for old in folder.glob("checkpoint-*"):
        if old.name != f"checkpoint-{progress.iteration}":
            shutil.rmtree(old)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint of a run, or None if there is none."""
    return max(whole_folders(folder, "checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]), default=None)


def load_checkpoint(folder: Path, actor: Actor, optimizer: Optimizer) -> Progress:
    """Load the newest checkpoint, if there is one, and return how far the run is.

    Raises:
        UsageError: If the checkpoint is not complete.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = newest_checkpoint(folder)
    if path is None:
        return Progress()
    try:
        progress = Progress(**json.loads((path / _STATE).read_text("utf-8")))
        load_weights(actor.model, path)
        if hasattr(actor, "critic"):
            actor.critic = type(actor.critic)(**load_file(path / _CRITIC))
        moments = load_file(path / _MOMENTS)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
        raise UsageError(f"{path}: expected a whole checkpoint; got {error}. Remove it to begin anew.") from error
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in moments.items():
        number, _, kind = name.partition(".")
        state.setdefault(int(number), {})[kind] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    return progress


def save_weights(actor: Actor, folder: Path, record: Mapping[str, Any]) -> None:
    """Save the adapter in full precision and its record, and the critic if the actor has one."""
    write_adapter(actor.model, folder, record)
    if hasattr(actor, "critic"):
        write_tensors(actor.critic._asdict(), folder / _CRITIC)
