"""`gym-text panel`: play the panel, check its digests, or verify a result file."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from gym_text.errors import UsageError, check_choice, import_extra, unknown_choice
from gym_text_policies.engines.base import Engine, EpisodeJob
from gym_text_policies.engines.options import EpisodeOptions
from gym_text_policies.experiments.bench_table import versions
from gym_text_policies.experiments.play_missing import check_some_played, play_missing, stored
from gym_text_policies.experiments.players import Players
from gym_text_policies.experiments.progress import ProgressBar
from gym_text_policies.experiments.series import Series
from gym_text_policies.experiments.variants import Variant
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.panel.page import terminal_table
from gym_text_policies.panel.reference import Watch, check, the_reference
from gym_text_policies.panel.results import EpisodeResult, Result, WorldResult, check_name
from gym_text_policies.panel.verify import verify
from gym_text_policies.panel.worlds import SIZES, Panel, Size, the_panel
from gym_text_policies.policies.config import Mode, PolicyConfig
from gym_text_policies.policy import text_spec
from gym_text_policies.store import EpisodeStore


@dataclass(frozen=True, kw_only=True)
class PanelConfig(EpisodeOptions, Players):
    """Play the panel: a fixed list of worlds, levels and limits, with a score for each world from 0 (chance) to 100 (the expert).

    First the digests of the levels are checked: they have to be those of the panel's version. Then each policy plays; a second run
    plays only what is missing in the folder. Each policy gets a result file, which holds every episode.
    """

    usual_modes: ClassVar[tuple[Mode, ...]] = ("choose",)

    modes: tuple[Mode, ...] = ()
    """How language models answer: text, json, choose or tool. Each mode is a row. By default an adapter answers in the mode in
    which it was trained, and any other model in choose."""
    size: Size = "small"
    """How many levels of each world are played: small (10), medium (40) or full (200)."""
    only: tuple[str, ...] = ()
    """Worlds that are played; by default all. A policy that plays only some has no mean."""
    folder: str = "runs/panel"
    """Run folder, which keeps episodes and result files. Episodes that it has are not played again."""
    check: bool = False
    """Play nothing: compute the digests of the levels anew, and say where they differ from the panel's."""
    verify: str = ""
    """Play nothing: read this result file, compute its table from its episodes, and say what does not fit. With check, its
    actions are also played again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Players.__post_init__(self)
        check_choice("size", self.size, SIZES)
        for name in self.only:
            if name not in the_panel().worlds:
                raise unknown_choice("world", name, the_panel().worlds)

    @property
    def levels(self) -> dict[str, range]:
        """The worlds that are played, and their levels."""
        panel = the_panel()
        return {name: panel.levels(name, self.size) for name in panel.worlds if name in self.only or not self.only}


def run(config: PanelConfig) -> str:
    """Play, check or verify; return what the terminal shows.

    Raises:
        UsageError: If two rows would have the same result file; nothing is played then.
        RunError: If a digest differs, a result file does not hold, or all episodes ended in an error; the files are written.
    """
    if config.verify:
        return verify(Path(config.verify), again=config.check)
    if config.check:
        with _watching(config.levels) as watch:
            check(config.levels, watch)
        count = sum(map(len, config.levels.values()))
        return (
            f"{count} levels of {len(config.levels)} worlds: all digests are those of version {the_panel().version} of the panel."
        )
    names, files = _file_names(config), []
    results = play(config)
    for result in results:
        files.append(str(path := subfolder(Path(config.folder), "results") / names[result.name]))
        result.write(path, the_panel(), the_reference())
    errors = [episode.outcome == "error" for result in results for world in result.worlds.values() for episode in world.episodes]
    check_some_played(config.folder, [{"episodes": len(errors), "error": sum(errors)}])
    table = terminal_table(results, the_panel(), the_reference())
    return f"\n{table}\n\nResult files, one for each policy: {', '.join(files)}"


def _file_names(config: PanelConfig) -> dict[str, str]:
    """Return the name of each row's result file.

    Raises:
        UsageError: If two rows would have the same.
    """
    names: dict[str, str] = {}
    for row in config.rows():
        parts = [row, config.size, *config.only]  # a part does not replace the file of all worlds
        name = re.sub(r"[^\w.]+", "-", "-".join(parts)).strip("-") + ".json"
        for other, known in names.items():
            if known.casefold() == name.casefold():  # some file systems do not tell capitals apart
                raise UsageError(
                    f"rows: expected a result file for each; {other!r} and {row!r} would both have {name}. "
                    "Give them names in a file of --variants that differ in letters or digits."
                )
        names[row] = name
    return names


def play(config: PanelConfig) -> list[Result]:
    """Check the digests, play what is missing, and return the result of each policy.

    Raises:
        UsageError: If no result file can have the name of a row, or a row names an environment that the panel does not have;
            nothing is played then.
    """
    import_extra("scipy", "bench")
    panel = the_panel()
    for name, variant in config.rows().items():
        check_name(name)
        variant.check_environments(name, [world.environment for world in panel.worlds.values()])
    with _watching(config.levels) as watch:
        digests = check(config.levels, watch)
    with EpisodeStore(config.folder, {"panel": panel.version}) as store, config.make_engine() as engine:
        rows = {label: _series(config, panel, label, row, engine) for label, row in config.rows().items()}
        series = [row for worlds in rows.values() for row in worlds.values()]
        if not series:
            raise UsageError("models: expected a policy that plays a world of the panel; got none.")
        play_missing(store, series, engine, ProgressBar(), retry_errors=config.retry_errors, fresh=config.fresh)
        return [_result(config, label, worlds, store, digests) for label, worlds in rows.items() if worlds]


def _series(config: PanelConfig, panel: Panel, label: str, row: Variant, engine: Engine) -> dict[str, Series]:
    """Return the episodes of a policy in each world that it plays."""
    found = {}
    for name, levels in config.levels.items():
        world = panel.worlds[name]
        if (playing := row.playing(world.environment)) is not None:
            policy: PolicyConfig = playing.policy
            if world.history is not None and policy.asks_model:
                policy = dataclasses.replace(policy, history=world.history)
            job = EpisodeJob(
                *(world.environment, {"fold": panel.fold}, policy),
                num_envs=config.num_envs,
                max_concurrency=config.max_concurrency,
            )
            found[name] = Series.of(f"{name}, {label}", job, engine, levels)
    return found


def _result(
    config: PanelConfig, label: str, worlds: Mapping[str, Series], store: EpisodeStore, digests: Mapping[str, str]
) -> Result:
    panel, found = the_panel(), {}
    for name, series in worlds.items():
        with contextlib.closing(panel.maker(name, expert="off")()) as env:
            spec = text_spec(env)
        episodes = tuple(EpisodeResult.of(episode, spec) for episode in stored(store, series))
        policy: dict[str, Any] = without_secrets(dict(series.identity.policy))
        found[name] = WorldResult(panel.worlds[name].environment, digests[name], policy, episodes)
    given = {name: config.rows()[label].playing(panel.worlds[name].environment) for name in worlds}
    by_world: dict[str, Any] = {name: without_secrets(entry.policy.to_json()) for name, entry in given.items() if entry}
    first, *others = by_world.values()
    settings = by_world if any(other != first for other in others) else first
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(panel.version, config.size, label, made, settings, versions(), found)


@contextlib.contextmanager
def _watching(levels: Mapping[str, Sequence[int]]) -> Iterator[Watch]:
    """Show a bar of the levels whose digests have been computed."""
    tqdm = import_extra("tqdm", "bench").tqdm
    with tqdm(total=sum(map(len, levels.values())), desc="digests", unit=" levels", leave=False) as bar:

        def watch(name: str, done: int) -> None:
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        yield watch
