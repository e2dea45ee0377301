"""`gym-text panel`: play the panel, check its digests, or verify a result file."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra, unknown_choice
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.files.safe_files import subfolder
from gym_text_policies.policy import text_spec
from gym_text_policies.report import calibration
from gym_text_policies.report.figures import Summary
from gym_text_policies.run.measure import measure
from gym_text_policies.run.panel.reference import check, the_reference
from gym_text_policies.run.panel.results import EpisodeResult, Result, WorldResult, check_name, terminal_table
from gym_text_policies.run.panel.verify import verify
from gym_text_policies.run.panel.worlds import Size, the_panel
from gym_text_policies.run.plan import PlanRow, Player, PlayerOptions, check_environments, player_in
from gym_text_policies.run.play import EpisodeOptions, Run, RunRow, check_some_played, open_run, versions
from gym_text_policies.run.progress import Progress


@dataclass(frozen=True, kw_only=True)
class PanelConfig(EpisodeOptions, PlayerOptions):
    """Play the panel: a fixed list of worlds, levels and limits, with a score for each world from 0 (chance) to 100 (the expert).

    First the digests of the levels are checked: they have to be those of the panel's version. Then each policy plays; a second run
    plays only what is missing in the folder. Each policy gets a result file, which holds every episode. An adapter answers in the
    mode in which it was trained, and any other language model in choose, unless options or the plan name a mode.
    """

    size: Size = "small"
    """How many levels of each world are played: one, small (10), medium (40) or full (200)."""
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
        RunError: If a digest differs, a result file does not hold, or all episodes ended in an error; the files are written.
    """
    if config.verify:
        return verify(Path(config.verify), again=config.check)
    if config.check:
        check(config.levels)
        count = sum(map(len, config.levels.values()))
        return (
            f"{count} levels of {len(config.levels)} worlds: all digests are those of version {the_panel().version} of the panel."
        )
    names, files = _file_names(config), []
    results = play(config)
    for result in results:
        files.append(str(path := subfolder(Path(config.folder), "results") / names[result.name]))
        result.write(path)
    errors = [episode.outcome == "error" for result in results for world in result.worlds.values() for episode in world.episodes]
    check_some_played(config.folder, [{"episodes": len(errors), "error": sum(errors)}])
    table = terminal_table(results, the_panel(), the_reference())
    return f"\n{table}\n\nResult files, one for each policy: {', '.join(files)}"


def _file_names(config: PanelConfig) -> dict[str, str]:
    """Return the name of each row's result file; raise `UsageError` if a row's name is wrong."""
    names: dict[str, str] = {}
    for row in config.players():
        check_name(row)
        name = re.sub(r"[^\w.]+", "-", "-".join([row, config.size, *config.only])).strip("-")
        taken = {other.casefold() for other in names.values()}  # some file systems ignore capitals
        names[row] = f"{name}-{len(names) + 1}.json" if f"{name}.json".casefold() in taken else f"{name}.json"
    return names


def play(config: PanelConfig) -> list[Result]:
    """Check the digests, play what is missing, and return the result of each policy."""
    import_extra("scipy", "bench")
    panel, players = the_panel(), config.players()
    check_environments(players, [world.environment for world in panel.worlds.values()])
    digests = check(config.levels)
    planned = {label: list(_plan_of(config, label, entries)) for label, entries in players.items()}
    plan = [row for rows in planned.values() for row in rows]
    if not plan:
        raise UsageError("models: expected a policy that plays a world of the panel; got none.")
    with open_run(config.folder, {"panel": panel.version}, plan, config) as run:
        run.play(Progress())
        measure(run, config.orders, config.best_actions)
        results, rows = [], iter(run.rows)
        for label, of_policy in planned.items():
            if of_policy:
                results.append(_result(config.size, label, players[label], [next(rows) for _ in of_policy], run, digests))
        return results


def _plan_of(config: PanelConfig, label: str, entries: Sequence[Player]) -> Iterator[PlanRow]:
    panel = the_panel()
    for name, levels in config.levels.items():
        world = panel.worlds[name]
        if (player := player_in(world.environment, entries)) is not None:
            policy = player.policy
            if world.history is not None and policy.asks_model:
                policy = dataclasses.replace(policy, history=world.history)
            yield PlanRow(label, world.environment, policy, levels, {"fold": panel.fold})


def _result(
    size: Size, label: str, entries: Sequence[Player], rows: Sequence[RunRow], run: Run, digests: Mapping[str, str]
) -> Result:
    """Return the result of a policy from its rows, one for each world that it has played."""
    panel, found, settings, measured = the_panel(), {}, {}, calibration.read_measured(run.store.folder)
    name_of = {world.environment: name for name, world in panel.worlds.items()}
    for row in rows:
        name = name_of[row.plan.environment]
        with contextlib.closing(panel.maker(name, expert="off")()) as env:
            spec = text_spec(env)
        played = list(run.episodes(row))
        episodes = tuple(EpisodeResult.of(episode, spec) for episode in played)
        summaries = [Summary.of(episode) for episode in played if episode.error is None]
        figures = calibration.figures(summaries, measured.get(played[0].key))
        policy: dict[str, Any] = without_secrets(dict(row.policy))
        found[name] = WorldResult(row.plan.environment, digests[name], policy, episodes, figures)
        player = player_in(row.plan.environment, entries)
        assert player is not None  # else there would be no row
        settings[name] = without_secrets(player.policy.to_json())
    first, *others = settings.values()
    by_world = settings if any(other != first for other in others) else first
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(panel.version, size, label, date, by_world, versions(), found)
