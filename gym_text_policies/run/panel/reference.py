"""The panel's reference, ``reference.json``: digests of all levels, and what chance and the expert reach there."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import RunError, import_extra
from gym_text_policies.run.panel.walks import MARK, LevelDigest, level_digests
from gym_text_policies.run.panel.worlds import the_panel
from gym_text_policies.run.result_files import versions

FILE = Path(__file__).with_name("reference.json")


@dataclass(frozen=True)
class WorldReference:
    """What is known of the levels of a world, level 0 first."""

    digests: Sequence[LevelDigest]
    """The digest of each level."""
    expert: Sequence[float]
    """The expert's return in each level."""
    chance: Sequence[float]
    """The mean return of ten random walks in each level."""

    def digest(self, levels: Sequence[int]) -> str:
        """Return one digest of some levels."""
        return joined(self.digests[level].digest for level in levels)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorldReference:
        """Return what ``benchmarks/panel.py`` has written."""
        walks, returns = data["digests"], data["returns"]
        levels = zip(walks["expert"], walks["random"], walks["digest"], strict=True)
        return cls([LevelDigest(*level) for level in levels], returns["expert"], returns["chance"])


@dataclass(frozen=True)
class Reference:
    """The reference of a version of the panel."""

    version: int
    """The panel's version."""
    versions: Mapping[str, str]
    """Versions of the packages with which it was made, and the kind of machine."""
    worlds: Mapping[str, WorldReference]
    """The worlds by their names."""


@functools.cache
def the_reference(path: Path = FILE) -> Reference:
    """Return the reference that ships."""
    data = json.loads(path.read_text("utf-8"))
    worlds = {name: WorldReference.from_json(world) for name, world in data["worlds"].items()}
    return Reference(data["version"], data["versions"], worlds)


def joined(digests: Iterable[str]) -> str:
    """Return one digest of several ones."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


def made_with(packages: Iterable[str]) -> dict[str, str]:
    """Return on what a digest can depend: the versions of packages and of Python, and the kind of machine."""
    known = versions()
    machine = {"python": known["python"], "machine": f"{platform.system()} {platform.machine()}"}
    return machine | {name: known[name] for name in packages}


def check(worlds: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Compute the digests of levels anew, with a bar for each world, and compare them with the reference's.

    Args:
        worlds: The name of each world, and its levels.

    Returns:
        One digest of the levels of each world.

    Raises:
        RunError: If any differ. The message says which, and what follows from it.
    """
    panel, reference, bar = the_panel(), the_reference(), import_extra("tqdm", "bench").tqdm
    differing, same = [], {}
    for name, levels in worlds.items():
        known = reference.worlds[name]
        found = list(bar(level_digests(panel, name, levels), f"digests of {name}", len(levels), leave=False, unit=" levels"))
        wrong = [(n, known.digests[n], now) for n, now in zip(levels, found, strict=True) if known.digests[n] != now]
        same[name] = joined(level.digest for level in found)
        if wrong:
            level, then, now = wrong[0]
            more = f" {len(wrong)} of {len(levels)} levels differ." if len(wrong) > 1 else ""
            differing.append(f"{name}, level {level}: {first_difference(then, now)} differs.{more}")
    if differing:
        raise RunError("\n".join([*differing, what_follows(reference)]))
    return same


def first_difference(then: LevelDigest, now: LevelDigest) -> str:
    """Return in words the first step at which two digests of a level differ."""
    for path, first, second in (("the expert's", then.expert, now.expert), ("the random", then.random, now.random)):
        steps = itertools.zip_longest(*(_marks(text) for text in (first, second)))
        for step, (mark, other) in enumerate(steps):
            if mark != other:
                return f"{f'step {step}' if step else 'the start'} of {path} path"
    return "a step whose mark is the same by chance"


def _marks(text: str) -> list[str]:
    return [text[start : start + MARK] for start in range(0, len(text), MARK)]


def what_follows(reference: Reference) -> str:
    """Return the sentence that says what a difference means, with the versions of the engines then and now."""
    now = made_with(the_panel().packages)
    changed = [f"{name} {then} then, {now.get(name)} now" for name, then in reference.versions.items() if now.get(name) != then]
    return (
        f"An update that changes what a player perceives needs a new version of the panel: scores of version {reference.version} "
        f"would no longer be comparable. Changed since its digests were made: {'; '.join(changed) or 'no version of a package'}."
    )
