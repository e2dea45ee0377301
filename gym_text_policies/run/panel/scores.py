"""Scores from 0, what chance reaches on the same levels, to 100, what the expert reaches; means over worlds with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gym_text_policies.report.bootstrap import DRAWS, percentiles
from gym_text_policies.run.panel.reference import WorldReference


@dataclass(frozen=True)
class Score:
    """A score and its 95 % interval."""

    value: float
    """0 is chance, 100 the expert. A policy may be worse than chance or better than the expert."""
    interval: tuple[float, float]
    """Percentiles of a bootstrap over the levels within each world. Levels that all ended alike tell nothing of their spread."""


def scores(returns: Mapping[str, Sequence[float]], worlds: Mapping[str, WorldReference]) -> tuple[dict[str, Score], Score]:
    """Return the score of each world, and the mean over the worlds.

    A level is drawn with what chance and the expert reach in it, so that the expert's score is 100 in each sample.

    Args:
        returns: The name of each world, and the returns in its levels, level 0 first.
        worlds: What chance and the expert reach.
    """
    samples, values = [], {}
    for name, played in returns.items():
        count, rng = len(played), np.random.default_rng(list(name.encode()))  # the same, whatever other worlds there are
        table = np.array([played, worlds[name].chance[:count], worlds[name].expert[:count]])
        drawn = table[:, rng.integers(count, size=(DRAWS, count))].mean(axis=2)
        samples.append(_score(drawn))
        values[name] = Score(float(_score(table.mean(axis=1))), percentiles(samples[-1]))
    mean = float(np.mean([score.value for score in values.values()]))
    return values, Score(mean, percentiles(np.mean(samples, axis=0)))


def _score(means: np.ndarray) -> np.ndarray:
    """Return the score of mean returns: of the policy, of chance and of the expert."""
    policy, chance, expert = means
    return 100 * (policy - chance) / (expert - chance)  # type: ignore[no-any-return]
