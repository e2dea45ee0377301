"""The panel's reference, ``reference.json``: digests of all levels, and what chance and the expert reach there."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gym_text.errors import RunError, import_extra
from gym_text_policies.run.panel.walks import level_digests
from gym_text_policies.run.panel.worlds import the_panel
from gym_text_policies.run.result_files import versions

FILE = Path(__file__).with_name("reference.json")


@dataclass(frozen=True)
class WorldReference:
    """What is known of the levels of a world, level 0 first."""

    digests: Sequence[str]
    """The digest of each level."""
    expert: Sequence[float]
    """The expert's return in each level."""
    chance: Sequence[float]
    """The mean return of ten random walks in each level."""

    def digest(self, levels: Sequence[int]) -> str:
        """Return one digest of some levels."""
        return joined(self.digests[level] for level in levels)


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
def the_reference() -> Reference:
    """Return the reference that ships, as ``benchmarks/panel.py`` has written it."""
    data = json.loads(FILE.read_text("utf-8"))
    worlds = {name: WorldReference(**world) for name, world in data["worlds"].items()}
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
        wrong = [level for level, now in zip(levels, found, strict=True) if known.digests[level] != now]
        same[name] = joined(found)
        if wrong:
            differing.append(f"{name}: {len(wrong)} of {len(levels)} levels differ, the first is level {wrong[0]}.")
    if differing:
        raise RunError("\n".join([*differing, what_follows(reference)]))
    return same


def what_follows(reference: Reference) -> str:
    """Return the sentence that says what a difference means, with the versions of the engines then and now."""
    now = made_with(the_panel().packages)
    changed = [f"{name} {then} then, {now.get(name)} now" for name, then in reference.versions.items() if now.get(name) != then]
    return (
        f"An update that changes what a player perceives needs a new version of the panel: scores of version {reference.version} "
        f"would no longer be comparable. Changed since its digests were made: {'; '.join(changed) or 'no version of a package'}."
    )
