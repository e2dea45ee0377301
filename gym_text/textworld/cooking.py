"""The Cooking Game of TextWorld, the game of the First TextWorld Problems competition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gym_text.errors import UsageError
from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Choice, Flag, Parameters, Range
from gym_text.spec import Action, TextSpec
from gym_text.textworld.env import DROP, EXAMINE, GO, INVENTORY, LOOK, OPEN, PUT, TAKE, MadeGameEnv

_SPLITS = {"train": "train", "dev": "valid", "test": "test"}
"""TextWorld's names of the folds."""

COOKING_SPEC = TextSpec(
    goal=(
        "Find the kitchen and examine the cookbook there. Take the ingredients of its recipe, cut and cook each as it says and in "
        "no other way, prepare the meal in the kitchen and eat it. A wrongly prepared, burned or eaten ingredient loses the game."
    ),
    fields=GAME_FIELDS,
    actions=(
        LOOK,
        INVENTORY,
        GO,
        EXAMINE,
        *TAKE,
        DROP,
        *PUT,
        *OPEN,
        Action("cook {food} with {appliance}", "stove to fry, oven to roast, BBQ to grill; a second time burns it"),
        Action("chop {food} with {knife}", "cut with a knife that you carry; also slice and dice, as the recipe says"),
        Action("prepare meal", "combine the finished ingredients, in the kitchen"),
        Action("eat {food}", "eat; eating the meal wins"),
        Action("drink {drink}", "drink"),
    ),
    encoding="text",
    reward="Each ingredient taken, each right step with it, the prepared and the eaten meal raise the score alike, up to 1.",
)


def _skills(num_ingredients: int, num_locations: int, *skills: str) -> dict[str, int | bool]:
    """Return the parameters of a published setting in which the player has to find every ingredient."""
    flags = {name: name in skills for name in ("closed", "cook", "cut", "limit_inventory")}
    return {"num_ingredients": num_ingredients, "num_to_find": num_ingredients, "num_locations": num_locations, **flags}


class CookingEnv(MadeGameEnv):
    """Cook a meal by the recipe: TextWorld's Cooking Game, made from a seed.

    ## Description

    A house of 1 to 12 rooms. The cookbook in the kitchen names the ingredients and how to cut and cook each. The ingredients lie
    in rooms, fridge and garden, among other food. TextWorld's generator makes the levels; this is the game of the First TextWorld
    Problems competition (https://www.microsoft.com/en-us/research/project/textworld/).

    Folds are TextWorld's own splits: dev and test have food that train never has, and recipes that prepare train's food in ways
    that train never asks for. The seeds of the folds differ as well.

    Published settings, for ``difficulty``:

    * ``gata-1`` to ``gata-10``: the ten levels of the games that came with GATA (Adhikari et al. 2020,
      https://arxiv.org/abs/2002.09127), with the parameters in its authors' script. All have closed doors and containers.
      1: one ingredient in one room. 2: as 1, and cook it. 3: as 1, and cut it. 4, 5, 6: as 1, in 6, 9, 12 rooms. 7: as 1, and
      cook and cut it. 8: three ingredients in 6 rooms. 9: as 8, and cook and cut them; the registered parameters. 10: as 9, in
      12 rooms.
    * ``ftwp``: all skills of the competition at the highest level: 3 ingredients to find, cook and cut in 12 rooms, with closed
      doors and few things that can be carried (the settings are in the docstring of TextWorld's ``tw_cooking``).
    * ``balrog``: the game of BALROG (Paglieri et al. 2024, https://arxiv.org/abs/2411.13543, appendix C): 5 ingredients, every
      skill, the largest house, which has 12 rooms (the paper counts 13). BALROG stops after 80 steps; the expert needs about 53.

    {spaces}

    ## Rewards

    The change of the score, 0 to 1, which is the share of the game's points. There is a point for each ingredient that is
    taken, for each that is cooked as the recipe says, for each that is cut as the recipe says, for the prepared meal and for the
    eaten meal.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the meal is eaten (``info["success"]``), or an ingredient is burned, eaten or wrongly prepared
    (``info["failure"]``); truncated after 100 steps. At the registered parameters the expert needs 20 to 23.

    ## Arguments

    {arguments}

    ## Info

    {info}

    With ``limit_inventory``, as in ``ftwp`` and ``balrog``, TextWorld makes no plans. There is no `gold_action` once the
    player has left the walkthrough.

    ## Version History

    * v0: first version, on textworld 1.7.0.
    """

    challenge = "tw-cooking"
    game_spec = COOKING_SPEC
    most_actions = 128
    most_actions_ever = 256
    parameters: ClassVar[Parameters] = {
        "num_ingredients": Range("recipe", 1, 5, 3, "ingredients of the recipe"),
        "num_to_find": Range("take", 0, 5, 3, "ingredients to be found, at most num_ingredients; the player carries the others"),
        "num_locations": Choice("go", (1, 6, 9, 12), 6, "rooms"),
        "closed": Flag("open", True, "doors and containers are closed at first"),
        "cook": Flag("cook", True, "ingredients are to be cooked"),
        "cut": Flag("cut", True, "ingredients are to be cut"),
        "limit_inventory": Flag("drop", False, "carry no more things than there are ingredients"),
    }
    presets: ClassVar[Mapping[str, Mapping[str, int | bool]]] = {
        "gata-1": _skills(1, 1, "closed"),
        "gata-2": _skills(1, 1, "closed", "cook"),
        "gata-3": _skills(1, 1, "closed", "cut"),
        "gata-4": _skills(1, 6, "closed"),
        "gata-5": _skills(1, 9, "closed"),
        "gata-6": _skills(1, 12, "closed"),
        "gata-7": _skills(1, 1, "closed", "cook", "cut"),
        "gata-8": _skills(3, 6, "closed"),
        "gata-9": _skills(3, 6, "closed", "cook", "cut"),
        "gata-10": _skills(3, 12, "closed", "cook", "cut"),
        "ftwp": _skills(3, 12, "closed", "cook", "cut", "limit_inventory"),
        "balrog": _skills(5, 12, "closed", "cook", "cut", "limit_inventory"),
    }

    def _settings(self) -> dict[str, int | bool | str]:
        settings = super()._settings()
        if settings["take"] > settings["recipe"]:  # type: ignore[operator]
            raise UsageError(
                f"num_to_find: expected at most num_ingredients, which is {settings['recipe']}; got {settings['take']}. "
                "Set both, or pass a difficulty."
            )
        return settings | {"recipe_seed": 0, "split": _SPLITS[str(self.fold)]}
