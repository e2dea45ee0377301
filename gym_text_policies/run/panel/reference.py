"""The panel's reference, ``reference.json``: digests of all levels, and what chance and the expert reach there.

A digest is of what a player can perceive on two walks through a level, along the expert's path and at random.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from gym_text.errors import RunError, import_extra
from gym_text_policies.files.json_data import plain
from gym_text_policies.policy import text_spec
from gym_text_policies.run.panel.worlds import Panel, the_panel
from gym_text_policies.run.play import versions

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
    """Compute the digests of levels anew, with a bar for each world; return one digest of the levels of each world.

    Raises:
        RunError: If any differs from the reference's. The message says which, and what follows from it.
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


RANDOM_STEPS = 20
"""Most steps of the random path of a digest."""
Choose = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
"""From an observation and ``info`` to the name of an action; None ends the walk."""


@dataclass(frozen=True)
class Walk:
    """An episode that follows a fixed path: its return, its number of steps, whether it had ended then, and whether it was won."""

    total_reward: float
    length: int
    over: bool
    won: bool
    digest: str
    """SHA-256 of all that a player can perceive on the walk, as hexadecimal digits."""


def walk(env: gym.Env[Any, Any], level: int, choose: Choose, most: int | None = None, *, decimals: int = 6) -> Walk:
    """Play a level, by the actions that `choose` returns, to the end of the episode or `most` steps.

    The digest rounds rewards to `decimals` decimals.
    """
    obs, info = env.reset(seed=level)
    spec, content, total, length, over = text_spec(env), hashlib.sha256(), 0.0, 0, False
    content.update(_perceived(obs, None, info, decimals))
    while not over and length != most and (name := choose(obs, info)) is not None:
        obs, reward, terminated, truncated, info = env.step(spec.encode(name, dict(obs)))
        total, length, over = total + float(reward), length + 1, bool(terminated or truncated)
        content.update(_perceived(obs, (name, float(reward), bool(terminated), bool(truncated)), info, decimals))
    return Walk(total, length, over, bool(info.get("success")), content.hexdigest())


def _perceived(obs: Mapping[str, Any], step: tuple[str, float, bool, bool] | None, info: Mapping[str, Any], decimals: int) -> bytes:
    """Return as one line what a player can perceive: the action, the observation, the reward, and how the episode ended."""
    played = None if step is None else [step[0], round(step[1], decimals) + 0.0, *step[2:]]  # adding 0 turns -0 into 0
    ended = [bool(info.get("success")), bool(info.get("failure"))]
    return (json.dumps([played, plain(obs), ended], sort_keys=True) + "\n").encode()


def at_random(env: gym.Env[Any, Any], name: str, level: int, number: int) -> Choose:
    """Return a function that draws one of the valid actions; worlds, levels and the walks of a level differ in what they draw.

    The draws are those of `random.Random.random`, which is the same in all versions of Python.
    """
    rng, spec = random.Random(f"{name} {level} {number}"), text_spec(env)

    def draw(obs: Mapping[str, Any], info: Mapping[str, Any]) -> str:
        names = spec.names(dict(obs))
        return names[int(rng.random() * len(names))]

    return draw


def expert_walks(panel: Panel, name: str, levels: Sequence[int]) -> Iterator[Walk]:
    """Yield the walk along the expert's path in each level of a world."""
    with closing(panel.maker(name, expert="path")()) as env:
        for level in levels:
            yield walk(env, level, lambda obs, info: info.get("gold_action"), decimals=panel.worlds[name].decimals)


def random_walks(
    panel: Panel, name: str, levels: Sequence[int], number: int = 0, most: int | None = RANDOM_STEPS
) -> Iterator[Walk]:
    """Yield a random walk in each level of a world, the one of a number."""
    with closing(panel.maker(name, expert="off")()) as env:
        for level in levels:
            yield walk(env, level, at_random(env, name, level, number), most, decimals=panel.worlds[name].decimals)


def level_digest(expert: Walk, drawn: Walk) -> str:
    """Return the digest of a level, 16 hexadecimal digits, from the expert's walk and a random one."""
    return hashlib.sha256(f"{expert.digest} {drawn.digest}".encode()).hexdigest()[:16]


def level_digests(panel: Panel, name: str, levels: Sequence[int]) -> Iterator[str]:
    """Yield the digest of each level of a world."""
    yield from map(level_digest, expert_walks(panel, name, levels), random_walks(panel, name, levels))
