"""Result files: one policy in the panel, with every episode, so that anybody can compute its scores again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gym_text.errors import UsageError
from gym_text.spec import TextSpec
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.policy import recorded
from gym_text_policies.records import Episode, Outcome
from gym_text_policies.report.calibration import FIGURES
from gym_text_policies.report.statistics import DRAWS, mean, percentiles
from gym_text_policies.report.table import aligned, interval, number
from gym_text_policies.run.panel.reference import Reference, WorldReference
from gym_text_policies.run.panel.worlds import Panel, Size
from gym_text_policies.settings.from_file import build
from gym_text_policies.settings.yaml_nodes import from_plain

MOST_BYTES = 20_000_000
"""Most bytes of a result file; a full one has about three million."""
_NAME = r"[\w .,:;+/()=%†-]{1,100}"
"""Pattern of a policy's name. It stands in tables and on web pages, so that it has no markup."""
_NO_SCORE: Mapping[str, Any] = {"score": None, "interval": None}
_MOST_SHOWN = 2000
"""Most characters of the mistakes of a file, which may come from anybody."""


@dataclass(frozen=True)
class EpisodeResult:
    """An episode."""

    level: int
    total_reward: float
    """The return."""
    length: int
    """Number of steps."""
    outcome: Outcome
    invalid: int
    """Steps with an unusable answer, or with an action that the environment did not understand."""
    actions: tuple[int | str, ...]
    """Each action by its index in the sorted names of the valid actions, or by its name if it is none of them."""
    prompts: str | None
    """Hash of all prompts of the episode; None if no language model was asked."""

    @classmethod
    def of(cls, episode: Episode, spec: TextSpec) -> EpisodeResult:
        """Return what a result file keeps of an episode."""
        actions: list[int | str] = []
        for step in episode.steps:
            names = action_names(spec, step.observation)
            action = step.decision.action
            actions.append(names.index(action) if action in names else action)
        prompts = [step.decision.messages for step in episode.steps if step.decision.messages]
        text = json.dumps(prompts, sort_keys=True).encode()
        return cls(
            episode.seed,
            round(episode.total_reward, 6),
            episode.length,
            episode.outcome,
            episode.invalid,
            tuple(actions),
            hashlib.sha256(text).hexdigest()[:16] if prompts else None,
        )


@dataclass(frozen=True)
class WorldResult:
    """The episodes in one world."""

    environment: str
    """Name of the environment."""
    digest: str
    """One digest of the levels that were played, computed before they were played."""
    policy: Mapping[str, Any]
    """The resolved configuration of the policy."""
    episodes: tuple[EpisodeResult, ...]
    probabilities: Mapping[str, float | None] = field(default_factory=dict)
    """What the policy's probabilities are worth here, see `report.calibration.figures`; empty if nobody has measured that."""

    @property
    def played(self) -> list[EpisodeResult]:
        """The episodes that did not end in an error."""
        return [episode for episode in self.episodes if episode.outcome != "error"]


@dataclass(frozen=True)
class Result:
    """A policy in the panel."""

    panel: int
    """Version of the panel."""
    size: Size
    name: str
    """Name of the policy in tables."""
    date: str
    """When the episodes were scored, in UTC."""
    settings: Mapping[str, Any]
    """The settings that the user gave; of each world if they differ."""
    versions: Mapping[str, str]
    """Versions of packages."""
    worlds: Mapping[str, WorldResult]

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def played(self) -> list[EpisodeResult]:
        """All episodes that did not end in an error."""
        return [episode for world in self.worlds.values() for episode in world.played]

    @property
    def won(self) -> int:
        """Number of levels that were won."""
        return sum(episode.outcome == "won" for episode in self.played)

    @property
    def unusable(self) -> float | None:
        """Share of the steps with an unusable answer, or with an action that the environment did not understand."""
        steps = sum(episode.length for episode in self.played)
        return sum(episode.invalid for episode in self.played) / steps if steps else None

    @property
    def probabilities(self) -> dict[str, float | None]:
        """The figures of the policy's probabilities: of each the mean over the worlds in which it is known."""
        known = {name: [world.probabilities.get(name) for world in self.worlds.values()] for name in FIGURES}
        return {name: mean([value for value in values if value is not None]) for name, values in known.items()}

    def table(self, panel: Panel, reference: Reference) -> dict[str, Any]:
        """Return the figures: of each world, and the mean over all worlds of the panel if all were played.

        A world has a score if each of its levels has an episode, none of which ended in an error.
        """
        whole = {
            name: [episode.total_reward for episode in world.episodes]
            for name, world in self.worlds.items()
            if [episode.level for episode in world.episodes] == list(panel.levels(name, self.size))
            and len(world.played) == len(world.episodes)
        }
        found, mean = scores(whole, reference.worlds) if whole else ({}, _NO_SCORE)
        rows = {name: found.get(name, _NO_SCORE) for name in self.worlds}
        complete = mean if whole.keys() == panel.worlds.keys() else _NO_SCORE
        return {"worlds": rows, "mean": complete["score"], "interval": complete["interval"]}

    def write(self, path: Path) -> None:
        """Write the file: an episode a line."""
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False)
        episodes = re.compile(r"\{\s+\"level\"[^{}]*\}")
        write_atomically(path, episodes.sub(lambda found: re.sub(r"\n +", " ", found[0]), text) + "\n")


def check_name(name: str) -> None:
    """Raise `UsageError` if the name of a policy could not stand in tables and on web pages."""
    if not re.fullmatch(_NAME, name, re.ASCII):
        raise UsageError(
            f"row {name!r}: expected at most 100 letters, digits, spaces and characters of .,:;+/()=%†- as its name in result "
            "files. Give it a short name in a file of --plan, as in 'mine: {model: MODEL, mode: choose}'."
        )


def action_names(spec: TextSpec, observation: Mapping[str, Any]) -> list[str]:
    """Return the names of the valid actions, sorted, of an observation or of its record."""
    return sorted(spec.names(recorded(observation)))


def read_result(path: Path) -> Result:
    """Read a result file, which may come from anybody.

    Raises:
        UsageError: If it is too large, no JSON, or not of the form of a result file.
    """
    check_regular(path)
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(f"{path}: expected at most {MOST_BYTES:,} bytes; it has {path.stat().st_size:,}.")
    try:
        return build(Result, from_plain(json.loads(path.read_bytes().decode("utf-8"))))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: expected a result file of the panel, as `gym-text panel` writes into the folder results of its run folder; "
            f"{(str(error) or 'too many levels of brackets')[:_MOST_SHOWN]}"
        ) from None


def scores(
    returns: Mapping[str, Sequence[float]], worlds: Mapping[str, WorldReference]
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return ``score`` and its 95 % ``interval`` of each world, and those of the mean over the worlds.

    0 is what chance reaches on the same levels, 100 what the expert reaches. The interval has the percentiles of a bootstrap over
    the levels within each world. A level is drawn with what chance and the expert reach in it, so that the expert's score is 100 in
    each sample. Levels that all ended alike tell nothing of their spread.
    """
    samples, found = [], {}
    for name, played in returns.items():
        count, rng = len(played), np.random.default_rng(list(name.encode()))  # the same, whatever other worlds there are
        table = np.array([played, worlds[name].chance[:count], worlds[name].expert[:count]])
        samples.append(_score(table[:, rng.integers(count, size=(DRAWS, count))].mean(axis=2)))
        found[name] = {"score": float(_score(table.mean(axis=1))), "interval": [*percentiles(samples[-1])]}
    mean = float(np.mean([figures["score"] for figures in found.values()]))
    return found, {"score": mean, "interval": [*percentiles(np.mean(samples, axis=0))]}


def _score(means: np.ndarray) -> np.ndarray:
    """Return the score of mean returns: of the policy, of chance and of the expert."""
    policy, chance, expert = means
    return 100 * (policy - chance) / (expert - chance)  # type: ignore[no-any-return]


def terminal_table(results: Sequence[Result], panel: Panel, reference: Reference) -> str:
    """Return a row for each world and the mean, and a column for each policy."""
    tables = [result.table(panel, reference) for result in results]
    lines = [("world", "levels", "chance", "expert", *(result.name for result in results))]
    for name in panel.worlds:
        if not any(name in table["worlds"] for table in tables):
            continue
        levels, known = panel.levels(name, results[0].size), reference.worlds[name]
        ends = (number(mean(values[: len(levels)]), ".2f") for values in (known.chance, known.expert))
        lines.append((name, str(len(levels)), *ends, *(cell(table["worlds"].get(name)) for table in tables)))
    lines.append(("mean", "", "0", "100", *(cell({"score": table["mean"], **table}) for table in tables)))
    told = [facts(result) for result in results]
    lines += [(name, "", "", "", *row) for name in told[0] if set(row := [one[name] for one in told]) != {"-"}]
    return (
        f"{aligned(lines)}\n\nScore [95 %]: 0 is chance and 100 the expert on the same levels; a dash if a level is missing or "
        "ended in an error.\nChance and expert: their mean returns. Won: levels that were won, of those played; in Arithmetic and "
        "Sorting doing nothing has a\nscore, but wins nothing. Unusable: share of the steps whose answer could not be used.\n"
        "Means over the worlds that tell them: Brier score against the expert's action (of equal probabilities), calibration\n"
        "error, share of choices that stay in another order of the options, median seconds of a decision."
    )


def facts(result: Result) -> dict[str, str]:
    """Return what the tables tell beside the scores, by its name: wins, unusable answers, what the probabilities are worth."""
    figures = result.probabilities
    uniform = "" if figures["brier"] is None else f" ({number(figures['brier_uniform'], '.2f')})"
    return {
        "won": f"{result.won}/{len(result.played)}",
        "unusable": number(result.unusable, ".0%"),
        "Brier (uniform)": number(figures["brier"], ".2f") + uniform,
        "calibration error": number(figures["calibration_error"], ".2f"),
        "same choice": number(figures["same_choice"], ".2f"),
        "s / decision": number(figures["seconds_median"], ".2g"),
    }


def cell(figures: Mapping[str, Any] | None) -> str:
    """Return a score with its interval; empty for a world that was not played."""
    return short(figures) + ("" if figures is None else interval(figures["interval"], ".0f"))


def short(figures: Mapping[str, Any] | None) -> str:
    """Return a score without decimals; empty for a world that was not played."""
    if figures is None:
        return ""
    return "-" if figures["score"] is None else str(round(figures["score"]))
