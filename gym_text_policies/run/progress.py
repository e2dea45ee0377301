"""`Progress`: a line on stderr for each row that is played, with the row's own pace."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Self

from gym_text.errors import import_extra
from gym_text_policies.records import Episode

_FORMAT = "{desc}: {n_fmt}/{total_fmt} episodes{postfix} [{elapsed} so far, {remaining} left]"
_SELDOM = 15.0
"""Seconds between two drawings of a line that nobody watches, as in a file."""


class Progress:
    """Shows for each row how many episodes have ended, earlier runs included, how many were won, and the time that is left.

    A row's line appears when the row begins, and stays when it has ended. Short episodes end first, so that the first estimates of
    the time are wrong, and the rate of wins is no result yet. With `lines` each episode that ends has a line, too.
    """

    def __init__(self, *, lines: bool = False, shown: bool = True) -> None:
        self._lines = lines
        self._shown = shown
        self._bars: dict[str, Any] = {}
        self._won: dict[str, int] = {}
        self._logs = contextlib.ExitStack()

    def begin(self, row: str, total: int, stored: int = 0, won: int = 0) -> None:
        """Draw the line of a row: how many episodes it has, and how many ended, and were won, in an earlier run."""
        if self._shown:
            self._won[row] = won
            watched = sys.stderr.isatty() or "ipykernel" in sys.modules
            shape = {"bar_format": _FORMAT, "dynamic_ncols": True} | ({} if watched else {"mininterval": _SELDOM})
            self._bars[row] = import_extra("tqdm.auto", "bench").tqdm(desc=row, initial=stored, total=total, **shape)

    def ended(self, row: str, episode: Episode) -> None:
        """Count an episode of a row that has begun, and write its line."""
        if not self._shown:
            return
        bar = self._bars[row]
        self._won[row] += episode.outcome == "won"
        if episode.tells_success:
            bar.set_postfix_str(f"{self._won[row]} won", refresh=False)
        if self._lines:
            reason = f" ({episode.error})" if episode.error else ""
            text = f"seed {episode.seed}: {episode.outcome}{reason}, return {episode.total_reward:.4g}, {episode.length} steps"
            bar.write(text, file=sys.stderr, nolock=True)  # Ctrl-C in tqdm's lock ends in an error of its own
        bar.update()
        if bar.n >= bar.total:
            bar.close()

    def __enter__(self) -> Self:
        if self._shown:  # messages of the log stand above the lines
            self._logs.enter_context(import_extra("tqdm.contrib.logging", "bench").logging_redirect_tqdm())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the lines as they are."""
        self._logs.close()
        for bar in self._bars.values():
            bar.close()
