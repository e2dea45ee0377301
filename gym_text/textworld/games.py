"""The games that TextWorld makes from a seed, and any game file that it has made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from gym_text.episode_state import Expert
from gym_text.errors import UsageError
from gym_text.folds import Fold
from gym_text.index_actions import Actions, listed_spec
from gym_text.parameters import BOOL, Parameter, Parameters
from gym_text.spec import Action
from gym_text.textworld.env import DROP, EXPLORE, OPEN, PUT, TAKE, UNLOCK, TextWorldEnv
from gym_text.textworld.session import check_game_file

_SPLITS = {"train": "train", "dev": "valid", "test": "test"}
"""TextWorld's names of the folds."""


def _skills(num_ingredients: int, num_locations: int, *skills: str) -> dict[str, int]:
    """Return the parameters of a published setting in which the player has to find every ingredient."""
    flags = {name: name in skills for name in ("closed", "cook", "cut", "limit_inventory")}
    return {"num_ingredients": num_ingredients, "num_to_find": num_ingredients, "num_locations": num_locations, **flags}


class CookingEnv(TextWorldEnv):
    """Cook a meal by the recipe: TextWorld's Cooking Game, made from a seed.

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

    With ``limit_inventory``, as in ``ftwp`` and ``balrog``, TextWorld makes no plans. There is no `gold_action` once the
    player has left the walkthrough.

    ## Rewards

    The change of the score, 0 to 1, which is the share of the game's points. There is a point for each ingredient that is
    taken, for each that is cooked as the recipe says, for each that is cut as the recipe says, for the prepared meal and for the
    eaten meal.

    ## Episode End

    Terminated when the meal is eaten (``info["success"]``), or an ingredient is burned, eaten or wrongly prepared
    (``info["failure"]``); truncated after 100 steps. At the registered parameters the expert needs 20 to 23.
    """

    challenge = "tw-cooking"
    game_spec = listed_spec(
        "Find the kitchen and examine the cookbook there. Take the ingredients of its recipe, cut and cook each as it says and in "
        "no other way, prepare the meal in the kitchen and eat it. A wrongly prepared, burned or eaten ingredient loses the game.",
        *EXPLORE,
        *TAKE,
        DROP,
        *PUT,
        *OPEN,
        Action("cook {food} with {appliance}", "stove to fry, oven to roast, BBQ to grill; a second time burns it"),
        Action("chop {food} with {knife}", "cut with a knife that you carry; also slice and dice, as the recipe says"),
        Action("prepare meal", "combine the finished ingredients, in the kitchen"),
        Action("eat {food}", "eat; eating the meal wins"),
        Action("drink {drink}", "drink"),
        reward="Each ingredient taken, each right step with it, the prepared and the eaten meal raise the score alike, up to 1.",
    )
    most_actions = 128
    most_actions_ever = 256
    parameters: ClassVar[Parameters] = {
        "num_ingredients": Parameter("recipe", range(1, 6), 3, "ingredients of the recipe"),
        "num_to_find": Parameter(
            "take", range(0, 6), 3, "ingredients to be found, at most num_ingredients; the player carries the others"
        ),
        "num_locations": Parameter("go", (1, 6, 9, 12), 6, "rooms"),
        "closed": Parameter("open", BOOL, True, "doors and containers are closed at first"),
        "cook": Parameter("cook", BOOL, True, "ingredients are to be cooked"),
        "cut": Parameter("cut", BOOL, True, "ingredients are to be cut"),
        "limit_inventory": Parameter("drop", BOOL, False, "carry no more things than there are ingredients"),
    }
    presets: ClassVar[Mapping[str, Mapping[str, int]]] = {
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


class TreasureHunterEnv(TextWorldEnv):
    """Find one thing in a maze of rooms and take it: TextWorld's Treasure Hunter, made from a seed.

    Two things lie in a house of 5, 10 or 20 rooms; the goal names one of them, and where it lies. From difficulty 11 on there are
    containers and closed doors; from difficulty 21 on some are locked, and the player has to find the keys. The idea of the game is
    Parisotto and Salakhutdinov's (https://arxiv.org/abs/1702.08360).

    ``level`` is TextWorld's level of difficulty. With 1 to 10 there are 5 rooms and a shortest way of 1 to 5 steps; with 11 to 20,
    10 rooms and 2 to 10 steps; with 21 to 30, 20 rooms and 3 to 20 steps. Published settings, for ``difficulty``:

    * ``balrog``: ``level=30``, the game of BALROG (Paglieri et al. 2024, https://arxiv.org/abs/2411.13543, appendix C). As in
      BALROG, the goal does not describe the way. Unlike in BALROG, some of these games can be solved in 20 steps.

    With ``level`` 21 or more TextWorld takes 5 to 30 seconds of a core to make a game, and with 30 sometimes longer, as it searches
    for a quest.

    ## Rewards

    The change of the score: 1 for the right thing, else 0.

    ## Episode End

    Terminated when the right thing is taken (``info["success"]``) or the wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters the expert needs 6.
    """

    challenge = "tw-treasure_hunter"
    game_spec = listed_spec(
        "Find the thing that the goal names in the rooms of a house, and take it. Taking the wrong thing loses the game.",
        *EXPLORE,
        *TAKE,
        DROP,
        *PUT,
        *OPEN,
        *UNLOCK,
        reward="Taking the right thing raises the score from 0 to 1; nothing else is rewarded.",
    )
    most_actions = 40
    most_actions_ever = 100
    parameters: ClassVar[Parameters] = {"level": Parameter("level", range(1, 31), 15, "TextWorld's level of difficulty")}
    presets: ClassVar[Mapping[str, Mapping[str, int]]] = {"balrog": {"level": 30}}


class CoinCollectorEnv(TextWorldEnv):
    """Find the coin and take it: TextWorld's Coin Collector, made from a seed.

    The player stands at one end of a chain of rooms, and the coin lies at the other. From difficulty 101 on the chain has dead ends
    (Yuan et al. 2018, https://arxiv.org/abs/1806.11525).

    ``level`` is TextWorld's level of difficulty. With 1 to 100 there are as many rooms as the shortest way has steps; with 101 to
    200 (a way of 1 to 100 steps) twice as many; with 201 to 300 three times as many. TextWorld 1.7 makes at most 100 rooms.
    Published settings, for ``difficulty``:

    * ``balrog``: ``level=120`` with 40 rooms and a way of 20 steps, the game of BALROG (Paglieri et al. 2024,
      https://arxiv.org/abs/2411.13543, appendix C). As in BALROG, the goal does not describe the way.

    ## Rewards

    The change of the score: 1 for the coin, else 0.

    ## Episode End

    Terminated when the coin is taken (``info["success"]``); the game cannot be lost; truncated after 50 steps. At the registered
    parameters the expert needs 5.
    """

    challenge = "tw-coin_collector"
    game_spec = listed_spec(
        "Search the rooms for the coin, and take it.",
        *EXPLORE,
        TAKE[0],
        DROP,
        reward="Taking the coin raises the score from 0 to 1; nothing else is rewarded.",
    )
    most_actions = most_actions_ever = 10
    parameters: ClassVar[Parameters] = {"level": Parameter("level", range(1, 301), 105, "TextWorld's level of difficulty")}
    presets: ClassVar[Mapping[str, Mapping[str, int]]] = {"balrog": {"level": 120}}

    def _settings(self) -> dict[str, int | bool | str]:
        level = int(self.game_parameters["level"])
        rooms = ((level - 1) // 100 + 1) * ((level - 1) % 100 + 1)
        if rooms > 100:
            raise UsageError(f"level: expected at most 100 rooms, as TextWorld 1.7 makes no more; got {level}, which has {rooms}.")
        return super()._settings()


class GameFileEnv(TextWorldEnv):
    """Play any game file that TextWorld has made; without a file, TextWorld's simple game.

    With ``file`` every seed plays the game of that file, and ``fold`` stays train. Without ``file`` the game is TextWorld's simple
    game (``tw-make tw-simple --rewards dense --goal brief``): in a house of 6 rooms with locked doors the player has to find some
    food and put it on the stove.

    ## Rewards

    The change of the score, 0 to 1, which is the share of the game's points.

    ## Episode End

    Terminated when the game is won (``info["success"]``) or lost (``info["failure"]``); truncated after 100 steps. In the simple
    game the expert needs 8 to 12.
    """

    challenge = "tw-simple"
    game_spec = listed_spec(
        "Do what the goal of the game says.",
        *CookingEnv.game_spec.actions[:-4],
        *UNLOCK,
        *CookingEnv.game_spec.actions[-2:],
        reward="The change of the game's score, which is 1 when everything is done that gives points.",
    )
    most_actions = most_actions_ever = 200
    argument_rows: ClassVar[tuple[str, ...]] = (
        "| `file` | a path | None | a story file, ``.z8``, with its ``.json`` beside it; None: the simple game |",
        *TextWorldEnv.argument_rows,
    )

    def __init__(
        self,
        *,
        file: str | None = None,
        num_levels: int = 1000,
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        self.file = None if file is None else check_game_file(file)
        if self.file and fold != "train":
            raise UsageError(f"fold: expected 'train', as a file is one level; got {fold!r}.")
        levels = 1 if self.file else num_levels
        super().__init__(num_levels=levels, actions=actions, fold=fold, expert=expert, render_mode=render_mode)

    def _settings(self) -> dict[str, int | bool | str]:
        return {"rewards": "dense", "goal": "brief", "test": False}

    def _level_seed(self, seed: int) -> int:
        return 0 if self.file else super()._level_seed(seed)

    def level_file(self, seed: int) -> Path:
        """Return ``file``, which is the only level; without ``file``, the story file of a level of the simple game."""
        return self.file or super().level_file(seed)
