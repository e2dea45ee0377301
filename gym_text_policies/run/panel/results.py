"""Result files: one policy in the panel, with every episode, so that anybody can compute its scores again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gym_text.errors import UsageError
from gym_text.spec import TextSpec
from gym_text_policies.files.json_data import is_finite
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.records import Episode, Outcome
from gym_text_policies.run.panel.reference import Reference
from gym_text_policies.run.panel.scores import scores
from gym_text_policies.run.panel.worlds import SIZES, Panel, Size

MOST_BYTES = 20_000_000
"""Most bytes of a result file; a full one has about three million."""
_NAME = re.compile(r"[\w .,:;+/()=%†-]{1,100}", re.ASCII)
"""A policy's name. It stands in tables and on web pages, so that it has no markup."""
_DIGEST = re.compile(r"[0-9a-f]{16}")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+00:00)?")


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
    made: str
    """When the file was made, in UTC."""
    settings: Mapping[str, Any]
    """The settings that the user gave; of each world if they differ."""
    versions: Mapping[str, str]
    """Versions of packages."""
    worlds: Mapping[str, WorldResult]

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

    def table(self, panel: Panel, reference: Reference) -> dict[str, Any]:
        """Return the figures: of each world, and the mean over all worlds of the panel if all were played.

        A world has a score if each of its levels has an episode, none of which ended in an error. Return and success are means over
        the episodes that did not end in an error.
        """
        whole = {
            name: [episode.total_reward for episode in world.episodes]
            for name, world in self.worlds.items()
            if [episode.level for episode in world.episodes] == list(panel.levels(name, self.size))
            and len(world.played) == len(world.episodes)
        }
        found, mean = scores(whole, reference.worlds) if whole else ({}, None)
        rows = {}
        for name, world in self.worlds.items():
            score, played = found.get(name), world.played
            won = sum(episode.outcome == "won" for episode in played)
            total, count = sum(episode.total_reward for episode in played), len(played)
            figures = {"return": total / count, "success": won / count} if count else {"return": None, "success": None}
            rows[name] = {"score": None if score is None else score.value, "interval": score and [*score.interval], **figures}
        complete = mean if mean is not None and whole.keys() == panel.worlds.keys() else None
        return {"worlds": rows, "mean": complete and complete.value, "interval": complete and [*complete.interval]}

    def write(self, path: Path, panel: Panel, reference: Reference) -> None:
        """Write the file: an episode a line, and the table last."""
        record = {**dataclasses.asdict(self), "table": self.table(panel, reference)}
        text = json.dumps(record, indent=1, ensure_ascii=False)
        episodes = re.compile(r"\{\s+\"level\"[^{}]*\}")
        write_atomically(path, episodes.sub(lambda found: re.sub(r"\n +", " ", found[0]), text) + "\n")


def check_name(name: str) -> None:
    """Raise `UsageError` if `read_result` would refuse the name of a policy."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"row {name!r}: expected at most 100 letters, digits, spaces and characters of .,:;+/()=%†- as its name in result "
            "files. Give it a short name in a file of --plan, as in 'mine: {model: MODEL, mode: choose}'."
        )


def action_names(spec: TextSpec, observation: Mapping[str, Any]) -> list[str]:
    """Return the names of the valid actions, sorted, of an observation or of its record."""
    return sorted(spec.names({key: tuple(value) if isinstance(value, list) else value for key, value in observation.items()}))


def read_result(path: Path) -> tuple[Result, Any]:
    """Read a result file, which may come from anybody.

    Returns:
        The result, and the table that the file states.

    Raises:
        UsageError: If it is too large, no JSON, or not of the form of a result file.
    """
    check_regular(path)
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(f"{path}: expected at most {MOST_BYTES:,} bytes; it has {path.stat().st_size:,}.")
    try:
        data = json.loads(path.read_bytes().decode("utf-8"))
        entries = _entries("the file", data, [*(field.name for field in dataclasses.fields(Result)), "table"])
        return _result(entries), entries["table"]
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: expected a result file of the panel, as `gym-text panel` writes into the folder results of its run folder; "
            f"{error or 'too many levels of brackets'}"
        ) from None


def _result(data: Mapping[str, Any]) -> Result:
    worlds = {str(name): _world(f"worlds.{name}", world) for name, world in _mapping("worlds", data["worlds"], 100).items()}
    versions = {name: _text(f"versions.{name}", value) for name, value in _mapping("versions", data["versions"], 100).items()}
    return Result(
        _whole("panel", data["panel"]),
        _one_of("size", data["size"], SIZES),
        _matching("name", data["name"], _NAME),
        _matching("made", data["made"], _DATE),
        _mapping("settings", data["settings"], 200),
        versions,
        worlds,
    )


def _world(where: str, data: Any) -> WorldResult:
    entries = _entries(where, data, [field.name for field in dataclasses.fields(WorldResult)])
    episodes = _list(f"{where}.episodes", entries["episodes"], 10_000)
    return WorldResult(
        _text(f"{where}.environment", entries["environment"]),
        _matching(f"{where}.digest", entries["digest"], _DIGEST),
        _mapping(f"{where}.policy", entries["policy"], 200),
        tuple(_episode(f"{where}.episodes[{number}]", episode) for number, episode in enumerate(episodes)),
    )


def _episode(where: str, data: Any) -> EpisodeResult:
    entries = _entries(where, data, [field.name for field in dataclasses.fields(EpisodeResult)])
    outcome = _one_of(f"{where}.outcome", entries["outcome"], get_args(Outcome))
    actions = _list(f"{where}.actions", entries["actions"], 10_000)
    if not is_finite(entries["total_reward"]):
        raise _unfit(f"{where}.total_reward", "a number", entries["total_reward"])
    prompts = entries["prompts"]
    return EpisodeResult(
        _whole(f"{where}.level", entries["level"]),
        float(entries["total_reward"]),
        _whole(f"{where}.length", entries["length"]),
        outcome,
        _whole(f"{where}.invalid", entries["invalid"]),
        tuple(a if isinstance(a, str) else _whole(f"{where}.actions", a) for a in actions),
        None if prompts is None else _matching(f"{where}.prompts", prompts, _DIGEST),
    )


def _unfit(where: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{where}: expected {expected}; got {str(value)[:60]!r}.")


def _entries(where: str, value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return a mapping that has exactly these keys."""
    entries: dict[str, Any] = _mapping(where, value, 1000)
    if wrong := other_keys(entries, names):
        raise ValueError(f"{where}: expected the keys {', '.join(names)}; {wrong}.")
    return entries


def other_keys(entries: Mapping[str, Any], names: Collection[str]) -> str:
    """Return which keys are missing and which are unknown; empty if there are none. The keys may come from anybody."""
    missing, unknown = [name for name in names if name not in entries], [key for key in entries if key not in names]
    return "; ".join(f"{what}: {_listed(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys)


def _listed(keys: Sequence[str], most: int = 20) -> str:
    more = [f"and {len(keys) - most} more"] if len(keys) > most else []
    return ", ".join([*(repr(key[:60]) for key in keys[:most]), *more])


def _checker(kind: type[Any], words: str) -> Callable[[str, Any, int], Any]:
    def check(where: str, value: Any, most: int) -> Any:
        if not isinstance(value, kind) or len(value) > most:
            raise _unfit(where, f"{words} of at most {most:,} entries", value)
        return value

    return check


_mapping = _checker(dict, "a mapping")
_list = _checker(list, "a list")


def _whole(where: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 1_000_000:
        raise _unfit(where, "a whole number from 0 to 1,000,000", value)
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 300:
        raise _unfit(where, "a text of at most 300 characters", value)
    return value


def _matching(where: str, value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _unfit(where, f"a text like {pattern.pattern}", value)
    return value


def _one_of(where: str, value: Any, choices: Iterable[Any]) -> Any:
    if value not in tuple(choices):
        raise _unfit(where, f"one of {', '.join(choices)}", value)
    return value
