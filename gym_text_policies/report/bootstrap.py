"""Statistics of drawn levels and training runs: intervals of any figure, and the probability that one policy is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gym_text.errors import import_extra

DRAWS = 4000
"""Bootstrap samples."""
_CHUNK = 200
"""Bootstrap samples in memory at once."""


def iqm(values: Any, axis: int = -1) -> Any:
    """Return the interquartile mean: the mean without the lowest and the highest quarter of the values.

    >>> float(iqm([0, 1, 2, 3, 4, 5, 6, 100]))
    3.5
    """
    return import_extra("scipy.stats", "bench").trim_mean(values, 0.25, axis=axis)


def bootstrap(
    policies: Sequence[Sequence[tuple[tuple[str, ...], np.ndarray]]], statistic: Callable[..., Any], seed: int = 0
) -> np.ndarray:
    """Return a statistic of each policy in 4,000 bootstrap samples, as an array (policies, samples).

    The bootstrap is stratified, as in rliable (Agarwal et al. 2021, https://arxiv.org/abs/2108.13264): each environment keeps its
    number of levels and of training runs. Levels are drawn once for all policies, so that differences are paired. A training run
    is drawn whole, with all its levels: they are no independent evidence about training. rliable expects a training run for each
    task, and draws the runs of each task apart. Environments whose runs have different names are treated in this way here, too.
    Each level counts once: where an environment has fewer runs, each of them counts more; see `pooled`.

    Args:
        policies: For each policy the names of its runs and their table (runs, levels) in each environment. The levels of an
            environment are the same for all policies.
        statistic: Takes values and an axis, as `numpy.mean` and `iqm` do.
        seed: Seed of the samples.
    """
    rng = np.random.default_rng(seed)
    samples: list[list[np.ndarray]] = [[] for _ in policies]
    for _ in range(DRAWS // _CHUNK):
        levels = [rng.integers(table.shape[1], size=(_CHUNK, 1, table.shape[1])) for _, table in policies[0]]
        for tables, found in zip(policies, samples, strict=True):
            drawn = {names: rng.integers(len(names), size=(_CHUNK, len(names), 1)) for names in dict.fromkeys(n for n, _ in tables)}
            values = [table[drawn[names], level] for (names, table), level in zip(tables, levels, strict=True)]
            found.append(statistic(pooled(values), axis=-1))
    return np.stack([np.concatenate(found) for found in samples])


def pooled(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return the results of several environments in one row, so that each level counts once however many runs played it.

    >>> pooled([np.array([[1.0], [2.0]]), np.array([[5.0]])]).tolist()
    [1.0, 2.0, 5.0, 5.0]

    Args:
        tables: Results (..., runs, levels) in each environment. Those with fewer runs are repeated, to as many as the least common
            multiple of the numbers of runs.

    Returns:
        Array (..., results).
    """
    most = math.lcm(*(table.shape[-2] for table in tables))
    flat = [np.repeat(table, most // table.shape[-2], axis=-2).reshape(*table.shape[:-2], -1) for table in tables]
    return np.concatenate(flat, axis=-1)


def percentiles(samples: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of bootstrap samples."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)


def probability_of_better(differences: np.ndarray) -> float:
    """Return the probability that the mean of differences by level is above 0.

    This is the Bayesian bootstrap (Rubin 1981, https://doi.org/10.1214/aos/1176345338): the weights of the levels are drawn from a
    flat Dirichlet distribution. Two imagined levels are added, one in favour of either policy. Each is as large as the root mean
    square of the differences that are not 0. Without them, two policies that differ in a single level would be compared with
    certainty. With them, differences of one size give the same result as a flat prior on the share of levels won.

    >>> probability_of_better(np.zeros(20)), 0.7 < probability_of_better(np.array([1.0] + [0.0] * 19)) < 0.8
    (0.5, True)
    """
    if not np.any(differences):
        return 0.5
    size = math.sqrt(float(np.mean(np.square(differences[differences != 0]))))
    levels = np.concatenate([differences, [size, -size]])
    weights = np.random.default_rng([0, len(differences)]).standard_exponential((DRAWS, len(levels)))
    return float((weights @ levels > 0).mean())  # the sum of the weights does not change the sign
