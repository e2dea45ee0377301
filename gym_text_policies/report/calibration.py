"""What a policy's probabilities are worth, from stored episodes: calibration, the order of the options, latency, price.

A probability is judged where the policy gives each valid action one, there are two or more, and the expert's action is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gym_text_policies.files.json_data import is_finite
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.records import Episode
from gym_text_policies.report.table import number

BINS = 10
"""Bins of equal width for the probability of the most probable action."""
_LEAST = float(np.finfo(float).eps)
"""A smaller probability of the expert's action counts as this one, as in scikit-learn's ``log_loss``."""
FIGURES = (
    *("judged", "brier", "brier_uniform", "brier_won", "brier_not_won", "log_loss", "log_loss_uniform", "calibration_error"),
    *("same_choice", "variation", "seconds_median", "seconds_95", "cost_per_decision"),
)
"""Names of the figures of a row's probabilities."""
_HEADS = (
    *("environment", "policy", "decisions", "Brier (uniform)", "log loss (uniform)", "calibration error", "Brier: won / not"),
    *("other order: same choice", "other order: variation", "s / decision: median / 95 %", "$ / decision"),
)
ORDERS = "orders.json"
"""The file of a run folder that keeps what other orders of the options changed."""
NOTES = """
Decisions: those with two or more valid actions, a probability for each, and a known action of the expert. Brier: mean of the summed
squared differences from 1 for the expert's action and 0 for the others (0 to 2). Log loss: mean of -ln of the probability of the
expert's action. In parentheses: the same if all valid actions were equally probable. Calibration error: of the most probable action
(top label), in 10 bins of equal width. Won / not: the Brier score in episodes that were won, and in the others. Other order: the
model was asked again with its options in drawn orders; share of answers whose most probable action stayed, and mean total variation
from the first answer. Seconds: of a call, divided by its decisions.
"""


class Judged(NamedTuple):
    """A decision whose probabilities are known, in a state in which the expert's action is."""

    options: int
    """Number of valid actions."""
    expert: float
    """Probability of the expert's action."""
    top: float
    """Probability of the most probable action."""
    agrees: bool
    """Whether the most probable action is the expert's."""
    squares: float
    """Sum of all squared probabilities."""


def judged(episode: Episode) -> tuple[Judged, ...]:
    """Return the decisions of an episode that can be judged."""
    found = []
    for step in episode.steps:
        shares = step.decision.probabilities
        if shares and len(shares) > 1 and step.gold_action is not None:
            top = max(shares, key=shares.__getitem__)
            squares = sum(share * share for share in shares.values())
            found.append(Judged(len(shares), shares.get(step.gold_action, 0.0), shares[top], top == step.gold_action, squares))
    return tuple(found)


def brier(decisions: Sequence[Judged]) -> float | None:
    """Return the mean Brier score; None without decisions.

    >>> brier([Judged(2, 0.25, 0.75, False, 0.625)])
    1.125
    """
    return float(np.mean([one.squares - 2 * one.expert + 1 for one in decisions])) if decisions else None


def bins(decisions: Sequence[Judged]) -> list[tuple[float, float, int]]:
    """Return of each bin that is not empty: mean top probability, share of agreement with the expert, number of decisions."""
    top, agrees = (np.array([getattr(one, name) for one in decisions], dtype=float) for name in ("top", "agrees"))
    places = np.minimum((top * BINS).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    return [(float(top[places == i].mean()), float(agrees[places == i].mean()), int(counts[i])) for i in np.flatnonzero(counts)]


def figures(episodes: Iterable[Any], order: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the figures of a policy's probabilities; each is None where nothing tells it.

    Args:
        episodes: Summaries of episodes without errors.
        order: What `run.orders` has measured of the policy.
    """
    episodes = list(episodes)
    decisions = [one for episode in episodes for one in episode.judged]
    found: dict[str, Any] = {name: (order or {}).get(name) for name in FIGURES} | {"judged": len(decisions)}
    if decisions:
        options = np.array([one.options for one in decisions], dtype=float)
        found |= {"brier": brier(decisions), "brier_uniform": float(np.mean(1 - 1 / options))}
        for name, is_won in (("brier_won", True), ("brier_not_won", False)):
            found[name] = brier([one for episode in episodes if episode.won is is_won for one in episode.judged])
        found["log_loss"] = float(-np.log(np.maximum([one.expert for one in decisions], _LEAST)).mean())
        found["log_loss_uniform"] = float(np.log(options).mean())
        found["calibration_error"] = sum(abs(top - right) * count for top, right, count in bins(decisions)) / len(decisions)
    if seconds := [value for episode in episodes for value in episode.latencies]:
        found["seconds_median"], found["seconds_95"] = map(float, np.percentile(seconds, [50, 95]))
        found["cost_per_decision"] = sum(episode.cost for episode in episodes) / len(seconds)
    return found


def read_orders(folder: Path) -> dict[str, dict[str, float]]:
    """Return what a run folder keeps of other orders: by the key of an episode of the row, its figures."""
    try:
        stored = json.loads(check_regular(folder / ORDERS, folder).read_text("utf-8"))
        return {
            str(key): {str(name): float(value) for name, value in row.items() if is_finite(value)} for key, row in stored.items()
        }
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def write_orders(folder: Path, orders: Mapping[str, Mapping[str, float]]) -> None:
    """Write the file that `read_orders` reads."""
    write_atomically(folder / ORDERS, json.dumps(orders, indent=1) + "\n")


def lines(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of the table of probabilities, the headings first; nothing if no row has any.

    Args:
        rows: The figures of rows, see `report.figures.row`. A row without probabilities is left out.
    """
    told = [row for row in rows if row["judged"] or row["same_choice"] is not None]
    return [_HEADS, *map(_cells, told)] if told else []


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        *(row["environment"], row["policy"], str(row["judged"])),
        f"{number(row['brier'], '.2f')} ({number(row['brier_uniform'], '.2f')})",
        f"{number(row['log_loss'], '.2f')} ({number(row['log_loss_uniform'], '.2f')})",
        number(row["calibration_error"], ".2f"),
        f"{number(row['brier_won'], '.2f')} / {number(row['brier_not_won'], '.2f')}",
        number(row["same_choice"], ".2f"),
        number(row["variation"], ".3f"),
        f"{number(row['seconds_median'], '.2g')} / {number(row['seconds_95'], '.2g')}",
        number(row["cost_per_decision"] or None, ".2g"),
    )
