"""`Progress` receives what a run has played, and `ProgressBar` shows this on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gym_text.errors import import_extra
from gym_text_policies.experiments.pace import Pace
from gym_text_policies.experiments.series import Work
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore
from gym_text_policies.terminal.bars import bar_class, is_watched

_OFTEN = 0.1
"""Seconds between two drawings while episodes run; policies without a model decide thousands of times a second."""
_SELDOM = 1.0
"""Seconds between two estimates of the time that is left, which take a tenth of a second in a run of a hundred rows."""


class Progress:
    """Receives what a run has played. This class shows nothing; a subclass may."""

    def showing(self, work: Sequence[Work], store: EpisodeStore) -> Progress:
        """Begin with a run. The end of a ``with`` block ends it.

        Args:
            work: The rows in the order in which they are played, also those of which nothing is missing.
            store: The episodes that are stored.
        """
        return self

    def turns(self, number: int, process: int, count: int) -> None:
        """Count turns that a process has decided; `number` is the row's in the work."""

    def ended(self, number: int, episode: Episode) -> None:
        """Count an episode of a row that has ended and is stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""


@dataclass
class _Row:
    """How far a row is."""

    label: str
    all: int
    """Number of its episodes."""
    ended: int
    won: int = 0
    tells_success: bool | None = None
    """None as long as no episode has ended."""

    def count(self, episode: Episode) -> None:
        """Count whether an episode that has ended was won."""
        self.won += episode.outcome == "won"
        if episode.error is None:
            self.tells_success = self.tells_success or episode.tells_success

    @property
    def wins(self) -> str:
        """How many were won, if the environment says what that is."""
        return "" if self.tells_success is False else f"{self.won} won"


class ProgressBar(Progress):
    """A line on stderr that counts the episodes of a run, those of earlier runs included, and shows the time that is left.

    In a run of one row it shows how many episodes were won, and their rate when all have ended. An earlier rate would mislead,
    because short episodes end first, and they are won more or less often than long ones. In a run of several rows it shows the
    first row that has not ended, and how many of the row's episodes have.

    Args:
        lines: Whether to write a line about each episode that ends.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._tqdm = bar_class()
        self._bar: Any = None
        self._closed = sys.stderr is None
        self._logs = contextlib.ExitStack()

    def showing(self, work: Sequence[Work], store: EpisodeStore) -> Progress:
        """Draw the line."""
        self._store, self._work, self._rows = store, work, dict[int, _Row]()
        self._left = sum(len(seeds) for _, seeds in work)
        self._total = len({key for row, _ in work for key in row.keys.values()})
        self._begun, self._pace = time.monotonic(), Pace(work)
        self._shown = self._estimated = self._begun
        self._seconds_left = self._pace.left
        options = {
            "initial": self._total - self._left,
            "total": self._total,
            "desc": self._playing.label,
            "miniters": 0,  # it is drawn by the clock: steps move it as well
            "bar_format": "{desc}: {n_fmt}/{total_fmt} episodes{postfix}",
        }
        self._bar = self._tqdm(disable=True)
        with self._while_it_can_be_written():
            if self._closed:
                return self
            self._bar = self._tqdm(**options, mininterval=0.2 if is_watched() else 15.0)
        above_the_bar = import_extra("tqdm.contrib.logging", "bench").logging_redirect_tqdm
        self._logs.enter_context(above_the_bar())
        return self

    def turns(self, number: int, process: int, count: int) -> None:
        """Count turns that were decided, and show the new estimate of the time that is left."""
        self._pace.turns(number, process, count)
        if time.monotonic() - self._shown > _OFTEN:
            self._show(0)

    def ended(self, number: int, episode: Episode) -> None:
        """Count an episode, and write its line."""
        self._pace.end(number, episode.length)
        self._left -= 1
        row = self._row(number)
        row.ended += 1
        row.count(episode)
        self._show(1)
        if self._lines and not self._closed:
            reason = f" ({episode.error})" if episode.error else ""
            line = f"seed {episode.seed}: {episode.outcome}{reason}, return {episode.total_reward:.4g}, {episode.length} steps"
            with self._while_it_can_be_written():
                self._bar.write(line, file=sys.stderr, nolock=True)  # Ctrl-C in tqdm's lock ends in an error of its own

    def _row(self, number: int) -> _Row:
        """Return how far a row is. What is not missing has ended, or will when another row has that it belongs to, too."""
        if number not in self._rows:
            series, missing = self._work[number]
            row = self._rows[number] = _Row(series.label, len(series.keys), len(series.keys) - len(missing))
            to_play = set(missing)
            for episode in self._store.episodes(key for seed, key in series.keys.items() if seed not in to_play):
                row.count(episode)
        return self._rows[number]

    @property
    def _playing(self) -> _Row:
        """The first row that is played now or waits to be; the last one that was played if all have ended."""
        for number in (number for number, (_, missing) in enumerate(self._work) if missing):
            row = self._row(number)
            if row.ended < row.all:
                break
        return row

    def _show(self, episodes: int) -> None:
        self._shown = time.monotonic()
        if self._shown - self._estimated > _SELDOM:
            self._estimated, self._seconds_left = self._shown, self._pace.left
        interval, over = self._tqdm.format_interval, self._left <= 0
        row = self._playing
        clock = f"{interval(time.monotonic() - self._begun)} so far"
        clock += "" if over else f", {interval(max(1.0, self._seconds_left))} left"
        with self._while_it_can_be_written():
            if len(self._work) > 1:
                here = ", ".join(filter(None, (f"{row.label} {row.ended}/{row.all}", row.wins)))
                self._bar.set_description_str("all rows" if over else f"{here}; all rows", refresh=False)
                self._bar.set_postfix_str(clock, refresh=False)
            else:
                wins = f"success {row.won / self._total:.0%}" if over and row.wins else row.wins
                self._bar.set_postfix_str(f"{wins} [{clock}]".lstrip(), refresh=False)
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
