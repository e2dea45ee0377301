"""The folder of a training run: whose it is, metrics, checkpoints, the best weights, and at the end the adapter."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import import_extra
from gym_text_policies.data.rows import prompt_record
from gym_text_policies.files.folders import replace_folder, restore_folders
from gym_text_policies.files.run_folders import RunFolder, write_atomically
from gym_text_policies.records import Episode
from gym_text_policies.training.model import saving
from gym_text_policies.training.model.lora import environment_record, load_weights
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.options import OnPolicyConfig, TrainingOptions
from gym_text_policies.training.trajectories import play_dev_fold

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

_logger = logging.getLogger(__name__)


class Stopped(KeyboardInterrupt):
    """Ctrl-C in a training run. The message says which checkpoint is kept."""


@contextlib.contextmanager
def claim(run: str, config: TrainingOptions, free: Sequence[str]) -> Iterator[None]:
    """Lock a run folder while the block runs, and check that the folder belongs to this run.

    Args:
        run: Kind of the run.
        config: Settings of the run.
        free: Names of the settings that may change when the run is continued.

    Raises:
        UsageError: If the folder belongs to another run, or to a run with other settings.
        StoreError: If another process uses the folder.
        Stopped: After Ctrl-C.
    """
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in free}
    with RunFolder(config.folder, {"run": run, **settings}) as folder:
        restore_folders(folder.path)
        try:
            yield
        except KeyboardInterrupt:
            raise Stopped(_kept(folder.path)) from None


def _kept(folder: Path) -> str:
    """Return what a run that was stopped has kept."""
    newest = saving.newest_checkpoint(folder)
    if newest is None:
        return f"Nothing is kept: {folder} has no checkpoint yet."
    return f"The checkpoint {newest} is kept; the same command goes on from there."


def resume(config: OnPolicyConfig, actor: Actor, optimizer: Optimizer) -> Progress:
    """Load the last checkpoint, if there is one, and return how far the run is. A new run plays the dev fold first.

    Raises:
        UsageError: If the checkpoint is not complete.
    """
    progress = saving.load_checkpoint(Path(config.folder), actor, optimizer) or Progress()
    if config.dev_every and not progress.iteration:
        save_metrics(
            Path(config.folder), {"iteration": 0, "episodes": 0, "minutes": 0.0, "dev_success": _dev_success(config, actor)}
        )
    return progress


def end_iteration(
    config: OnPolicyConfig,
    actor: Actor,
    optimizer: Optimizer,
    progress: Progress,
    episodes: Sequence[Episode],
    metrics: dict[str, float],
) -> dict[str, float]:
    """Count an iteration, play the dev fold where it is due, and save a checkpoint; return all metrics of the iteration."""
    progress.iteration += 1
    progress.episodes += len(episodes)
    progress.minutes += (metrics["seconds_play"] + metrics["seconds_learn"]) / 60
    metrics = {
        "iteration": progress.iteration,
        "episodes": progress.episodes,
        "minutes": round(progress.minutes, 3),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "success": sum(episode.outcome == "won" for episode in episodes) / len(episodes),
        "length": sum(episode.length for episode in episodes) / len(episodes),
        "steps": sum(episode.length for episode in episodes),
        "failed": config.episodes_per_iteration - len(episodes),
        **metrics,
    }
    record = prompt_record(config.learner(actor))
    if config.dev_every and progress.iteration % config.dev_every == 0:
        metrics["dev_success"] = _dev_success(config, actor)
        if metrics["dev_success"] > progress.best_success:
            progress.best_success = metrics["dev_success"]
            replace_folder(Path(config.folder) / "best", lambda folder: saving.save_weights(actor, folder, record))
    save_metrics(Path(config.folder), metrics)
    saving.save_checkpoint(Path(config.folder), actor, optimizer, progress, record)
    return metrics


def save_result(config: OnPolicyConfig, actor: Actor) -> Path:
    """Save an adapter with a record of its training, and return its folder.

    The adapter has the weights that won most of the dev fold, or the last weights if the dev fold was not played.
    """
    result, best = Path(config.folder) / "adapter", Path(config.folder) / "best"
    if best.exists():
        load_weights(actor.model, best)
    made_by = {config.algorithm: dataclasses.asdict(config), "ran_on": environment_record()}
    curve = read_metrics(Path(config.folder))
    record = {**prompt_record(config.learner(actor)), "made_by": made_by, "curve": curve}
    saving.save_adapter(actor.model, result, record)  # this run may have saved an adapter after fewer iterations
    return result


def _dev_success(config: OnPolicyConfig, actor: Actor) -> float:
    """Return the share of the dev fold's episodes that the model wins."""
    won = play_dev_fold(actor.player(), config.environments, config.dev_episodes, config.learner(actor))
    return sum(won) / len(won)


def save_metrics(folder: Path, metrics: Mapping[str, float]) -> None:
    """Log an iteration's metrics, and append their line. Lines of this and later iterations, left by a killed run, are removed."""
    log = folder / "metrics.jsonl"
    kept = [line for line in read_metrics(folder) if line["iteration"] < metrics["iteration"]] if log.exists() else []
    write_atomically(log, "\n".join(map(json.dumps, [*kept, metrics])) + "\n")
    _logger.info("%s", json.dumps(metrics))


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the metrics of all iterations."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


@contextlib.contextmanager
def tracking(config: OnPolicyConfig) -> Iterator[Callable[[Mapping[str, float], int], None]]:
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
