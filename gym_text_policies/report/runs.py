"""Run folders, read: episodes by policy and environment, their pictures that move, and the curves of training."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.records import Episode
from gym_text_policies.report.curves import Curve, read_curves
from gym_text_policies.report.table import Summary, labels, row
from gym_text_policies.store import EpisodeStore

_OF_THE_POLICY = ("GoldAction", "History", "LastAction")
"""Wrappers that a policy puts on: the game behind them is the same."""
_OF_THE_RECORD = ("expert", "render_mode")
"""Keyword arguments that do not change the game."""


@dataclass(frozen=True)
class Variant:
    """A policy in an environment: one row of the table."""

    environment: str
    """What the environment is called in this report."""
    policy: str
    """What the policy is called; no other in this environment has the name."""
    episodes: tuple[Summary, ...]
    stores: Mapping[str, EpisodeStore]
    """Where each episode is kept, by its key."""
    gifs: tuple[Path, ...] = ()
    """Of its episodes, in the order of their seeds."""

    @cached_property
    def row(self) -> dict[str, Any]:
        """Its figures."""
        return row(self.environment, self.policy, self.episodes)


@dataclass(frozen=True)
class Runs:
    """All that one report is about."""

    variants: tuple[Variant, ...]
    """In the order of their first episodes, those of an environment together."""
    curves: tuple[Curve, ...]
    sources: tuple[Path, ...]
    """The folders that were read."""

    @property
    def environments(self) -> dict[str, list[Variant]]:
        """The variants of each environment."""
        groups: dict[str, list[Variant]] = {}
        for variant in self.variants:
            groups.setdefault(variant.environment, []).append(variant)
        return groups


def read_runs(folders: Iterable[str | Path]) -> Runs:
    """Read run folders, and the run folders in them.

    An episode that is in several folders counts once, as the last one has it.

    Raises:
        UsageError: If a folder is none, or has neither episodes nor curves.
    """
    roots = list(dict.fromkeys(Path(folder) for folder in folders))
    if not roots:
        raise UsageError("report: expected one or more run folders; got none.")
    places: dict[Path, None] = {}
    curves: dict[Curve, None] = {}
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"report: expected the folder of a run; {root} is none. `gym-text bench` and `gym-text run` make one.")
        found = sorted(path.parent for path in root.rglob("episodes.jsonl"))
        learnt = list(read_curves(root))
        if not found and not learnt:
            raise UsageError(f"report: expected a folder with episodes.jsonl or a training curve; {root} has neither.")
        places |= dict.fromkeys(found)
        curves |= dict.fromkeys(learnt)
    return Runs(tuple(_variants(places)), tuple(curves), tuple(roots))


def _variants(folders: Iterable[Path]) -> Iterator[Variant]:
    summaries: dict[str, dict[str, Summary]] = defaultdict(dict)  # group -> key -> summary
    stores: dict[str, EpisodeStore] = {}
    groups_of: dict[Path, set[str]] = defaultdict(set)
    called: dict[str, str] = {}  # group -> what the benchmark calls it
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # group -> the game, and all that tells rows apart
    for folder in folders:
        store, labelled = EpisodeStore(folder), labels(folder)
        for episode in store.episodes():
            group = json.dumps([episode.environment, episode.policy], sort_keys=True)
            kinds.setdefault(group, (_game(episode), {**episode.policy, "environment": episode.environment}))
            groups_of[folder].add(group)
            if episode.key in labelled:
                called[group] = labelled[episode.key]
            summaries[group][episode.key] = Summary.of(episode)
            stores[episode.key] = store
    gifs = {next(iter(groups)): _gifs(folder) for folder, groups in groups_of.items() if len(groups) == 1}
    by_game: dict[str, list[str]] = {}
    for group, (game, _) in kinds.items():
        by_game.setdefault(json.dumps(game, sort_keys=True), []).append(group)
    games = [kinds[groups[0]][0] for groups in by_game.values()]
    names = distinct([game_name(game) for game in games], games)
    for name, groups in zip(names, by_game.values(), strict=True):
        settings = [kinds[group][1] for group in groups]
        plain = [called.get(group) or policy_name(kinds[group][1]) for group in groups]
        for group, policy in zip(groups, distinct(plain, settings), strict=True):
            episodes = tuple(sorted(summaries[group].values(), key=lambda summary: summary.seed))
            places = {one.key: stores[one.key] for one in episodes}
            yield Variant(name, policy, episodes, places, gifs.get(group, ()))


def _gifs(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("gifs/*.gif"), key=lambda path: (len(path.name), path.name)))


def _game(episode: Episode) -> dict[str, Any]:
    environment = episode.environment
    return {
        "id": environment["id"],
        "kwargs": {key: value for key, value in environment.get("kwargs", {}).items() if key not in _OF_THE_RECORD},
        "max_episode_steps": environment.get("max_episode_steps"),
        "wrappers": [wrapper for wrapper in environment.get("wrappers", ()) if wrapper[0] not in _OF_THE_POLICY],
    }


def game_name(game: Mapping[str, Any]) -> str:
    """Return an environment's id with its keyword arguments, as the command line takes them."""
    arguments = "&".join(f"{key}={value}" for key, value in sorted(game["kwargs"].items()))
    return f"{game['id']}?{arguments}" if arguments else str(game["id"])


def policy_name(config: Mapping[str, Any]) -> str:
    """Return a short name of a policy, not yet distinct from others."""
    kind = str(config.get("kind", "policy"))
    if kind == "gold":
        return "gold (expert)"
    if kind == "llm":
        backend, model = config.get("backend", ""), str(config.get("model") or config.get("name") or "model")
        said = backend in ("", "transformers") or model.partition(":")[0] == backend
        return f"{model if said else f'{backend}:{model}'}, {config.get('mode')}"
    return kind if kind in ("random", "controller") else str(config.get("name") or kind)


def distinct(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names, each that several share with those settings in which its bearers differ."""
    flat = [dict(_flat(one)) for one in settings]
    longer = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        sharing = [i for i, other in enumerate(names) if other == name]
        keys = sorted({key for i in sharing for key in flat[i]})
        differing = [key for key in keys if len({flat[i].get(key, "") for i in sharing}) > 1]
        readable = [key for key in differing if "environment." not in key] or differing
        for i in sharing:
            said = ", ".join(f"{key.rpartition('.')[2]}={_short(flat[i][key])}" for key in readable if flat[i].get(key))
            longer[i] = f"{name}, {said}" if said else name
    return _numbered(longer)


def _numbered(names: list[str]) -> list[str]:
    """Return the names, each that is not the first of its kind with a number."""
    seen: dict[str, int] = defaultdict(int)
    for i, name in enumerate(names):
        seen[name] += 1
        names[i] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return names


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _short(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
