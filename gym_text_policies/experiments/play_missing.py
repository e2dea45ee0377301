"""`play_missing`: play the episodes of a run that its folder does not have yet.

The commands bench, run and collect play by this function alone. It plays on any engine, goes on where a run was stopped, and can
play episodes again that ended in an error.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gym_text.errors import RunError
from gym_text.folds import level_of
from gym_text_policies.engines.base import Engine, Turns
from gym_text_policies.environments import environment_maker
from gym_text_policies.experiments.progress import Progress
from gym_text_policies.experiments.series import Series, Work, naming
from gym_text_policies.records import Episode
from gym_text_policies.store import EpisodeStore

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
    """Play the episodes that are not stored, and store each episode when it ends. Then log the first error of each kind.

    Before the first episode, each model's server is asked whether it can answer as the episodes need, and each model in this
    process is loaded. The series of a model come one after the other.

    Args:
        store: The run folder's episodes.
        series: The episodes of the run.
        engine: Plays one series after the other, or all at the same time if it spreads its work.
        watch: Shows progress.
        missing: The result of `check_missing`, if the caller has called it.
        retry_errors: Whether episodes that ended in an error are played again.
        fresh: Whether all episodes are played again. The last record of an episode counts.

    Returns:
        How many episodes were stored already.

    Raises:
        UsageError: If a model's server does not answer, or cannot answer as the episodes need. No episode has been played then.
    """
    watch = watch or Progress()
    if missing is None:
        missing = check_missing(store, series, engine, retry_errors=retry_errors, fresh=fresh)
    work = list(zip(series, missing, strict=True))
    for row, seeds in work:
        if len(seeds) < len(row.seeds):
            _logger.info("%s: %d of %d episodes are stored already", row.label, len(row.seeds) - len(seeds), len(row.seeds))
    to_play = _by_model(work)
    numbers = [number for number, (_, seeds) in enumerate(to_play) if seeds]
    with watch.showing(to_play, store) if numbers else contextlib.nullcontext():
        for together in filter(None, [numbers] if engine.spreads else [[number] for number in numbers]):
            _play(store, to_play, together, engine, watch)
    for row, _ in work:
        _tell_errors(store, row)
    return sum(len(row.seeds) - len(seeds) for row, seeds in work)


def check_missing(
    store: EpisodeStore, series: Sequence[Series], engine: Engine, *, retry_errors: bool = False, fresh: bool = False
) -> list[list[int]]:
    """Return the seeds of each series whose episodes are missing, after the engine has checked that their policies can decide.

    An episode that two series share is missing in the first one only.

    Args:
        store: The run folder's episodes.
        series: The episodes of the run.
        engine: Will play them.
        retry_errors: Whether an episode that ended in an error is missing.
        fresh: Whether every episode is missing.

    Raises:
        UsageError: If a model's server does not answer, or cannot answer as the episodes need.
    """
    planned: set[str] = set()
    missing = []
    for row in series:
        new = {key: seed for seed, key in row.keys.items() if fresh or not store.has(key, retry_errors=retry_errors)}
        missing.append([seed for key, seed in new.items() if key not in planned])
        planned |= new.keys()
    for row, seeds in reversed(_by_model(list(zip(series, missing, strict=True)))):  # the model that plays first is loaded last
        if seeds:
            with naming(row.label):
                engine.check(row.job)
            _tell_repeated_levels(row)
    return missing


def _by_model(work: Sequence[Work]) -> list[Work]:
    """Return the work sorted by model. Policies without a model are quick and come first; models keep the order of their rows."""
    models = list(dict.fromkeys(row.model for row, _ in sorted(work, key=lambda item: item[0].job.policy.asks_model)))
    return sorted(work, key=lambda item: models.index(item[0].model))


def _play(store: EpisodeStore, work: Sequence[Work], numbers: Sequence[int], engine: Engine, watch: Progress) -> None:
    """Play the missing episodes of the series with these numbers, and store each episode when it ends."""
    number_of = {work[number][0].keys[seed]: number for number in numbers for seed in work[number][1]}

    def count(turns: Turns) -> None:
        watch.turns(numbers[turns.job], turns.process, turns.decided)

    with naming(work[numbers[0]][0].label) if len(numbers) == 1 else contextlib.nullcontext():
        for episode in engine.play([(work[number][0].job, work[number][1]) for number in numbers], watch=count):
            store.append(episode)
            if episode.key not in number_of:
                raise RunError(
                    f"Seed {episode.seed}: expected a policy whose config stays as it was when the run began; it has changed, "
                    "so the run would not find this episode again. Set all that config tells in __init__."
                )
            watch.ended(number_of[episode.key], episode)


def stored(store: EpisodeStore, series: Series) -> Iterator[Episode]:
    """Yield the stored episodes of a series, in the order of its seeds."""
    return store.episodes(series.keys.values())


def check_some_played(folder: object, rows: Iterable[Mapping[str, int]]) -> None:
    """Raise `RunError` if all episodes of a run ended in an error: then the command's exit status is 1.

    Args:
        folder: The run folder, for the message.
        rows: The rows of the run's table: how many ``episodes`` each has, and how many of them ended in an ``error``.
    """
    rows = list(rows)
    errors, episodes = (sum(row[name] for row in rows) for name in ("error", "episodes"))
    if errors and errors == episodes:
        raise RunError(
            f"{folder}: expected an episode without an error; all {episodes} ended in one. "
            "The warnings above show why; after the repair retry_errors plays them again."
        )


def kinds_of_errors(errors: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return kind -> (the first error of this kind, their number). Errors of one kind differ only in numbers and quoted texts."""
    kinds: dict[str, tuple[str, int]] = {}
    for error in errors:
        first_line = error.partition("\n")[0]
        kind = _VARIES.sub("…", first_line)
        first, count = kinds.get(kind, (first_line, 0))
        kinds[kind] = first, count + 1
    return kinds


def _tell_repeated_levels(series: Series) -> None:
    """Warn if two seeds of a series play the same level, as beyond the last level of a fold."""
    with environment_maker(series.job.environment, **series.job.arguments)() as env:
        levels = {level_of(env, seed) for seed in series.seeds}
    if len(levels) < len(series.seeds) and None not in levels:
        _logger.warning(
            "%s: %s seeds play %s levels. A level that is played again is no new evidence: it counts once in means and intervals.",
            *(series.label, f"{len(series.seeds):,}", f"{len(levels):,}"),
        )


def _tell_errors(store: EpisodeStore, series: Series) -> None:
    """Warn of the stored errors of a series: the first error of each kind, the most frequent kind first."""
    keys = [key for key in series.keys.values() if store.has(key) and not store.has(key, retry_errors=True)]
    if not keys:
        return
    kinds = kinds_of_errors(episode.error or "" for episode in store.episodes(keys))
    frequent = sorted(kinds.values(), key=lambda kind: -kind[1])
    lines = [f"  {count} x {error[:_SHOWN]}{' …' if len(error) > _SHOWN else ''}" for error, count in frequent[:_KINDS]]
    if len(frequent) > _KINDS:
        lines.append(f"  and {len(frequent) - _KINDS} other kinds")
    _logger.warning(
        "%s: %d of %d episodes ended in an error. The first of each kind:\n%s\nAll are in %s; retry_errors plays them again.",
        *(series.label, len(keys), len(series.keys), "\n".join(lines), store.path),
    )
