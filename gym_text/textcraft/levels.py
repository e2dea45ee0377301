"""Levels of TextCraft, made from a number: an item to craft, and the recipes that the player is told."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from gym_text.folds import FOLD_SIZE, FOLDS
from gym_text.textcraft.recipes import Recipe, read_recipes

DEPTHS = (1, 2, 3, 4)
DISTRACTORS = 10
"""Most recipes of a level that are of no use, as in the package."""


@dataclass(frozen=True)
class Level:
    """An item to craft, and the recipes that the player is told."""

    item: str
    recipes: tuple[Recipe, ...]
    """All that can be of use, and some that cannot, in a random order."""

    @cached_property
    def amounts(self) -> dict[str, tuple[int, ...]]:
        """For each item that the player can get and a told recipe needs: the amounts in which these recipes need it, sorted."""
        gettable, found = read_recipes().gettable, dict[str, set[int]]()
        for recipe in self.recipes:
            for each in recipe.ingredients:
                if each.name in gettable:
                    found.setdefault(each.name, set()).add(each.count)
        return {item: tuple(sorted(counts)) for item, counts in found.items()}


@cache
def goals(depth: int, fold: int | None) -> tuple[str, ...]:
    """Return the items of a depth that are crafted in a fold's levels, in a fixed random order.

    The folds have one third of the items each.

    Args:
        depth: Depth of the items.
        fold: 0, 1 or 2 for train, dev and test; None for all items.
    """
    depths = read_recipes().depths
    items = sorted((item for item in depths if depths[item] == depth), key=lambda item: hashlib.sha256(item.encode()).digest())
    return tuple(items if fold is None else items[fold :: len(FOLDS)])


@lru_cache(64)
def make_level(depth: int, number: int) -> Level:
    """Return the level of a number: numbers of a fold craft the fold's items in turn. The number also draws the other recipes."""
    fold, rng = number // FOLD_SIZE - 1, np.random.default_rng(number)
    items = goals(depth, fold if 0 <= fold < len(FOLDS) else None)
    item = items[number % FOLD_SIZE % len(items)]
    useful = read_recipes().tree(item)
    told = useful + _drawn(_distractors(item), DISTRACTORS, rng)
    return Level(item, tuple(_drawn(told, len(told), rng)))


@cache
def _distractors(item: str) -> tuple[Recipe, ...]:
    """Return the recipes that are of no use for an item but need something that it needs, too."""
    book = read_recipes()
    useful = book.tree(item)
    needed = {each.name for recipe in useful for each in recipe.ingredients}
    everything = dict.fromkeys(recipe for recipes in book.by_item.values() for recipe in recipes)  # two files can say the same
    return tuple(
        recipe for recipe in everything if recipe not in useful and not needed.isdisjoint(each.name for each in recipe.ingredients)
    )


def _drawn(recipes: tuple[Recipe, ...] | list[Recipe], most: int, rng: np.random.Generator) -> list[Recipe]:
    """Draw different recipes, in a random order."""
    return [recipes[place] for place in rng.permutation(len(recipes))[:most]]
