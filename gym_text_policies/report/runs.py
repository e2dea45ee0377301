"""Read run folders: episodes by environment and policy, GIFs, and training curves. No two policies get the same name."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.environments import environment_name
from gym_text_policies.environments.stored import levels_config
from gym_text_policies.files.safe_files import is_regular
from gym_text_policies.policies.labels import additions, thinking
from gym_text_policies.report.calibration import read_measured
from gym_text_policies.report.curves import Curve, read_curves
from gym_text_policies.report.figures import Summary, how_asked, labels, row
from gym_text_policies.store import EpisodeStore

_logger = logging.getLogger(__name__)


@dataclass
class Variant:
    """A policy in an environment: one row of the table."""

    environment: str = ""
    """Name of the environment in this report."""
    policy: str = ""
    """Name of the policy; no other policy in this environment has it."""
    episodes: Sequence[Summary] = ()
    """Its episodes, in the order of their seeds."""
    stores: dict[str, EpisodeStore] = field(default_factory=dict)
    """Key of an episode -> the store that has it."""
    gifs: tuple[Path, ...] = ()
    """GIFs of the episodes, in the order of their seeds."""
    asked: str = ""
    """How a language model is asked."""
    game: str = ""
    """What identifies the game, also in other reports: id, keyword arguments, limit and wrappers, as JSON."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that may distinguish its row from other rows: the policy's, and the environment's under ``environment``."""
    place: float = math.inf
    """The place of the row in the benchmark's table."""
    measured: Mapping[str, float] | None = None
    """What was measured of its probabilities after play."""

    @cached_property
    def row(self) -> dict[str, Any]:
        """The figures of its row."""
        return row(self.environment, self.policy, self.episodes, asked=self.asked, measured=self.measured)


@dataclass(frozen=True)
class Runs:
    """The content of one report."""

    variants: tuple[Variant, ...]
    """The rows, in the order of the benchmark's table, else of their first episodes; the rows of an environment stand together,
    those that look ahead last."""
    curves: tuple[Curve, ...]
    """Curves of training and of searches."""
    sources: tuple[Path, ...]
    """The folders that were read."""

    @property
    def environments(self) -> dict[str, list[Variant]]:
        """The variants of each environment."""
        return {name: list(group) for name, group in itertools.groupby(self.variants, key=lambda one: one.environment)}


def read_runs(folders: Iterable[str | Path]) -> Runs:
    """Read run folders, and the run folders within them. Only regular files are read, and links out of a folder are not followed.

    An episode that is in several folders counts once: the record of the last folder.

    Raises:
        UsageError: If a folder does not exist, or none has episodes or curves. One that has neither is left out with a warning.
    """
    roots = list(dict.fromkeys(Path(folder) for folder in folders))
    if not roots:
        raise UsageError("report: expected one or more run folders; got none.")
    with_episodes: dict[Path, None] = {}
    curves: dict[Curve, None] = {}
    sources = []
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"report: expected a run folder; {root} is no folder. `gym-text bench` and `gym-text run` make one.")
        played = sorted(path.parent for path in root.rglob("episodes.jsonl") if is_regular(path, root))
        trained = list(read_curves(root))
        if played or trained:
            sources.append(root)
        elif len(roots) > 1:
            _logger.warning("%s is left out: it has neither episodes.jsonl nor a training curve.", root)
        with_episodes |= dict.fromkeys(played)
        curves |= dict.fromkeys(trained)
    if not sources:
        empty = ", ".join(map(str, roots))
        raise UsageError(f"report: expected a folder with episodes.jsonl or a training curve; neither is in {empty}.")
    return Runs(tuple(_variants(with_episodes)), tuple(curves), tuple(sources))


def _variants(folders: Iterable[Path]) -> Iterator[Variant]:
    by_game: dict[str, list[Variant]] = defaultdict(list)
    for variant in _read(folders):
        by_game[variant.game].append(variant)
    games = [json.loads(game) for game in by_game]
    names = distinct([environment_name(game) for game in games], games)
    for name, variants in zip(names, by_game.values(), strict=True):
        if all(variant.policy for variant in variants):
            variants.sort(key=lambda variant: variant.place)
        variants.sort(key=lambda variant: any(summary.looks_ahead for summary in variant.episodes))  # they stand apart
        settings = [variant.settings for variant in variants]
        policies = distinct([variant.policy or policy_name(variant.settings) for variant in variants], settings)
        for variant, policy in zip(variants, policies, strict=True):
            asked = how_asked(variant.settings, variant.policy or policy)
            variant.environment, variant.policy, variant.asked = name, policy, asked
            yield variant


def _read(folders: Iterable[Path]) -> list[Variant]:
    """Return the policies in environments; those of a benchmark's table have their names there, the others none."""
    variants: dict[str, Variant] = {}
    summaries: dict[str, dict[str, Summary]] = defaultdict(dict)
    for folder in folders:
        store, labelled, measured, here = EpisodeStore(folder), labels(folder), read_measured(folder), set()
        places = {key: place for place, key in enumerate(labelled)}
        for episode in store.episodes():
            name = json.dumps([episode.environment, episode.policy], sort_keys=True)
            if name not in variants:
                known = levels_config(episode.environment)  # without what serves policies or records
                game = {key: known.get(key) for key in ("id", "kwargs", "max_episode_steps", "wrappers")}
                settings = {**episode.policy, "environment": episode.environment}
                variants[name] = Variant(game=json.dumps(game, sort_keys=True), settings=settings)
            variant = variants[name]
            variant.policy = labelled.get(episode.key, variant.policy)
            variant.measured = measured.get(episode.key, variant.measured)
            variant.place = places.get(episode.key, variant.place)
            summaries[name][episode.key] = Summary.of(episode)
            variant.stores[episode.key] = store
            here.add(name)
        gifs = _gifs(folder)
        for name in here:  # with several policies only a GIF with an episode's key as its name tells its policy
            variants[name].gifs += tuple(gif for gif in gifs if len(here) == 1 or gif.stem in variants[name].stores)
    for name, variant in variants.items():
        variant.episodes = sorted(summaries[name].values(), key=lambda summary: summary.seed)
    return list(variants.values())


def _gifs(folder: Path) -> tuple[Path, ...]:
    files = [path for path in folder.glob("gifs/*.gif") if is_regular(path, folder)]
    return tuple(sorted(files, key=lambda path: (len(path.name), path.name)))  # seed-10 after seed-9


def policy_name(config: Mapping[str, Any]) -> str:
    """Return a short name of a policy: also how it looks ahead, and which share is random or the expert's. Names may repeat."""
    kind = str(config.get("kind", "policy"))
    if kind in ("mixed", "lookahead") and isinstance(config.get("player"), Mapping):
        return policy_name(config["player"]) + additions({**config, "lookahead": config.get("method")})
    if kind == "gold":
        return "gold (expert)"
    if kind == "llm":
        backend, model = config.get("backend", ""), str(config.get("model") or config.get("name") or "model")
        is_clear = backend in ("", "transformers", "own") or model.partition(":")[0] == backend
        parts = (model if is_clear else f"{backend}:{model}", str(config.get("mode")), thinking(config))
        return ", ".join(filter(None, parts))
    return str(config.get("name") or kind)


def distinct(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Make names distinct: equal names get the settings in which their policies differ, and numbers if these are equal, too.

    >>> distinct(["a", "a", "b"], [{"history": 0, "seed": 1}, {"history": 2, "seed": 1}, {}])
    ['a, history=0', 'a, history=2', 'b']

    Args:
        names: The names.
        settings: The settings of each. Settings of the environment are added only if no other settings differ.
    """
    flat = [dict(_flat(values)) for values in settings]
    longer = []
    for name, own in zip(names, flat, strict=True):
        equal = [flat[i] for i, other in enumerate(names) if other == name]
        keys = sorted({key for one in equal for key in one})
        differing = [key for key in keys if len({one.get(key, "") for one in equal}) > 1]
        shown = [key for key in differing if "environment." not in key] or differing
        pairs = [f"{key.rpartition('.')[2]}={shortened(own[key])}" for key in shown if own.get(key)]
        longer.append(", ".join([name, *pairs]))
    return [f"{name} ({before + 1})" if (before := longer[:i].count(name)) else name for i, name in enumerate(longer)]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested settings, as dotted path and text."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(part, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def shortened(text: str, most: int = 40) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
