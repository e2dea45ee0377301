"""The list of the panel's worlds, read from ``worlds.yaml``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from gym_text.errors import check_choice
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.game import MakeEnv
from gym_text_policies.settings.from_file import build
from gym_text_policies.settings.yaml_nodes import read_yaml

Size = Literal["one", "small", "medium", "full"]
SIZES: tuple[Size, ...] = get_args(Size)


@dataclass(frozen=True)
class World:
    """An environment of the panel, and what is fixed there."""

    environment: str
    """Name of the environment, with its keyword arguments."""
    levels: int = 1_000_000
    """Number of levels that the environment's fold has; a size that has more plays these."""
    history: int | None = None
    """The history with which every language model plays; None is the policy's own."""
    decimals: int = 6
    """Decimals to which digests round rewards."""


@dataclass(frozen=True)
class Panel:
    """A version of the panel."""

    version: int
    """Its number. Scores of two versions cannot be compared."""
    fold: Literal["train", "dev", "test"]
    """Fold whose levels are played."""
    sizes: Mapping[str, int]
    """Size -> number of levels of each world."""
    packages: tuple[str, ...]
    """Packages on which a digest can depend."""
    worlds: Mapping[str, World]
    """The worlds by their names, in the order of the tables."""

    def levels(self, name: str, size: Size) -> range:
        """Return the levels that a size plays in a world. They are seeds of the fold."""
        check_choice("size", size, SIZES)
        return range(min(self.sizes[size], self.worlds[name].levels))

    def maker(self, name: str, *, expert: Literal["off", "path"]) -> MakeEnv:
        """Return a function that makes the environment of a world."""
        environment = self.worlds[name].environment
        return environment_maker(environment, **fold_arguments(environment, self.fold, expert=expert))


@functools.cache
def the_panel() -> Panel:
    """Return the panel that ships.

    Raises:
        MissingDependencyError: If PyYAML is not installed.
    """
    return build(Panel, read_yaml(Path(__file__).with_name("worlds.yaml")))
