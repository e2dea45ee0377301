"""`Pace` estimates how long a run will take: from the steps and the seconds of what was played, for what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean

import numpy as np
import numpy.typing as npt

from gym_text_policies.experiments.series import Series, Work
from gym_text_policies.terminal.notebooks import innermost

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
        self.played = max(self.played, self._steps)  # not all turns may have been told

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
        total = usual if age <= usual else (most - age) / math.log(most / age) if most > age else age
        fresh = (self._steps + running * total) / (self.ended + running) if self.ended + running else usual
        return max(running * (total - age) + (waiting - running) * fresh, float(waiting))


@dataclass
class _Row:
    """What is known of a row that is played."""

    series: Series
    missing: int
    """Number of episodes that will be played."""
    lengths: Lengths | None = None
    """None until the row begins: what is usual in its environment is better known then."""
    seconds: float = 0.0
    """Of all processes that play it, each from its first turns on. What happens before, such as loading a model, is no step."""
    steps: int = 0
    """How many were decided in these seconds."""
    processes: set[int] = field(default_factory=set)
    """Those whose last turns were of this row."""

    @property
    def at_once(self) -> int:
        """Number of episodes that run at once."""
        return self.series.job.num_envs * max(1, len(self.processes))


@dataclass
class _Process:
    """What is known of a process that plays."""

    since: float
    """When it last told of turns, or the run began."""
    row: int | None = None
    """The row that these turns were of."""


class Rates:
    """Estimates the seconds of a step in each row of a run from the rows that were measured.

    A row's rate is a guess times factors: one that it shares with all rows, one with the rows that ask a model in the same way, one
    with those in the same environment, and so on. All factors are taken as log-normal. What is expected of a row is then the
    conditional median, given the measured rates (kriging): rows that share much with it count most.

    Args:
        series: The rows.
    """

    def __init__(self, series: Sequence[Series]) -> None:
        self._guesses = np.log([_guess(row) for row in series])
        traits = [_traits(row) for row in series]
        shared = [[sum(v for v, x, y in zip(_VARIANCES, a, b, strict=True) if x == y) for b in traits] for a in traits]
        self._covariance = np.array(shared, dtype=np.float64)  # (rows, rows)

    def expected(self, measured: Mapping[int, tuple[float, int]]) -> npt.NDArray[np.float64]:
        """Return the seconds of a step to expect in each row, of shape (rows,).

        Args:
            measured: Number of a row -> the seconds of a step that were measured there, and how many steps that were, 1 or more.
        """
        logarithms: npt.NDArray[np.float64] = self._guesses
        if measured:
            rows = list(measured)
            off = np.log([rate for rate, _ in measured.values()]) - self._guesses[rows]
            noise = np.diag([_NOISE / steps for _, steps in measured.values()])
            weights = np.linalg.solve(self._covariance[np.ix_(rows, rows)] + noise, off)
            logarithms = self._guesses + self._covariance[:, rows] @ weights
        return np.exp(logarithms)


class Pace:
    """Estimates the seconds that a run has left.

    A step takes as long as `Rates` expects of its row. An episode of a row that has not begun is as long as other policies'
    episodes in its environment. Processes share what is left evenly.

    Args:
        work: The rows, in the order in which they are played.
        clock: Returns the time in seconds.
    """

    def __init__(self, work: Sequence[Work], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows = [_Row(series, len(seeds)) for series, seeds in work]
        self._rates = Rates([series for series, _ in work])
        self._processes: dict[int, _Process] = {}
        self._began = self._ended = clock()  # times: of the run, and of the last end of an episode
        self._loadings: list[float] = []
        self._lengths: dict[str, dict[int, list[int]]] = {}
        """Environment -> number of a row -> lengths of its episodes."""

    def turns(self, number: int, process: int, count: int) -> None:
        """Count turns of a row that a process has decided."""
        now, row = self._clock(), self._rows[number]
        player = self._processes.setdefault(process, _Process(self._began))
        self._begun(row).turns(count)
        if player.row == number:
            row.seconds += now - player.since
            row.steps += count
        else:
            if player.row is not None:
                self._rows[player.row].processes.discard(process)
            if _mode(row.series):
                self._loadings.append(now - player.since)
            row.processes.add(process)
        player.row, player.since = number, now

    def end(self, number: int, length: int) -> None:
        """Count an episode of a row that has ended."""
        now, row = self._clock(), self._rows[number]
        lengths = self._begun(row)
        if not self._processes:  # nobody tells of turns, only of episodes
            row.seconds += now - self._ended
            row.steps += length
        lengths.end(length)
        self._ended = now
        self._lengths.setdefault(row.series.job.environment, {}).setdefault(number, []).append(length)

    @property
    def left(self) -> float:
        """An estimate of the seconds that are left."""
        measured = {n: (row.seconds / row.steps, row.steps) for n, row in enumerate(self._rows) if row.steps and row.seconds}
        rates = self._rates.expected(measured)
        rows = list(zip(self._rows, map(float, rates), strict=True))
        begun = [(row, row.lengths.left(row.at_once) * rate) for row, rate in rows if row.lengths]
        waiting = [(row, rate) for row, rate in rows if row.missing and not row.lengths]
        models = {row.series.model for row, _ in waiting if _mode(row.series)}
        seconds = sum(left for _, left in begun) + len(models) * (fmean(self._loadings) if self._loadings else _LOADING)
        for row, rate in waiting:
            length = min(self._usual(row.series) or _USUAL_LENGTH, row.series.limit or math.inf)
            seconds += row.missing * length * rate
        shared = seconds / max(1, len(self._processes))
        longest = max((left / len(row.processes) for row, left in begun if row.processes), default=0.0)
        return shared if waiting else max(shared, longest)

    def _begun(self, row: _Row) -> Lengths:
        """Return the lengths of a row's episodes; the row begins now unless it has."""
        if row.lengths is None:
            ended = self._lengths.get(row.series.job.environment, {}).values()
            longest = max((max(lengths) for lengths in ended), default=0)
            row.lengths = Lengths(row.missing, row.series.limit, self._usual(row.series), longest)
        return row.lengths

    def _usual(self, series: Series) -> float | None:
        """Return how long an episode usually is in the environment of a series, if one has ended: between the policies' means.

        If policies that are asked in the same way have played there, these count alone.
        """
        played = self._lengths.get(series.job.environment, {})
        alike = [number for number in played if _asked(self._rows[number].series) == _asked(series)]
        means = [fmean(played[number]) for number in alike or played]
        return geometric_mean((max(min(means), 1.0), max(*means, 1.0))) if means else None


def _mode(series: Series) -> str | None:
    """Return the mode in which a series asks its language model; None if it asks none."""
    player = innermost(series.identity.policy)
    return str(player.get("mode")) if player.get("kind") == "llm" else None


def _asked(series: Series) -> Hashable:
    """Return how a series asks its language model."""
    player = innermost(series.identity.policy)
    return _mode(series), bool(player.get("history")), series.identity.policy.get("kind")


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
    environment, asked, asks_none = series.job.environment, _asked(series), _mode(series) is None
    strategy = innermost(series.identity.policy).get("strategy")
    return asks_none, asked, (asked, strategy), (asks_none, environment), (asked, environment), series.label
