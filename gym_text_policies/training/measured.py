"""The test fold at the end of training: the adapter that was saved plays it once, as `gym-text bench` would."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import check_int
from gym_text_policies.backends.local.adapters import RECORD, record_of
from gym_text_policies.environments import check_no_fold
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.run import bench
from gym_text_policies.run.play import check_some_played
from gym_text_policies.training.model.processes import is_first

TEST = "test"
"""Folder of a run, and key of an adapter's record."""
_FIGURES = ("environment", "episodes", "success", "success_interval", "return", "return_interval", "length", "invalid", "error")
"""Figures of bench's table that the record keeps."""


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions:
    """What the adapter plays when training is done."""

    test_environments: tuple[str, ...] = ()
    """Environments whose test fold the adapter plays when training is done: once, with its most probable actions, as gym-text bench
    plays it. The folder test in the run folder keeps episodes and tables, and the adapter's record keeps the figures."""
    test_episodes: int = 100
    """Episodes of each environment's test fold."""

    def __post_init__(self) -> None:
        check_no_fold("test_environments", self.test_environments, "test")
        check_int("test_episodes", self.test_episodes, 1, 1_000_000)


def is_measured(options: MeasuredOptions, adapter: Path) -> bool:
    """Return whether an adapter's record has the figures that the options ask for."""
    figures = {row["environment"]: row["episodes"] for row in record_of(str(adapter)).get(TEST, ())}
    return figures == dict.fromkeys(options.test_environments, options.test_episodes)


def measured(options: MeasuredOptions, folder: str, adapter: Path, backend: dict[str, Any]) -> Path:
    """Let an adapter play the test fold, add the figures to its record, and return its folder. Only the first process plays.

    Episodes that the folder has already are not played again. The model that was trained should be released before.

    Args:
        options: What to play; with no environments nothing is done.
        folder: The run folder.
        adapter: The adapter's folder.
        backend: Options of the adapter's backend.

    Raises:
        RunError: If all episodes ended in an error. The adapter is kept.
    """
    if not options.test_environments or not is_first():
        return adapter
    gc.collect()  # the model that was trained
    count, where = options.test_episodes, Path(folder) / TEST
    players: dict[str, Any] = {"models": (str(adapter),), "baselines": ("none",), "options": backend}
    config = bench.BenchConfig(
        folder=str(where), environments=options.test_environments, episodes=count, llm_episodes=count, fold="test", **players
    )
    bench.run(config)
    rows = json.loads((where / "table.json").read_text("utf-8"))["rows"]
    check_some_played(where, rows)
    record = record_of(str(adapter)) | {TEST: [{name: row[name] for name in _FIGURES} for row in rows]}
    write_atomically(adapter / RECORD, json.dumps(record, indent=2) + "\n")
    return adapter
