"""The table: a row for each policy in an environment, with intervals, as figures, text cells and Markdown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gym_text_policies.records import Episode, Outcome

_MEASURES = ("total_reward", "length", "invalid", "tokens_in", "tokens_out", "seconds", "cost")


@dataclass(frozen=True, slots=True)
class Summary:
    """An episode without its steps."""

    key: str
    seed: int
    outcome: Outcome
    error: str | None
    total_reward: float
    length: int
    invalid: int
    tokens_in: int
    tokens_out: int
    seconds: float
    cost: float

    @classmethod
    def of(cls, episode: Episode) -> Summary:
        """Return the summary of an episode."""
        return cls(**{field.name: getattr(episode, field.name) for field in dataclasses.fields(cls)})


def labels(folder: Path) -> dict[str, str]:
    """Return the row names of a benchmark folder, by the key of an episode. A row is known by one of its episodes."""
    try:
        found = json.loads((folder / "table.json").read_text("utf-8"))["labels"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(key): str(label) for key, label in found.items()} if isinstance(found, dict) else {}


def row(environment: str, policy: str, episodes: Iterable[Episode | Summary]) -> dict[str, Any]:
    """Return the figures of one row. An episode that ended in an error counts in `error` and in no mean."""
    outcomes = {"won": 0, "lost": 0, "truncated": 0, "error": 0}
    columns: dict[str, list[float]] = {name: [] for name in _MEASURES}
    for episode in episodes:
        outcomes[episode.outcome] += 1
        if episode.error is None:
            for name, values in columns.items():
                values.append(getattr(episode, name))
    played = len(columns["length"])
    steps = sum(columns["length"])
    return {
        "environment": environment,
        "policy": policy,
        "episodes": sum(outcomes.values()),
        "return": mean(columns["total_reward"]),
        "return_interval": t_interval(columns["total_reward"]),
        "success": outcomes["won"] / played if played else None,
        "success_interval": wilson_interval(outcomes["won"], played),
        **outcomes,
        "invalid": sum(columns["invalid"]) / steps if steps else None,
        "length": mean(columns["length"]),
        "tokens_in": mean(columns["tokens_in"]),
        "tokens_out": mean(columns["tokens_out"]),
        "seconds_per_decision": sum(columns["seconds"]) / steps if steps else None,
        "cost": mean(columns["cost"]),
    }


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None of no values."""
    return float(np.mean(values)) if values else None


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's 95 % interval of the mean, or None of fewer than two values."""
    if len(values) < 2:
        return None
    from scipy import stats

    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def wilson_interval(successes: int, trials: int) -> tuple[float, float] | None:
    """Return Wilson's 95 % interval of a rate, or None without trials."""
    if trials == 0:
        return None
    from scipy import stats

    interval = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


HEADER = (
    "environment", "policy", "episodes", "return [95 %]", "success [95 %]", "won / lost / truncated / error", "invalid", "length",
    "tokens in", "tokens out", "s / decision",
)  # fmt: skip
NOTES = """
Return: mean and Student's 95 % interval. Success: rate and Wilson's 95 % interval. Episodes that ended in an error count in
that column alone. Invalid: share of steps whose answer could not be used or whose action the game did not understand.
Tokens: mean per episode; in `choose` the candidates are read (in), not generated. Seconds: a decision's share of its batch's time.
"""


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table. The columns are aligned in plain text too."""
    table = [HEADER, *([cell.replace("|", "\\|") for cell in cells(row)] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADER))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row's figures as text, one for each column of `HEADER`."""
    return (
        row["environment"],
        row["policy"],
        str(row["episodes"]),
        number(row["return"], ".2f") + interval(row["return_interval"], ".2f"),
        number(row["success"], ".2f") + interval(row["success_interval"], ".2f"),
        " / ".join(str(row[outcome]) for outcome in ("won", "lost", "truncated", "error")),
        number(row["invalid"], ".0%"),
        number(row["length"], ".1f"),
        number(row["tokens_in"], ".0f"),
        number(row["tokens_out"], ".0f"),
        number(row["seconds_per_decision"], ".2g"),
    )


def number(value: float | None, form: str) -> str:
    """Return a number in a format; None is a dash."""
    return "-" if value is None else format(value, form)


def interval(bounds: tuple[float, float] | None, form: str) -> str:
    """Return an interval in brackets; None is an empty text."""
    return "" if bounds is None else f" [{bounds[0]:{form}}, {bounds[1]:{form}}]"
