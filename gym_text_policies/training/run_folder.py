"""The folder of a training run: whose it is, metrics, checkpoints, the best weights, and at the end the adapter."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import import_extra
from gym_text_policies.files.folders import replace_folder, restore_folders
from gym_text_policies.files.run_folders import RunFolder, write_atomically
from gym_text_policies.training.model import saving
from gym_text_policies.training.model.lora import environment_record, load_weights
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.options import TrainingOptions

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

_logger = logging.getLogger(__name__)
_MAY_CHANGE = (
    "folder",
    "gradient_checkpointing",
    "compiled",
    "report_to",
    "tokens_per_pass",
    "iterations",
    "max_steps",
    "save_steps",
)
"""Settings that may change when a run is continued."""


@contextlib.contextmanager
def claim(config: TrainingOptions) -> Iterator[None]:
    """Lock a run folder while the block runs, and check that the folder belongs to this run.

    Raises:
        UsageError: If the folder belongs to another run, or to a run with other settings.
        StoreError: If another process uses the folder.
        KeyboardInterrupt: After Ctrl-C; the message says which checkpoint is kept.
    """
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _MAY_CHANGE}
    with RunFolder(config.folder, {"run": config.algorithm, **settings}) as folder:
        restore_folders(folder.path)
        try:
            yield
        except KeyboardInterrupt:
            newest = saving.newest_checkpoint(folder.path)
            kept = f"The checkpoint {newest} is kept; the same command goes on from there."
            raise KeyboardInterrupt(kept if newest else f"Nothing is kept: {folder.path} has no checkpoint yet.") from None


def add_metrics(progress: Progress, metrics: dict[str, float]) -> None:
    """Log the metrics of an iteration, and add them to the learning curve."""
    progress.curve.append(metrics)
    _logger.info("%s", json.dumps(metrics))


def save_progress(config: TrainingOptions, actor: Actor, optimizer: Optimizer, progress: Progress, record: dict[str, Any]) -> None:
    """Save the metrics, a checkpoint, and the weights as the best ones if they have won more of the dev fold than any before."""
    folder = Path(config.folder)
    success = progress.curve[-1].get("dev_success", -1.0)
    if success > progress.best_success:
        progress.best_success = success
        replace_folder(folder / "best", lambda target: saving.save_weights(actor, target, record))
    write_atomically(folder / "metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in progress.curve))
    saving.save_checkpoint(folder, actor, optimizer, progress, record)


def save_result(config: TrainingOptions, actor: Actor, progress: Progress, record: dict[str, Any], **origin: Any) -> Path:
    """Save an adapter with a record of its training, and return its folder.

    The adapter has the weights that won most of the dev fold, or the last weights if the dev fold was not played. `record` says how
    the model is prompted, `origin` what the record says beside the settings about how the adapter was made.
    """
    result, best = Path(config.folder) / "adapter", Path(config.folder) / "best"
    if best.exists():
        load_weights(actor.model, best)
    made_by = {config.algorithm: dataclasses.asdict(config), **origin, "ran_on": environment_record()}
    saving.save_adapter(actor.model, result, {**record, "made_by": made_by, "curve": progress.curve})
    return result


@contextlib.contextmanager
def tracking(config: TrainingOptions) -> Iterator[Callable[[Mapping[str, float], int], None]]:
    """Start the tracker of a run; yield the function that takes metrics and the number of the iteration."""
    if config.report_to == "none":
        yield lambda metrics, step: None
        return
    accelerate: Any = import_extra("accelerate", "train")
    tracker = accelerate.Accelerator(log_with=config.report_to, project_dir=config.folder)
    settings = {
        name: value if isinstance(value, int | float | str) else str(value) for name, value in dataclasses.asdict(config).items()
    }
    tracker.init_trackers("gym-text", settings)
    try:
        yield lambda metrics, step: tracker.log(dict(metrics), step=step)
    finally:
        tracker.end_training()
