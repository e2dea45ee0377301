"""The expert of TextCraft: it walks down the tree of recipes and counts what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from gym_text.textcraft.levels import Level
from gym_text.textcraft.recipes import Ingredient, Recipe, read_recipes


def plan(level: Level, inventory: Mapping[str, int]) -> tuple[str, ...]:
    """Return commands that craft the level's item, each a valid action at its turn.

    First come the items that the player can get, then the crafts, what is needed deepest first. Where several recipes make an
    item, or several items have a tag, the plan uses that which needs the fewest commands, looked at alone.
    """
    return _Plan(level, inventory).commands()


@dataclass(frozen=True)
class _Way:
    """A way to an amount of an item."""

    cost: float
    """Number of commands."""
    item: str
    """The item; of a tag, the one that is used."""
    recipe: Recipe | None = None
    """How it is crafted; None if it need not be."""


class _Plan:
    """One call of `plan`."""

    def __init__(self, level: Level, inventory: Mapping[str, int]) -> None:
        self.level, self.inventory = level, inventory
        self._ways: dict[Ingredient, _Way] = {}

    def commands(self) -> tuple[str, ...]:
        """Count from the level's item downwards, so that all that need an item are known before it is counted."""
        goal = self.level.item
        needs, gets, crafts = {goal: self.inventory.get(goal, 0) + 1}, [], []
        while needs:
            item = max(needs, key=lambda name: (_height(name), name))
            lack = needs.pop(item) - self.inventory.get(item, 0)
            if lack <= 0:
                continue
            recipe = self._way(Ingredient(item, lack + self.inventory.get(item, 0))).recipe
            if recipe is None:
                gets += [f"get {count} {item}" for count in portions(lack, self.level.amounts[item])]
                continue
            times, used = -(-lack // recipe.count), []
            for each in recipe.ingredients:
                chosen = self._way(Ingredient(each.name, each.count * times, each.is_tag)).item
                needs[chosen] = needs.get(chosen, 0) + each.count * times
                used.append(Ingredient(chosen, each.count))
            crafts += [recipe.command(tuple(used))] * times
        return (*reversed(gets), *reversed(crafts))

    def _way(self, wanted: Ingredient) -> _Way:
        """Return the way to have this amount that needs the fewest commands."""
        if wanted not in self._ways:
            book = read_recipes()
            items = book.by_tag[wanted.name] if wanted.is_tag else (wanted.name,)
            self._ways[wanted] = min((self._way_to(item, wanted.count) for item in items), key=lambda way: way.cost)
        return self._ways[wanted]

    def _way_to(self, item: str, count: int) -> _Way:
        lack = count - self.inventory.get(item, 0)
        if lack <= 0:
            return _Way(0, item)
        if item in self.level.amounts:
            return _Way(len(portions(lack, self.level.amounts[item])), item)
        ways = []
        for recipe in read_recipes().by_item[item]:
            times = -(-lack // recipe.count)
            parts = (self._way(Ingredient(each.name, each.count * times, each.is_tag)).cost for each in recipe.ingredients)
            ways.append(_Way(times + sum(parts), item, recipe))
        return min(ways, key=lambda way: way.cost)


@lru_cache(4096)
def portions(total: int, amounts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fewest amounts whose sum is a total; if there are none, the fewest with the least greater sum."""
    best: dict[int, tuple[int, ...]] = {0: ()}
    for reached in range(1, total + max(amounts)):
        ways = [(*best[reached - amount], amount) for amount in amounts if reached - amount in best]
        if ways:
            best[reached] = min(ways, key=len)
            if reached >= total:
                break
    return best[reached]


@cache
def _height(name: str) -> int:
    """Return a number that is greater than that of all that an item or a tag needs, whichever recipe is used."""
    book = read_recipes()
    needed = (each.name for recipe in book.makers(name) for each in recipe.ingredients)
    return max((1 + _height(each) for each in needed), default=0)
