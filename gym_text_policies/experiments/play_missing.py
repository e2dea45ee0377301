"""`play_missing`: the one way in which a run plays the episodes that its folder does not have yet.

The benchmark, experiments and the collection of training data all play by it: on any engine, resumable, with failures tried again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from gym_text.errors import import_extra
from gym_text_policies.engines.base import Engine, EpisodeJob, Identity
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

_logger = logging.getLogger(__name__)
_UNKNOWN_LIMIT = 100
"""Steps to expect of an episode whose environment names no limit."""


@dataclass(frozen=True)
class Series:
    """The episodes of a job that belong to a run."""

    label: str
    """What progress shows."""
    job: EpisodeJob
    identity: Identity
    seeds: Sequence[int]

    @classmethod
    def of(cls, label: str, job: EpisodeJob, engine: Engine, seeds: Sequence[int]) -> Self:
        """Return the episodes of a job, identified by the engine that is to play them.

        Raises:
            UsageError: If the job names an environment, a model or settings that do not exist.
        """
        return cls(label, job, engine.identify(job), seeds)

    @cached_property
    def keys(self) -> dict[int, str]:
        """Key of the episode of each seed."""
        return {seed: self.identity.key(seed) for seed in self.seeds}

    @property
    def limit(self) -> int:
        """Most steps of an episode, as far as that is known before one is played."""
        return self.identity.environment["max_episode_steps"] or _UNKNOWN_LIMIT


def play_missing(
    store: EpisodeStore, series: Sequence[Series], engine: Engine, watch: Progress | None = None, *, retry_errors: bool = False
) -> None:
    """Play the episodes that are not stored, and store each as it ends.

    Args:
        store: Of the run folder.
        series: What belongs to the run.
        engine: Where it is played: one series after the other, or all at the same time where the engine spreads its work.
        watch: Shows progress.
        retry_errors: Whether episodes that ended in an error are played again.
    """
    watch = watch or Progress()
    for together in [list(series)] if engine.spreads else [[one] for one in series]:
        missing = [[s for s, key in one.keys.items() if not store.has(key, retry_errors=retry_errors)] for one in together]
        if not any(missing):
            continue
        with watch.showing(together, store, sum(map(len, missing))):
            work = [(one.job, seeds) for one, seeds in zip(together, missing, strict=True)]
            for episode in engine.play(work, watch=watch.turns):
                store.append(episode)
                watch.ended(episode)
        failed = sum(episode.error is not None for one in together for episode in store.episodes(one.keys.values()))
        if failed:
            _logger.warning("%s: %d episodes ended in an error; retry_errors plays them again.", _title(together), failed)


def stored(store: EpisodeStore, series: Series) -> Iterator[Episode]:
    """Yield the stored episodes of a series, in the order of its seeds."""
    return store.episodes(series.keys.values())


class Progress:
    """Hears how a run goes on; this one shows nothing."""

    def showing(self, series: Sequence[Series], store: EpisodeStore, missing: int) -> Progress:
        """Begin with some series, of which this many episodes are missing. A ``with`` block ends it."""
        return self

    def turns(self, count: int) -> None:
        """Note that so many turns were decided."""

    def ended(self, episode: Episode) -> None:
        """Note that an episode has ended and is stored."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""


class ProgressBar(Progress):
    """A bar on stderr that counts episodes; one that runs counts by its steps.

    Args:
        lines: Whether to write a line about each episode that ends.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._tqdm = import_extra("tqdm", "bench").tqdm
        self._bar: Any = None

    def showing(self, series: Sequence[Series], store: EpisodeStore, missing: int) -> Progress:
        """Draw an empty bar."""
        keys = [key for one in series for key in one.keys.values()]
        self._played = len(keys) - missing
        self._won = sum(episode.outcome == "won" for episode in store.episodes(keys))
        self._done, self._steps, self._running = 0, 0, 0.0  # the last: episodes' worth of steps of those that run
        self._length = float(max(one.limit for one in series))  # steps that an episode is expected to take
        layout = "{desc}: {n:.1f}/{total_fmt} episodes{postfix} [{elapsed} so far, {remaining} left]"
        interval = 0.2 if sys.stderr.isatty() else 15.0
        self._bar = self._tqdm(total=missing, desc=_title(series), mininterval=interval, bar_format=layout)
        return self

    def turns(self, count: int) -> None:
        """Move the bar by some steps; only ended episodes fill it."""
        self._running += count / self._length
        self._bar.update(min(self._done + self._running, self._bar.total - 0.1) - self._bar.n)

    def ended(self, episode: Episode) -> None:
        """Move the bar by an episode, and write its line."""
        self._done, self._won = self._done + 1, self._won + (episode.outcome == "won")
        self._running = max(0.0, self._running - episode.length / self._length)
        self._steps += episode.length
        self._length = max(1.0, self._steps / self._done)
        self._bar.set_postfix_str(f"success {self._won / (self._played + self._done):.0%}", refresh=False)
        self._bar.update(min(self._done + self._running, self._bar.total) - self._bar.n)
        if self._lines:
            reason = f" ({episode.error})" if episode.error else ""
            line = f"seed {episode.seed}: {episode.outcome}{reason}, return {episode.total_reward:.4g}, {episode.length} steps"
            self._bar.write(line, file=sys.stderr, nolock=True)  # Ctrl-C in tqdm's lock ends in an error of its own

    def __exit__(self, *error: object) -> None:
        """Leave the bar as it is."""
        self._bar.close()


def _title(series: Sequence[Series]) -> str:
    return series[0].label if len(series) == 1 else f"{len(series)} rows"
