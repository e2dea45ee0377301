"""`Pace` estimates how long a run will take: from the steps and the seconds of what was played, for what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

import numpy as np
import numpy.typing as npt

from gym_text_policies.display import innermost
from gym_text_policies.experiments.series import Series, Work

_USUAL_LENGTH = 150
"""Most steps to expect of an episode, as long as none has ended in its environment."""
_MARGIN = 5.0
"""How many times as long as the others an episode may become."""
_SECONDS = {"text": 0.8, "json": 1.2, "tool": 1.2, "choose": 0.08}
"""Seconds of a language model's decision to expect by its mode, before any was measured."""
_WITH_HISTORY = 3
"""How many times as long a decision takes whose prompt shows earlier steps."""
_WITHOUT_MODEL = 1e-4
_VARIANCES = (0.1, 0.2, 0.2, 0.6, 0.6, 0.2)
"""How much steps' seconds differ by each of `_traits`: variances of their logarithms. Chosen on seven runs; half or twice as much
changes little."""
_NOISE = 20.0
"""Variance of a measured logarithm, times the number of steps that were measured. A row's first steps are slower than others."""
_LOADING = 5.0
"""Seconds that a model in this process is loaded, before any was."""


class Lengths:
    """Estimates from the lengths of ended and running episodes how many steps are left.

    Args:
        missing: Number of episodes that will be played.
        limit: Most steps of an episode; None if it is not known.
        usual: Mean length of other policies' episodes; None if it is not known.
        longest: Length of the longest of these episodes.
    """

    def __init__(self, missing: int, limit: int | None, usual: float | None = None, longest: int = 0) -> None:
        self.missing, self._limit = missing, limit
        self._usual = min(usual or _USUAL_LENGTH, limit or math.inf)
        self.ended, self._steps, self.played, self._longest = 0, 0, 0, longest

    def turns(self, count: int) -> None:
        """Count turns of running episodes."""
        self.played += count

    def end(self, length: int) -> None:
        """Count an episode that has ended after `length` steps."""
        self.ended += 1
        self._steps += length
        self._longest = max(self._longest, length)
        self.played = max(self.played, self._steps)  # Ray's engine reports no turns, only episodes

    def left(self, at_once: int) -> float:
        """Return an estimate of the steps that are left, at least one for each episode that has not ended.

        An episode is expected to be as long as is usual. One that has lasted longer will go on for long: its length may be anything
        between its age and the most that is likely, a short one more probably than a long one. That most is the length of the
        longest episode, or some times its age if it has lasted longer than that, and never more than the limit.

        Args:
            at_once: Number of episodes that run at once.
        """
        waiting = self.missing - self.ended
        running = min(waiting, at_once) if self.played > self._steps else 0
        usual = self._steps / self.ended if self.ended else self._usual
        age = (self.played - self._steps) / max(running, 1)
        most = min(self._limit or math.inf, self._longest if age <= self._longest else _MARGIN * max(usual, age))
        total = usual if age < usual else (most - age) / math.log(most / age) if most > age else age
        fresh = (self._steps + running * total) / (self.ended + running) if self.ended + running else usual
        return max(running * (total - age) + (waiting - running) * fresh, float(waiting))


@dataclass
class _Part:
    """Some series that are played together, one after the other or at the same time."""

    series: Sequence[Series]
    lengths: Lengths
    began: float = 0.0
    first: float = 0.0
    """When the first turns were decided. What happens before, such as loading a model, is no step."""
    turns_then: int = 0
    seconds: float = 0.0
    """Seconds from the first turns to the end."""

    @property
    def at_once(self) -> int:
        """Number of episodes that run at once."""
        return sum(series.job.num_envs for series in self.series)

    @property
    def measured(self) -> tuple[Series, float, int] | None:
        """The first row, the seconds of a step, and how many steps were measured; None before one was."""
        steps = self.lengths.played - self.turns_then
        return (self.series[0], self.seconds / steps, steps) if steps > 0 and self.seconds > 0 else None


class Rates:
    """Estimates the seconds of a step in each row of a run from the rows that were measured.

    A row's rate is a guess times factors: one that it shares with all rows, one with the rows that ask a model in the same way, one
    with those in the same environment, and so on. All factors are taken as log-normal. What is expected of a row is then the
    conditional median, given the measured rates (kriging): rows that share much with it count most.

    Args:
        series: The rows.
    """

    def __init__(self, series: Sequence[Series]) -> None:
        self._number = {row.label: number for number, row in enumerate(series)}
        self._guesses = np.log([_guess(row) for row in series])
        traits = [_traits(row) for row in series]
        shared = [[sum(v for v, x, y in zip(_VARIANCES, a, b, strict=True) if x == y) for b in traits] for a in traits]
        self._covariance = np.array(shared, dtype=np.float64)  # (rows, rows)

    def expected(self, measured: Sequence[tuple[Series, float, int]]) -> dict[str, float]:
        """Return label -> seconds of a step to expect.

        Args:
            measured: Rows, the seconds of a step that were measured there, and how many steps that were, 1 or more.
        """
        logarithms: npt.NDArray[np.float64] = self._guesses
        if measured:
            rows = [self._number[row.label] for row, *_ in measured]
            off = np.log([rate for _, rate, _ in measured]) - self._guesses[rows]
            noise = np.diag([_NOISE / steps for *_, steps in measured])
            weights = np.linalg.solve(self._covariance[np.ix_(rows, rows)] + noise, off)
            logarithms = self._guesses + self._covariance[:, rows] @ weights
        return {label: math.exp(logarithms[number]) for label, number in self._number.items()}


class Pace:
    """Estimates the seconds that a run has left.

    A step takes as long as `Rates` expects of its row. An episode of a waiting part is as long as other policies' episodes in its
    environment.

    Args:
        work: What will be played, by parts.
        clock: Returns the time in seconds.
    """

    def __init__(self, work: Sequence[Sequence[Work]], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._waiting, self._over = clock, list(work), list[_Part]()
        self._now: _Part | None = None
        self._rates = Rates([series for part in work for series, _ in part])
        self._lengths: dict[str, dict[str, list[int]]] = {}
        """Environment -> label of a series -> lengths of its episodes."""

    def begin(self) -> None:
        """Begin with the next part."""
        work = self._waiting.pop(0)
        series = [row for row, _ in work]
        limits = [row.limit for row in series]
        limit = None if None in limits else max(filter(None, limits), default=None)
        missing, ended = sum(len(seeds) for _, seeds in work), self._lengths.get(series[0].job.environment, {}).values()
        longest = max((max(lengths) for lengths in ended), default=0)
        self._now = _Part(series, Lengths(missing, limit, self._usual(series[0]), longest), self._clock())

    def turns(self, count: int) -> None:
        """Count turns that were decided."""
        if (part := self._now) is not None:
            part.lengths.turns(count)
            if not part.first:
                part.first, part.turns_then = self._clock(), part.lengths.played
            part.seconds = self._clock() - part.first

    def end(self, length: int) -> None:
        """Count an episode that has ended."""
        if (part := self._now) is not None:
            part.lengths.end(length)
            part.seconds = self._clock() - (part.first or part.began)
            self._lengths.setdefault(part.series[0].job.environment, {}).setdefault(part.series[0].label, []).append(length)
            if part.lengths.ended == part.lengths.missing:
                self._over.append(part)
                self._now = None

    @property
    def left(self) -> float:
        """An estimate of the seconds that are left."""
        parts = [*self._over, self._now] if self._now else self._over
        rates = self._rates.expected([measured for part in parts if (measured := part.measured)])
        seconds = 0.0
        if part := self._now:
            seconds += part.lengths.left(part.at_once) * rates[part.series[0].label]
        waiting = [(series, len(seeds)) for work in self._waiting for series, seeds in work]
        for series, count in waiting:
            length = min(self._usual(series) or _USUAL_LENGTH, series.limit or math.inf)
            seconds += count * length * rates[series.label]
        loadings = [part.first - part.began for part in self._over if part.first and _mode(part.series[0])]
        models = {series.model for series, count in waiting if count and _mode(series)}
        return seconds + len(models) * (fmean(loadings) if loadings else _LOADING)

    def _usual(self, series: Series) -> float | None:
        """Return how long an episode usually is in the environment of a series, if one has ended: between the policies' means."""
        means = [fmean(lengths) for lengths in self._lengths.get(series.job.environment, {}).values()]
        return geometric_mean((max(min(means), 1.0), max(*means, 1.0))) if means else None


def _mode(series: Series) -> str | None:
    """Return the mode in which a series asks its language model; None if it asks none."""
    player = innermost(series.identity.policy)
    return str(player.get("mode")) if player.get("kind") == "llm" else None


def _guess(series: Series) -> float:
    """Return the seconds of a step to expect before any step was measured."""
    if (mode := _mode(series)) is None:
        return _WITHOUT_MODEL
    return _SECONDS.get(mode, 0.5) * (_WITH_HISTORY if innermost(series.identity.policy).get("history") else 1)


def _traits(series: Series) -> tuple[Hashable, ...]:
    """Return what a row may share with others that makes their rates alike; see `_VARIANCES`.

    In this order: that it asks a model, how it asks, the prompts' template, the environment, how it asks in this environment, and
    what only this row has.
    """
    policy, environment = series.identity.policy, series.job.environment
    player, mode = innermost(policy), _mode(series)
    asked = mode, bool(player.get("history")), policy.get("kind")
    return mode is None, asked, (asked, player.get("strategy")), (mode is None, environment), (asked, environment), series.label
