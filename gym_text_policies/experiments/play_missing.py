"""`play_missing`: the one way in which a run plays the episodes that its folder does not have yet.

The benchmark, experiments and the collection of training data all play by it: on any engine, resumable, with failures tried again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from gym_text.errors import RunError, import_extra
from gym_text.text_env import level_of
from gym_text_policies.engines.base import Engine, EpisodeJob, Identity
from gym_text_policies.environments import environment_maker
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

_logger = logging.getLogger(__name__)
_UNKNOWN_LIMIT = 100
"""Steps to expect of an episode whose environment names no limit."""
_KINDS = 5
"""Most kinds of errors of a series that are shown."""
_SHOWN = 300
"""Most characters of an error that are shown."""
_VARIES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:, (?:'[^']*'|"[^"]*"))*|(?<!HTTP )\b\d+(?:\.\d+)?""")
"""What may differ between errors of one kind: quoted texts and lists of them, and numbers that are no HTTP status."""


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
    """Play the episodes that are not stored, and store each as it ends. Then say the first error of each kind.

    Before anything is played, each model's server is asked once whether it can do what is missing.

    Args:
        store: Of the run folder.
        series: What belongs to the run.
        engine: Where it is played: one series after the other, or all at the same time where the engine spreads its work.
        watch: Shows progress.
        retry_errors: Whether episodes that ended in an error are played again.

    Raises:
        UsageError: If a model's server does not answer, or not in the way that is needed. Nothing has been played then.
    """
    watch = watch or Progress()
    found = list(zip(series, check_missing(store, series, engine, retry_errors=retry_errors), strict=True))
    for together in [found] if engine.spreads else [[one] for one in found]:
        missing = sum(len(seeds) for _, seeds in together)
        if missing:
            with watch.showing([one for one, _ in together], store, missing):
                for episode in engine.play([(one.job, seeds) for one, seeds in together], watch=watch.turns):
                    store.append(episode)
                    watch.ended(episode)
        for one, _ in together:
            _tell_older(store, one)
            _tell_errors(store, one)


def check_missing(store: EpisodeStore, series: Sequence[Series], engine: Engine, *, retry_errors: bool = False) -> list[list[int]]:
    """Return for each series the seeds whose episodes are missing, after the engine has checked that they can be played.

    Args:
        store: Of the run folder.
        series: What belongs to the run.
        engine: Where it is to be played.
        retry_errors: Whether episodes that ended in an error are missing.

    Raises:
        UsageError: If a model's server does not answer, or not in the way that is needed.
    """
    missing = [[seed for seed, key in one.keys.items() if not store.has(key, retry_errors=retry_errors)] for one in series]
    for one, seeds in zip(series, missing, strict=True):
        if seeds:
            engine.check(one.job)
            _tell_repeated_levels(one)
    return missing


def stored(store: EpisodeStore, series: Series) -> Iterator[Episode]:
    """Yield the stored episodes of a series, in the order of its seeds."""
    return store.episodes(series.keys.values())


def check_some_played(folder: object, rows: Iterable[Mapping[str, int]]) -> None:
    """Raise `RunError` if all of a run's episodes ended in an error, so that its command does not end in success.

    Args:
        folder: Of the run, for the message.
        rows: Of its table: how many ``episodes`` each has, and how many of them ended in an ``error``.
    """
    rows = list(rows)
    errors, episodes = (sum(row[name] for row in rows) for name in ("error", "episodes"))
    if errors and errors == episodes:
        raise RunError(
            f"{folder}: expected an episode without an error; all {episodes} ended in one. "
            "The warnings above show why; after the repair retry_errors plays them again."
        )


def kinds_of_errors(errors: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return kind -> (the first error of the kind, how many there are). What is quoted, and numbers, do not count in a kind."""
    found: dict[str, tuple[str, int]] = {}
    for error in errors:
        first_line = error.partition("\n")[0]
        kind = _VARIES.sub("…", first_line)
        first, count = found.get(kind, (first_line, 0))
        found[kind] = first, count + 1
    return found


def _tell_older(store: EpisodeStore, series: Series) -> None:
    """Say how many stored episodes do not count any more, as they do not say of which weights they are."""
    older = sum(store.has(key) for seed in series.seeds if (key := series.identity.older_key(seed)) != series.keys[seed])
    if older:
        _logger.info(
            "%s: %d episodes in %s were recorded before a model's weights were part of what identifies it; they are kept, and do "
            "not count here.",
            *(series.label, older, store.path),
        )


def _tell_repeated_levels(series: Series) -> None:
    """Warn if seeds of a series play the same levels again, as beyond the last level of a fold."""
    with environment_maker(series.job.environment, **series.job.arguments)() as env:
        levels = {level_of(env, seed) for seed in series.seeds}
    if len(levels) < len(series.seeds) and None not in levels:
        _logger.warning(
            "%s: %s seeds play %s levels. A level that is played again is no new evidence: it counts once in means and intervals.",
            *(series.label, f"{len(series.seeds):,}", f"{len(levels):,}"),
        )


def _tell_errors(store: EpisodeStore, series: Series) -> None:
    """Warn of the stored errors of a series: the first of each kind, the most frequent kinds first."""
    keys = [key for key in series.keys.values() if store.has(key) and not store.has(key, retry_errors=True)]
    if not keys:
        return
    kinds = kinds_of_errors(episode.error or "" for episode in store.episodes(keys))
    told = sorted(kinds.values(), key=lambda one: -one[1])
    lines = [f"  {count} x {error[:_SHOWN]}{' …' if len(error) > _SHOWN else ''}" for error, count in told[:_KINDS]]
    if len(told) > _KINDS:
        lines.append(f"  and {len(told) - _KINDS} other kinds")
    _logger.warning(
        "%s: %d of %d episodes ended in an error. The first of each kind:\n%s\nAll are in %s; retry_errors plays them again.",
        *(series.label, len(keys), len(series.keys), "\n".join(lines), store.path),
    )


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
        self._logs = contextlib.ExitStack()

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
        above_the_bar = import_extra("tqdm.contrib.logging", "bench").logging_redirect_tqdm
        self._logs.enter_context(above_the_bar())
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
        self._logs.close()
        self._bar.close()


def _title(series: Sequence[Series]) -> str:
    return series[0].label if len(series) == 1 else f"{len(series)} rows"
