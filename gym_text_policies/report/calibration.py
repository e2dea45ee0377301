"""What a policy's probabilities are worth, from stored episodes: calibration, the order of the options, latency, price.

A probability is judged where the policy gives each valid action one, there are two or more, and it is known which are right: the
expert's action, or all that are the best by its plans (`gym_text_policies.run.measure`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""A smaller probability of what is right counts as this one, as in scikit-learn's ``log_loss``."""
_SCORES = ("judged", "brier", "brier_uniform", "log_loss", "log_loss_uniform", "calibration_error")
FIGURES = (
    *(*_SCORES, "brier_won", "brier_not_won", *(f"best_{name}" for name in _SCORES)),
    *("same_choice", "variation", "seconds_median", "seconds_95", "cost_per_decision"),
)
"""Names of the figures of a row's probabilities."""
_HEADS = (
    *("environment", "policy", "decisions", "Brier (uniform)", "log loss (uniform)", "calibration error", "Brier: won / not"),
    *("best actions: Brier (uniform)", "best actions: calibration error"),
    *("other order: same choice", "other order: variation", "s / decision: median / 95 %", "$ / decision"),
)
MEASURED = "measured.json"
"""The file of a run folder that keeps what was measured after play: best actions, and what other orders of the options change."""
NOTES = """
Decisions: those with two or more valid actions, a probability for each, and a known action of the expert. Brier: mean of the summed
squared differences from 1 for the expert's action and 0 for the others (0 to 2). Log loss: mean of -ln of the probability of the
expert's action. In parentheses: the same if all valid actions were equally probable. Calibration error: of the most probable action
(top label), in 10 bins of equal width. Won / not: the Brier score in episodes that were won, and in the others. Best actions: right
are all after which the expert needs the fewest steps; the Brier score is then the squared distance from the nearest probabilities
of these alone. Other order: the model was asked again with its options in drawn orders; share of answers whose most probable action
stayed, and mean total variation from the first answer. Seconds: of a call, divided by its decisions.
"""


class Judged(NamedTuple):
    """A decision whose probabilities are known, in a state in which it is known which actions are right."""

    options: int
    """Number of valid actions."""
    right: int
    """Number of those that are right."""
    probability: float
    """Sum of the probabilities of what is right."""
    top: float
    """Probability of the most probable action."""
    agrees: bool
    """Whether the most probable action is right."""
    distance: float
    """Squared distance from the nearest probabilities that are 0 where an action is not right."""


def judge(shares: Mapping[str, float], right: Collection[str]) -> Judged:
    """Judge the probabilities of a decision by which actions are right.

    >>> judge({"left": 0.25, "right": 0.75}, ["left"])
    Judged(options=2, right=1, probability=0.25, top=0.75, agrees=False, distance=1.125)
    >>> judge({"left": 0.25, "right": 0.75}, ["left", "right"]).distance
    0.0
    """
    top = max(shares, key=shares.__getitem__)
    wrong = [share for name, share in shares.items() if name not in right]
    probability = sum(shares.get(name, 0.0) for name in right)
    distance = sum(share * share for share in wrong) + (1 - probability) ** 2 / len(right)
    return Judged(len(shares), len(right), probability, shares[top], top in right, distance)


def judged(episode: Episode) -> tuple[Judged, ...]:
    """Return the decisions of an episode that can be judged by the expert's action."""
    return tuple(
        judge(shares, (step.gold_action,))
        for step in episode.steps
        if (shares := step.decision.probabilities) and len(shares) > 1 and step.gold_action is not None
    )


def scores(decisions: Sequence[Judged]) -> dict[str, float]:
    """Return the scores of some decisions, by names of `_SCORES`; without decisions their number alone."""
    if not decisions:
        return {"judged": 0}
    options, right, probability = np.array([(one.options, one.right, one.probability) for one in decisions], dtype=float).T
    return {
        "judged": len(decisions),
        "brier": float(np.mean([one.distance for one in decisions])),
        "brier_uniform": float(np.mean((options - right) / options**2 + (1 - right / options) ** 2 / right)),
        "log_loss": float(-np.log(np.maximum(probability, _LEAST)).mean()),
        "log_loss_uniform": float(np.log(options / right).mean()),
        "calibration_error": sum(abs(top - agrees) * count for top, agrees, count in bins(decisions)) / len(decisions),
    }


def bins(decisions: Sequence[Judged]) -> list[tuple[float, float, int]]:
    """Return of each bin that is not empty: mean top probability, share in which that action is right, number of decisions."""
    top, agrees = (np.array([getattr(one, name) for one in decisions], dtype=float) for name in ("top", "agrees"))
    places = np.minimum((top * BINS).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    return [(float(top[places == i].mean()), float(agrees[places == i].mean()), int(counts[i])) for i in np.flatnonzero(counts)]


def figures(episodes: Iterable[Any], measured: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return the figures of a policy's probabilities; each is None where nothing tells it.

    Args:
        episodes: Summaries of episodes without errors.
        measured: What was measured of the policy after play; see `read_measured`.
    """
    episodes = list(episodes)
    decisions = [one for episode in episodes for one in episode.judged]
    found: dict[str, Any] = {name: (measured or {}).get(name) for name in FIGURES} | scores(decisions)
    for name, is_won in (("brier_won", True), ("brier_not_won", False)):
        found[name] = scores([one for episode in episodes if episode.won is is_won for one in episode.judged]).get("brier")
    if seconds := [value for episode in episodes for value in episode.latencies]:
        found["seconds_median"], found["seconds_95"] = map(float, np.percentile(seconds, [50, 95]))
        found["cost_per_decision"] = sum(episode.cost for episode in episodes) / len(seconds)
    return found


def read_measured(folder: Path) -> dict[str, dict[str, float]]:
    """Return what a run folder keeps of what was measured after play: by the key of an episode of the row, its figures."""
    try:
        stored = json.loads(check_regular(folder / MEASURED, folder).read_text("utf-8"))
        return {
            str(key): {str(name): float(value) for name, value in row.items() if is_finite(value)} for key, row in stored.items()
        }
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def write_measured(folder: Path, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Write the file that `read_measured` reads."""
    write_atomically(folder / MEASURED, json.dumps(measured, indent=1) + "\n")


def lines(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of the table of probabilities, the headings first; nothing if no row has any.

    Args:
        rows: The figures of rows, see `report.figures.row`. A row without probabilities is left out.
    """
    told = [row for row in rows if row["judged"] or row["best_judged"] or row["same_choice"] is not None]
    return [_HEADS, *map(_cells, told)] if told else []


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        *(row["environment"], row["policy"], str(row["judged"])),
        f"{number(row['brier'], '.2f')} ({number(row['brier_uniform'], '.2f')})",
        f"{number(row['log_loss'], '.2f')} ({number(row['log_loss_uniform'], '.2f')})",
        number(row["calibration_error"], ".2f"),
        f"{number(row['brier_won'], '.2f')} / {number(row['brier_not_won'], '.2f')}",
        f"{number(row['best_brier'], '.2f')} ({number(row['best_brier_uniform'], '.2f')})",
        number(row["best_calibration_error"], ".2f"),
        number(row["same_choice"], ".2f"),
        number(row["variation"], ".3f"),
        f"{number(row['seconds_median'], '.2g')} / {number(row['seconds_95'], '.2g')}",
        number(row["cost_per_decision"] or None, ".2g"),
    )
