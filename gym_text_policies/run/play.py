"""`Run`: a plan in a run folder. It plays what is missing, on any engine, and reads what is stored.

The commands bench, panel, run and collect play by this class alone. It goes on where a run was stopped, and can play episodes again
that ended in an error.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gym_text.errors import GymTextError, RunError, UsageError
from gym_text.folds import level_of
from gym_text_policies.environments import environment_maker
from gym_text_policies.policy import episode_key
from gym_text_policies.records import Episode
from gym_text_policies.run.engine import Engine
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play_options import EpisodeOptions
from gym_text_policies.run.progress import Progress
from gym_text_policies.store import EpisodeStore

_logger = logging.getLogger(__name__)
_KINDS = 5
"""Most kinds of errors of a row that are shown."""
_SHOWN = 300
"""Most characters of an error that are shown."""
_VARIES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:, (?:'[^']*'|"[^"]*"))*|(?<!HTTP )\b\d+(?:\.\d+)?""")
"""What may differ between errors of one kind: quoted texts and lists of them, and numbers that are no HTTP status."""


@dataclass(frozen=True)
class RunRow:
    """A row of a plan, and the keys of its episodes."""

    plan: PlanRow
    environment: Mapping[str, Any]
    """The environment's configuration, as records have it."""
    policy: Mapping[str, Any]
    """The policy's configuration."""

    @cached_property
    def keys(self) -> dict[int, str]:
        """Key of the episode of each seed."""
        return {seed: episode_key(self.environment, self.policy, seed) for seed in self.plan.seeds}

    @property
    def model(self) -> str:
        """A text that is equal for two rows that ask the same model."""
        return repr((self.plan.policy.model, sorted(self.plan.policy.options.items(), key=str)))


class Run:
    """The rows of a plan in a run folder.

    Args:
        plan: The rows.
        store: The run folder's episodes.
        engine: Plays one row after the other, or all at the same time if it spreads its work.
        options: How many episodes run at once, and which stored episodes are played again.

    Raises:
        UsageError: If a row names an environment, a model or settings that do not exist.
    """

    def __init__(self, plan: Iterable[PlanRow], store: EpisodeStore, engine: Engine, options: EpisodeOptions) -> None:
        self.store = store
        self._engine = engine
        self._options = options
        self.rows = [self._row(row) for row in plan]

    def _row(self, row: PlanRow) -> RunRow:
        with naming(row.name):
            return RunRow(row, *self._engine.identify(row))

    @cached_property
    def missing(self) -> list[list[int]]:
        """The seeds of each row whose episodes will be played; an episode that two rows share is missing in the first one only.

        Before, each model's server is asked whether it can answer as the episodes need, and each model in this process is loaded.

        Raises:
            UsageError: If a model's server does not answer, or cannot answer as the episodes need.
        """
        planned: set[str] = set()
        missing = []
        for row in self.rows:
            new = {key: seed for seed, key in row.keys.items() if not self._counts(key)}
            missing.append([seed for key, seed in new.items() if key not in planned])
            planned |= new.keys()
        for number in reversed(self._by_model):  # the model that plays first is loaded last
            if missing[number]:
                with naming(self.rows[number].plan.name):
                    self._engine.check(self.rows[number].plan)
                _tell_repeated_levels(self.rows[number].plan)
        return missing

    def _counts(self, key: str) -> bool:
        return not self._options.fresh and self.store.has(key, retry_errors=self._options.retry_errors)

    @property
    def _by_model(self) -> list[int]:
        """Numbers of the rows in the order of play: those without a model, which are quick, then those of each model."""
        order = sorted(range(len(self.rows)), key=lambda number: self.rows[number].plan.policy.asks_model)
        models = list(dict.fromkeys(self.rows[number].model for number in order))
        return sorted(order, key=lambda number: models.index(self.rows[number].model))

    def play(self, progress: Progress | None = None) -> int:
        """Play the episodes that are missing, and store each when it ends. Then log the first error of each kind.

        Returns:
            How many episodes were stored already.

        Raises:
            UsageError: See `missing`. No episode has been played then.
        """
        for row, seeds in zip(self.rows, self.missing, strict=True):
            if len(seeds) < len(row.keys):
                _logger.info("%s: %d of %d episodes are stored already", row.plan.name, len(row.keys) - len(seeds), len(row.keys))
        numbers = [number for number in self._by_model if self.missing[number]]
        with progress or Progress(shown=False) as shown:
            for together in filter(None, [numbers] if self._engine.spreads else [[number] for number in numbers]):
                self._play(together, shown)
        for row in self.rows:
            self._tell_errors(row)
        return sum(len(row.keys) - len(seeds) for row, seeds in zip(self.rows, self.missing, strict=True))

    def _play(self, numbers: Sequence[int], progress: Progress) -> None:
        """Play the missing episodes of the rows with these numbers, and store each episode when it ends."""
        number_of = {self.rows[number].keys[seed]: number for number in numbers for seed in self.missing[number]}
        self._begin(waiting := list(numbers), numbers[0], progress)
        rows = [replace(self.rows[number].plan, seeds=self.missing[number]) for number in numbers]
        with naming(rows[0].name) if len(rows) == 1 else contextlib.nullcontext():
            for episode in self._engine.play(rows):
                self.store.append(episode)
                if episode.key not in number_of:
                    raise RunError(
                        f"Seed {episode.seed}: expected a policy whose config stays as it was when the run began; it has changed, "
                        "so the run would not find this episode again. Set all that config tells in __init__."
                    )
                self._begin(waiting, number_of[episode.key], progress)
                progress.ended(self.rows[number_of[episode.key]].plan.name, episode)

    def _begin(self, waiting: list[int], number: int, progress: Progress) -> None:
        """Show the line of a row that begins to be played; its number leaves those that wait."""
        if number in waiting:
            waiting.remove(number)
            row, seeds = self.rows[number], set(self.missing[number])
            stored = [key for seed, key in row.keys.items() if seed not in seeds]
            won = sum(episode.outcome == "won" for episode in self.store.episodes(stored))
            progress.begin(row.plan.name, len(row.keys), len(stored), won)

    def episodes(self, row: RunRow) -> Iterator[Episode]:
        """Yield the stored episodes of a row, in the order of its seeds."""
        return self.store.episodes(row.keys.values())

    def _tell_errors(self, row: RunRow) -> None:
        """Warn of the stored errors of a row: the first error of each kind, the most frequent kind first."""
        keys = [key for key in row.keys.values() if self.store.has(key) and not self.store.has(key, retry_errors=True)]
        if not keys:
            return
        kinds = kinds_of_errors(episode.error or "" for episode in self.store.episodes(keys))
        frequent = sorted(kinds.values(), key=lambda kind: -kind[1])
        lines = [f"  {count} x {error[:_SHOWN]}{' …' if len(error) > _SHOWN else ''}" for error, count in frequent[:_KINDS]]
        if len(frequent) > _KINDS:
            lines.append(f"  and {len(frequent) - _KINDS} other kinds")
        _logger.warning(
            "%s: %d of %d episodes ended in an error. The first of each kind:\n%s\nAll are in %s; retry_errors plays them again.",
            *(row.plan.name, len(keys), len(row.keys), "\n".join(lines), self.store.path),
        )


@contextlib.contextmanager
def open_run(folder: str, identity: Mapping[str, Any], plan: Iterable[PlanRow], options: EpisodeOptions) -> Iterator[Run]:
    """Open a plan in a run folder, on the engine that the options name.

    Args:
        folder: The run folder; made if it does not exist.
        identity: Settings that all runs into the folder share.
        plan: The rows.
        options: Where and how they are played.

    Raises:
        UsageError: If the folder belongs to other settings, or a row names what does not exist.
    """
    with EpisodeStore(folder, identity) as store, options.make_engine() as engine:
        yield Run(plan, store, engine, options)


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Add the name of a row to errors that the block raises: to a `UsageError`, and as a note to errors of a user's code."""
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{name}: {error}") from error
    except GymTextError:
        raise
    except Exception as error:
        error.add_note(f"This was in the row {name!r}.")
        raise


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


def _tell_repeated_levels(row: PlanRow) -> None:
    """Warn if two seeds of a row play the same level, as beyond the last level of a fold."""
    with contextlib.closing(environment_maker(row.environment, **row.arguments)()) as env:
        levels = {level_of(env, seed) for seed in row.seeds}
    if len(levels) < len(row.seeds) and None not in levels:
        _logger.warning(
            "%s: %s seeds play %s levels. A level that is played again is no new evidence: it counts once in means and intervals.",
            *(row.name, f"{len(row.seeds):,}", f"{len(levels):,}"),
        )
