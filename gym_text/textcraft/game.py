"""TextCraft's commands: what they do to the inventory, and what the game answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

from gym_text.textcraft.levels import Level
from gym_text.textcraft.recipes import Ingredient, Recipe, read_recipes

LOOK = "inventory"
_GET = re.compile(r"get ([0-9]{1,7}) (.*)")
"""The package has no bound of the digits, and Python none of the numbers that it would add."""
_CRAFT = re.compile(r"craft (.*) using (.*)")
_AMOUNT = re.compile(r"([0-9]{1,7}) (.*)")
_ITEM_ID = "minecraft:"


class Refused(Exception):
    """The game does not do what a command says; the message is the game's answer."""


class Game:
    """A running game.

    Args:
        level: The level.
    """

    def __init__(self, level: Level) -> None:
        self.level = level
        self.inventory: dict[str, int] = {}
        self.is_won = False

    def copy(self) -> Game:
        """Return a copy that changes apart from this game."""
        twin = Game(self.level)
        twin.inventory, twin.is_won = dict(self.inventory), self.is_won
        return twin

    def play(self, command: str) -> str:
        """Play a command and return the game's answer.

        Raises:
            Refused: If the command changes nothing because the game does not understand it, or cannot do it.
        """
        if craft := _CRAFT.fullmatch(command):
            return self._craft(craft[1], craft[2])
        if get := _GET.fullmatch(command):
            return self._get(int(get[1]), get[2])
        if command.startswith(LOOK):
            return self.carried()
        raise Refused(f"Could not execute {command}")

    def carried(self) -> str:
        """Return what the player carries, as the game lists it."""
        listed = " ".join(f"[{item}] ({count})" for item, count in self.inventory.items())
        return f"Inventory: {listed or 'You are not carrying anything.'}"

    def valid(self) -> tuple[str, ...]:
        """Return a list of commands that the game accepts now, sorted.

        They are the told recipes for which the inventory is enough, each item that these recipes need and the player can get, in
        each of the amounts in which they need it, and ``inventory``.
        """
        gets = [f"get {count} {item}" for item, counts in self.level.amounts.items() for count in counts]
        return tuple(sorted({LOOK, *gets, *(command for recipe in self.level.recipes for command in self._crafts(recipe))}))

    def _crafts(self, recipe: Recipe) -> Iterator[str]:
        """Yield the commands by which a recipe can be used now."""
        options = []
        for each in recipe.ingredients:
            items = [item for item, count in self.inventory.items() if count >= each.count and _fits(item, each)]
            options.append([Ingredient(item, each.count) for item in items])
        for chosen in product(*options):
            if self._has(chosen):
                yield recipe.command(chosen)

    def _craft(self, made: str, used: str) -> str:
        number = _AMOUNT.match(made)
        item = number[2] if number else made
        given = []
        for part in used.split(","):
            found = _AMOUNT.match(part.strip())
            if found is None:
                raise Refused(f"Wrong item format: {part.strip()}")
            given.append(Ingredient(found[2], int(found[1])))
        if not self._has(given):
            raise Refused(f"Could not find enough items to craft {_ITEM_ID}{item.replace(' ', '_')}")
        recipe = next((each for each in read_recipes().by_item.get(item, ()) if _is_made_of(each, given)), None)
        if recipe is None:
            raise Refused(f"Could not find a valid recipe for {item}")
        for each in given:
            self.inventory[each.name] -= each.count
            if not self.inventory[each.name]:
                del self.inventory[each.name]
        self.inventory[item] = self.inventory.get(item, 0) + recipe.count
        self.is_won = item == self.level.item
        return f"Crafted {recipe.count} {_ITEM_ID}{item.replace(' ', '_')}"

    def _get(self, count: int, item: str) -> str:
        if item not in read_recipes().gettable or not count:
            raise Refused(f"Could not find {item}")
        self.inventory[item] = self.inventory.get(item, 0) + count
        return f"Got {count} {item}"

    def _has(self, items: tuple[Ingredient, ...] | list[Ingredient]) -> bool:
        """Return whether the inventory has all of these items."""
        needed: Mapping[str, int] = sum((Counter({each.name: each.count}) for each in items), Counter())
        return all(self.inventory.get(item, 0) >= count for item, count in needed.items())


def _is_made_of(recipe: Recipe, given: list[Ingredient]) -> bool:
    """Return whether a recipe needs exactly the items that a command names."""
    left = list(given)
    for each in recipe.ingredients:
        found = next((item for item in left if _fits(item.name, each)), None)
        if found is None or found.count != each.count:
            return False
        left.remove(found)
    return not left


def _fits(item: str, ingredient: Ingredient) -> bool:
    """Return whether an item can be this ingredient."""
    return read_recipes().tags.get(item) == ingredient.name if ingredient.is_tag else item == ingredient.name
