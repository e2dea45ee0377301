"""Agents of other libraries beside ours: the committed result of ``benchmarks/stable_baselines.py``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PLACES = (
    Path(__file__).parent / "stable_baselines.json",
    Path(__file__).parents[2] / "benchmarks" / "results" / "stable_baselines.json",
)
"""Where the result lies: in an installed package, and in a checkout."""

_COLUMNS = ("environment", "return_interval", "success_interval", "invalid", "tokens_in", "tokens_out", "seconds_per_decision")


@dataclass(frozen=True)
class Baseline:
    """One agent's figures in an environment."""

    policy: str
    row: Mapping[str, Any]
    """Its row of the table; a column that was not recorded is missing."""

    @property
    def whole_row(self) -> dict[str, Any]:
        """Its row, with a dash or None for what was not recorded."""
        return (
            dict.fromkeys(_COLUMNS) | dict.fromkeys(("lost", "truncated", "error"), "-") | dict(self.row) | {"policy": self.policy}
        )

    @property
    def figures(self) -> dict[str, tuple[float, float | None]]:
        """Mean and standard error by the name of the measure; only of the success rate the error is known."""
        success, episodes = self.row["success"], self.row["episodes"]
        return {
            "success rate": (success, math.sqrt(success * (1 - success) / (episodes - 1))),
            "return": (self.row["return"], None),
            "length, steps": (self.row["length"], None),
        }


def baselines(game: Mapping[str, Any]) -> list[Baseline]:
    """Return the agents of stable-baselines3 that were trained for this environment."""
    path = next((path for path in _PLACES if path.is_file()), None)
    if path is None:
        return []
    record = json.loads(path.read_text("utf-8"))
    played = {"id": "BabyAIText-v0", "kwargs": {"task": record["config"]["task"], "fold": "test"}}
    if dict(game) != played | {"max_episode_steps": None, "wrappers": []}:
        return []
    rows = [row for row in record["rows"] if row["policy"].startswith("PPO")]
    return [Baseline(f"stable-baselines3 {row['policy']}", row) for row in rows]
