"""`Pace` estimates how long a run will take: from the steps and the seconds of what was played, for what is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from gym_text_policies.display import innermost
from gym_text_policies.experiments.series import Series, Work

_USUAL_LENGTH = 150
"""Most steps to expect of an episode, as long as none has ended in its environment."""
_MARGIN = 5.0
"""How many times as long as the others an episode may become."""
_SECONDS = {"text": 0.4, "json": 0.6, "tool": 0.6, "choose": 0.12}
"""Seconds of a language model's decision to expect by its mode, before any was measured."""
_WITHOUT_MODEL = 1e-4
_DOUBT = 80
"""Steps of a part after which what was measured counts as much as what was expected."""
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
    def rate(self) -> float | None:
        """Seconds of a step; None before a step was measured."""
        steps = self.lengths.played - self.turns_then
        return self.seconds / steps if steps > 0 and self.seconds > 0 else None


class Pace:
    """Estimates the seconds that a run has left.

    Steps of the part that is played take as long as they took so far. Those of the parts that wait take as long as steps of the
    same kind did in the same environment. If there were none, they take what lies between steps of the same kind in other
    environments, and a guess times what guesses were wrong by in the same environment, as prompts differ in length. An episode of a
    waiting part is as long as other policies' episodes in its environment.

    Args:
        work: What will be played, by parts.
        clock: Returns the time in seconds.
    """

    def __init__(self, work: Sequence[Sequence[Work]], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._waiting, self._over = clock, list(work), list[_Part]()
        self._now: _Part | None = None
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
        seconds = 0.0
        if part := self._now:
            steps = part.lengths.played - part.turns_then
            rate = (part.seconds + _DOUBT * self._expected_rate(part.series[0])) / (steps + _DOUBT)
            seconds += part.lengths.left(part.at_once) * rate
        waiting = [(series, len(seeds)) for work in self._waiting for series, seeds in work]
        for series, count in waiting:
            length = min(self._usual(series) or _USUAL_LENGTH, series.limit or math.inf)
            seconds += count * length * self._expected_rate(series)
        loadings = [part.first - part.began for part in self._over if part.first and _kind(part.series[0])]
        models = {series.model for series, count in waiting if count and _kind(series)}
        return seconds + len(models) * (fmean(loadings) if loadings else _LOADING)

    def _expected_rate(self, series: Series) -> float:
        """Return the seconds to expect of a step of a series that waits."""
        kind, measured = _kind(series), [(part.series[0], part.rate) for part in self._over if part.rate]
        if kind is None:
            rates = [rate for other, rate in measured if _kind(other) is None]
            return fmean(rates) if rates else _WITHOUT_MODEL
        asked = [(other, rate, rate / _guess(_kind(other))) for other, rate in measured if _kind(other)]
        same = [(other, rate) for other, rate, _ in asked if _kind(other) == kind]
        here = [wrong for other, _, wrong in asked if other.job.environment == series.job.environment]
        if alike := [rate for other, rate in same if other.job.environment == series.job.environment]:
            return geometric_mean(alike)
        wrong = math.sqrt(fmean(wrong for *_, wrong in asked)) if asked else 1.0
        expected = geometric_mean([rate for _, rate in same]) if same else _guess(kind) * wrong
        return math.sqrt(expected * _guess(kind) * geometric_mean(here)) if here else expected

    def _usual(self, series: Series) -> float | None:
        """Return how long an episode usually is in the environment of a series, if one has ended: between the policies' means."""
        means = [fmean(lengths) for lengths in self._lengths.get(series.job.environment, {}).values()]
        return geometric_mean((max(min(means), 1.0), max(*means, 1.0))) if means else None


def _kind(series: Series) -> tuple[str, bool] | None:
    """Return the mode in which a series asks its language model, and whether it shows earlier steps; None if it asks none."""
    player = innermost(series.identity.policy)
    if player.get("kind") != "llm":
        return None
    return str(player.get("mode")), bool(player.get("history"))


def _guess(kind: tuple[str, bool] | None) -> float:
    """Return the seconds of a model's step to expect before any step was measured; a prompt with earlier steps takes longer."""
    mode, history = kind or ("", False)
    return _SECONDS.get(mode, 0.5) * (3 if history else 1)
