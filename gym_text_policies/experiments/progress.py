"""`Progress` receives what a run has played, and `ProgressBar` shows this on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from gym_text.errors import import_extra
from gym_text_policies.experiments.series import Series
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

_USUAL_LIMIT = 100
"""Steps to expect of an episode whose environment names no limit."""


class Progress:
    """Receives what a run has played. This class shows nothing; a subclass may."""

    def showing(self, series: Sequence[Series], store: EpisodeStore, missing: int) -> Progress:
        """Begin to play the missing episodes of some series. The end of a ``with`` block ends it.

        Args:
            series: The series that are played.
            store: The episodes that are stored.
            missing: Number of episodes that will be played.
        """
        return self

    def turns(self, count: int) -> None:
        """Count turns that were decided."""

    def ended(self, episode: Episode) -> None:
        """Count an episode that has ended and is stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""


class Pace:
    """Estimates from the steps that were played how many are left.

    Args:
        missing: Number of episodes that will be played.
        limit: Most steps of an episode; None if it is not known.
    """

    def __init__(self, missing: int, limit: int | None) -> None:
        self.missing, self._limit = missing, limit
        self.ended, self._steps, self._turns = 0, 0, 0

    def turns(self, count: int) -> None:
        """Count turns of running episodes."""
        self._turns += count

    def end(self, length: int) -> None:
        """Count an episode that has ended after `length` steps."""
        self.ended += 1
        self._steps += length
        self._turns = max(self._turns, self._steps)  # Ray's engine reports no turns, only episodes

    @property
    def played(self) -> int:
        """Steps that were played, in ended and in running episodes."""
        return self._turns

    @property
    def left(self) -> float:
        """An estimate of the steps that are left; at least one for each episode that has not ended.

        Short episodes end first, so the mean length of ended episodes is too low. This estimate divides the steps of ended and
        running episodes by the number of ended episodes. Both numbers include one imagined episode that is as long as the limit.
        """
        remaining = self.missing - self.ended
        mean = (self._turns + (self._limit or _USUAL_LIMIT)) / (self.ended + 1)
        left = remaining * mean
        if self._limit is not None:
            left = min(left, remaining * self._limit - (self._turns - self._steps))
        return max(left, remaining)


class ProgressBar(Progress):
    """A line on stderr that counts episodes, including those of earlier runs, and shows the time that is left.

    It shows how many episodes were won, and their rate when all have ended. An earlier rate would mislead, because short episodes
    end first, and they are won more or less often than long ones.

    Args:
        lines: Whether to write a line about each episode that ends.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._tqdm = import_extra("tqdm", "bench").tqdm
        self._bar: Any = None
        self._closed = sys.stderr is None
        self._logs = contextlib.ExitStack()

    def showing(self, series: Sequence[Series], store: EpisodeStore, missing: int) -> Progress:
        """Draw the line."""
        keys = [key for row in series for key in row.keys.values()]
        limits = [row.limit for row in series]
        self._won = 0
        self._tells_success: bool | None = None  # as long as no episode has ended
        self._pace = Pace(missing, None if None in limits else max(limit or 0 for limit in limits))
        self._total, self._begun = len(keys), time.monotonic()
        if missing < self._total:
            for episode in store.episodes(keys):
                self._count(episode)
        options = {
            "initial": self._total - missing,
            "total": self._total,
            "desc": series[0].label if len(series) == 1 else f"{len(series)} rows",
            "miniters": 0,  # it is drawn by the clock: steps move it as well
            "bar_format": "{desc}: {n_fmt}/{total_fmt} episodes{postfix}",
        }
        self._bar = self._tqdm(disable=True)
        with self._while_it_can_be_written():
            if self._closed:
                return self
            self._bar = self._tqdm(**options, mininterval=0.2 if sys.stderr.isatty() else 15.0)
        above_the_bar = import_extra("tqdm.contrib.logging", "bench").logging_redirect_tqdm
        self._logs.enter_context(above_the_bar())
        return self

    def turns(self, count: int) -> None:
        """Count turns that were decided, and show the new estimate of the time that is left."""
        self._pace.turns(count)
        self._show(0)

    def ended(self, episode: Episode) -> None:
        """Count an episode, and write its line."""
        self._pace.end(episode.length)
        self._count(episode)
        self._show(1)
        if self._lines and not self._closed:
            reason = f" ({episode.error})" if episode.error else ""
            line = f"seed {episode.seed}: {episode.outcome}{reason}, return {episode.total_reward:.4g}, {episode.length} steps"
            with self._while_it_can_be_written():
                self._bar.write(line, file=sys.stderr, nolock=True)  # Ctrl-C in tqdm's lock ends in an error of its own

    def _count(self, episode: Episode) -> None:
        self._won += episode.outcome == "won"
        if episode.error is None:
            self._tells_success = self._tells_success or episode.tells_success

    def _show(self, episodes: int) -> None:
        pace, tqdm = self._pace, self._tqdm
        seconds = time.monotonic() - self._begun
        over = pace.ended >= pace.missing
        left = tqdm.format_interval(max(1.0, seconds * pace.left / pace.played)) if pace.played and not over else "?"
        wins = f"success {self._won / self._total:.0%}" if over else f"{self._won} won"
        clock = f"{tqdm.format_interval(seconds)} so far" + ("" if over else f", {left} left")
        with self._while_it_can_be_written():
            self._bar.set_postfix_str(clock if self._tells_success is False else f"{wins} [{clock}]", refresh=False)
            self._bar.update(episodes)

    @contextlib.contextmanager
    def _while_it_can_be_written(self) -> Iterator[None]:
        """Stop showing progress once stderr is closed. The run goes on."""
        try:
            yield
        except (OSError, ValueError):
            self._bar.disable = self._closed = True

    def __exit__(self, *error: object) -> None:
        """Leave the line as it is."""
        self._logs.close()
        with self._while_it_can_be_written():
            self._bar.close()
