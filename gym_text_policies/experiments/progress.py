"""`Progress` receives what a run has played, and `ProgressBar` shows this on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from gym_text.errors import import_extra
from gym_text_policies.bars import bar_class, is_watched
from gym_text_policies.experiments.pace import Pace
from gym_text_policies.experiments.series import Series, Work
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

_OFTEN = 0.1
"""Seconds between two estimates of the time that is left; policies without a model decide thousands of times a second."""


class Progress:
    """Receives what a run has played. This class shows nothing; a subclass may."""

    def showing(self, parts: Sequence[Sequence[Work]], store: EpisodeStore, series: Sequence[Series]) -> Progress:
        """Begin with a run. The end of a ``with`` block ends it.

        Args:
            parts: What will be played, one part after the other.
            store: The episodes that are stored.
            series: All series of the run, also those of which nothing is missing.
        """
        return self

    def playing(self, part: Sequence[Work]) -> None:
        """Begin with the next part."""

    def turns(self, count: int) -> None:
        """Count turns that were decided."""

    def ended(self, episode: Episode) -> None:
        """Count an episode that has ended and is stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""


class ProgressBar(Progress):
    """A line on stderr that counts the episodes of a run, those of earlier runs included, and shows the time that is left.

    In a run of one row it shows how many episodes were won, and their rate when all have ended. An earlier rate would mislead,
    because short episodes end first, and they are won more or less often than long ones. In a run of several rows it shows which
    row is played, and how many of the row's episodes have ended.

    Args:
        lines: Whether to write a line about each episode that ends.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._tqdm = bar_class()
        self._bar: Any = None
        self._closed = sys.stderr is None
        self._logs = contextlib.ExitStack()

    def showing(self, parts: Sequence[Sequence[Work]], store: EpisodeStore, series: Sequence[Series]) -> Progress:
        """Draw the line."""
        self._store, self._several = store, len(series) > 1
        keys = {key for row in series for key in row.keys.values()}
        self._left = sum(len(seeds) for part in parts for _, seeds in part)
        self._total, self._begun, self._pace = len(keys), time.monotonic(), Pace(parts)
        self._shown = self._begun
        options = {
            "initial": self._total - self._left,
            "total": self._total,
            "desc": series[0].label,
            "miniters": 0,  # it is drawn by the clock: steps move it as well
            "bar_format": "{desc}: {n_fmt}/{total_fmt} episodes{postfix}",
        }
        self._bar = self._tqdm(disable=True)
        self._row, self._won = "", 0
        self._tells_success: bool | None = None  # as long as no episode has ended
        with self._while_it_can_be_written():
            if self._closed:
                return self
            self._bar = self._tqdm(**options, mininterval=0.2 if is_watched() else 15.0)
        above_the_bar = import_extra("tqdm.contrib.logging", "bench").logging_redirect_tqdm
        self._logs.enter_context(above_the_bar())
        return self

    def playing(self, part: Sequence[Work]) -> None:
        """Show which row is played."""
        rows = [row for row, _ in part]
        keys = [key for row in rows for key in row.keys.values()]
        missing = sum(len(seeds) for _, seeds in part)
        self._row = rows[0].label if len(rows) == 1 else f"{len(rows)} rows"
        self._of_row, self._ended = len(keys), len(keys) - missing
        self._won, self._tells_success = 0, None
        for episode in self._store.episodes(keys) if self._ended else ():
            self._count(episode)
        self._pace.begin()
        self._show(0)

    def turns(self, count: int) -> None:
        """Count turns that were decided, and show the new estimate of the time that is left."""
        self._pace.turns(count)
        if time.monotonic() - self._shown > _OFTEN:
            self._show(0)

    def ended(self, episode: Episode) -> None:
        """Count an episode, and write its line."""
        self._pace.end(episode.length)
        self._ended += 1
        self._left -= 1
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
        self._shown = time.monotonic()
        interval, over = self._tqdm.format_interval, self._left <= 0
        wins = "" if self._tells_success is False else f"{self._won} won"
        clock = f"{interval(time.monotonic() - self._begun)} so far"
        clock += "" if over else f", {interval(max(1.0, self._pace.left))} left"
        with self._while_it_can_be_written():
            if self._several:
                here = ", ".join(filter(None, (f"{self._row} {self._ended}/{self._of_row}", wins)))
                self._bar.set_description_str("all rows" if over else f"{here}; all rows", refresh=False)
            elif over and wins:
                wins = f"success {self._won / self._total:.0%}"
            self._bar.set_postfix_str(clock if self._several else f"{wins} [{clock}]".lstrip(), refresh=False)
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
