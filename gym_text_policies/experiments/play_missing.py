"""`play_missing`: the one way in which a run plays the episodes that its folder does not have yet.

The benchmark, experiments and the collection of training data all play by it: on any engine, resumable, with failures tried again.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gym_text.errors import RunError
from gym_text.text_env import level_of
from gym_text_policies.engines.base import Engine
from gym_text_policies.environments import environment_maker
from gym_text_policies.experiments.progress import Progress
from gym_text_policies.experiments.series import Series, naming
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

Work = tuple[Series, Sequence[int]]
"""A series, and its seeds that are missing."""
_logger = logging.getLogger(__name__)
_KINDS = 5
"""Most kinds of errors of a series that are shown."""
_SHOWN = 300
"""Most characters of an error that are shown."""
_VARIES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:, (?:'[^']*'|"[^"]*"))*|(?<!HTTP )\b\d+(?:\.\d+)?""")
"""What may differ between errors of one kind: quoted texts and lists of them, and numbers that are no HTTP status."""


def play_missing(
    store: EpisodeStore,
    series: Sequence[Series],
    engine: Engine,
    watch: Progress | None = None,
    *,
    missing: Sequence[Sequence[int]] | None = None,
    retry_errors: bool = False,
    fresh: bool = False,
) -> int:
    """Play the episodes that are not stored, and store each as it ends. Then say the first error of each kind.

    Before anything is played, each model's server is asked once whether it can do what is missing, and each model in this process
    is loaded once. An engine that plays one series after the other plays all of a model together.

    Args:
        store: Of the run folder.
        series: What belongs to the run.
        engine: Where it is played: one series after the other, or all at the same time where the engine spreads its work.
        watch: Shows progress.
        missing: What `check_missing` has returned, if it was called before.
        retry_errors: Whether episodes that ended in an error are played again.
        fresh: Whether all episodes are played again. The last record of an episode counts.

    Returns:
        How many episodes were found, and not played.

    Raises:
        UsageError: If a model's server does not answer, or not in the way that is needed. Nothing has been played then.
    """
    watch = watch or Progress()
    if missing is None:
        missing = check_missing(store, series, engine, retry_errors=retry_errors, fresh=fresh)
    work = list(zip(series, missing, strict=True))
    for one, seeds in work:
        if len(seeds) < len(one.seeds):
            _logger.info("%s: %d of %d episodes found", one.label, len(one.seeds) - len(seeds), len(one.seeds))
    for together in [work] if engine.spreads else [[one] for one in _by_model(work)]:
        _play(store, together, engine, watch)
        for one, _ in together:
            _tell_older(store, one)
            _tell_errors(store, one)
    return sum(len(one.seeds) - len(seeds) for one, seeds in work)


def check_missing(
    store: EpisodeStore, series: Sequence[Series], engine: Engine, *, retry_errors: bool = False, fresh: bool = False
) -> list[list[int]]:
    """Return for each series the seeds whose episodes are missing, after the engine has checked that they can be played.

    What an earlier series is to play is not missing in a later one.

    Args:
        store: Of the run folder.
        series: What belongs to the run.
        engine: Where it is to be played.
        retry_errors: Whether episodes that ended in an error are missing.
        fresh: Whether all are.

    Raises:
        UsageError: If a model's server does not answer, or not in the way that is needed.
    """
    planned: set[str] = set()
    missing = []
    for one in series:
        new = {key: seed for seed, key in one.keys.items() if fresh or not store.has(key, retry_errors=retry_errors)}
        missing.append([seed for key, seed in new.items() if key not in planned])
        planned |= new.keys()
    for one, seeds in reversed(_by_model(list(zip(series, missing, strict=True)))):  # the model that plays first is loaded last
        if seeds:
            with naming(one.label):
                engine.check(one.job)
            _tell_repeated_levels(one)
    return missing


def _by_model(work: Sequence[Work]) -> list[Work]:
    """Return the series in such an order that those of one model stay together."""
    models = list(dict.fromkeys(one.model for one, _ in work))
    return sorted(work, key=lambda item: models.index(item[0].model))


def _play(store: EpisodeStore, work: Sequence[Work], engine: Engine, watch: Progress) -> None:
    """Play some series, and store each episode as it ends."""
    missing = sum(len(seeds) for _, seeds in work)
    if not missing:
        return
    label = work[0][0].label if len(work) == 1 else ""
    with watch.showing([one for one, _ in work], store, missing), naming(label) if label else contextlib.nullcontext():
        for episode in engine.play([(one.job, seeds) for one, seeds in work], watch=watch.turns):
            store.append(episode)
            watch.ended(episode)


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
