"""Trackers of training metrics, besides the file ``metrics.jsonl``: those that transformers and accelerate both support."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Literal, get_args

from gym_text.errors import MissingDependencyError, check_choice, import_extra

Tracker = Literal["none", "tensorboard", "wandb", "trackio", "mlflow", "comet_ml", "swanlab", "clearml", "dvclive"]
TRACKERS: tuple[str, ...] = get_args(Tracker)


def check_tracker(name: str) -> None:
    """Raise an error unless a tracker is known and its package is installed."""
    check_choice("report_to", name, TRACKERS)
    if name != "none" and find_spec(name) is None:
        raise MissingDependencyError(f"report_to: expected a tracker that is installed; got {name!r}. Run: pip install {name}")


def start_tracker(name: str, folder: str, settings: Mapping[str, Any]) -> Callable[[Mapping[str, float], int], None]:
    """Start a tracker; return the function that takes metrics and the number of the iteration.

    Args:
        name: The tracker. With ``none`` the function that is returned does nothing.
        folder: Run folder; tensorboard writes into it.
        settings: Settings of the run, which the tracker shows.
    """
    if name == "none":
        return lambda metrics, step: None
    import_extra("accelerate", "train")
    kind: Any = importlib.import_module("accelerate.tracking").LOGGER_TYPE_TO_CLASS[name]
    tracker = kind("tracker", folder) if kind.requires_logging_directory else kind("gym-text")
    tracker.start()
    plain = {key: value if isinstance(value, int | float | str) else str(value) for key, value in settings.items()}
    tracker.store_init_configuration(plain)

    def log(metrics: Mapping[str, float], step: int) -> None:
        tracker.log(dict(metrics), step=step)
        if name == "tensorboard":
            tracker.writer.flush()

    return log
