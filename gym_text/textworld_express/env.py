"""TextWorldExpress's games as Gymnasium environments."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import FOLDS, Expert, Fold, Outcome, TextEnv
from gym_text.textworld_express.engine import Game, State, check_installed

_MAX_TEXT = 8192
"""Bound of every text in characters; at 11 rooms none is longer than 1,000."""


class Range(NamedTuple):
    """The engine's name of a parameter, and the values it takes."""

    engine_name: str
    low: int
    high: int


class TextWorldExpressEnv(TextEnv):
    """Base of the games: levels by fold, text in and text out, the engine's expert verified by replay.

    A subclass names the game, its parameters and its gold agent, and has the docstring of the environment.
    """

    game: ClassVar[str]
    parameters: ClassVar[dict[str, Range]]
    gold_agent: ClassVar[str]

    def __init__(self, *, text_spec: TextSpec, fold: Fold, expert: Expert, render_mode: str | None, **values: int) -> None:
        check_installed()
        check_choice("fold", fold, FOLDS)
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        for name, value in values.items():
            check_int(name, value, self.parameters[name].low, self.parameters[name].high)
        self.game_parameters = {self.parameters[name].engine_name: int(value) for name, value in values.items()}
        self.text_spec = text_spec
        self.action_space = FreeText(256)
        self.observation_space = spaces.Dict(
            {
                "text": FreeText(_MAX_TEXT),
                "goal": FreeText(_MAX_TEXT),
                "look": FreeText(_MAX_TEXT),
                "inventory": FreeText(_MAX_TEXT),
                "valid_actions": ActionNames(),
            }
        )
        self._fold: Fold = fold
        self._game: Game | None = None
        self._twin: Game | None = None
        self._seeds: tuple[int, ...] = ()
        self._level = 0
        self._goal = ""
        self._valid: tuple[str, ...] = ()
        self._engine_score = 0.0
        self._history: list[str] = []
        self._replanned: tuple[str, ...] = ()

    def _level_seed(self, seed: int) -> int:
        if not self._seeds:
            self._seeds = self._engine().seeds(self._fold)
        return self._seeds[seed % len(self._seeds)]

    def _start(self, seed: int) -> Observation:
        game = self._engine()
        state = game.start(seed, self._fold)
        self._level, self._goal = seed, game.task()
        self._engine_score = 0.0
        self._history, self._replanned = [], self._path or ()
        return self._observation(state)

    def _play(self, action: str) -> Outcome:
        was_valid = action.strip() in self._valid  # as the engine reads it
        state = self._engine().step(action)
        reward, self._engine_score = state.score - self._engine_score, state.score
        self._history.append(action)
        self._replanned = self._replanned[1:] if self._replanned[:1] == (action,) else ()
        return Outcome(
            self._observation(state),
            reward,
            terminated=state.success or state.failure or state.score >= 1.0,
            success=state.success,
            failure=state.failure,
            action_was_valid=was_valid,
        )

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        game = self._engine()
        path = game.gold_path(seed, self._fold)
        return self._verified(game, path, game.start(seed, self._fold))

    def _hint(self) -> str | None:
        """Ask the engine's gold agent on a copy of this game, and believe it only if its plan wins."""
        if not self._replanned:
            if self._twin is None:
                self._twin = Game(self.game, self.game_parameters)
            self._replay(self._twin)
            path = self._twin.plan(self.gold_agent, len(self._history))
            self._replanned = self._verified(self._twin, path, self._replay(self._twin)) or ()
        return self._replanned[0] if self._replanned else None

    def _replay(self, game: Game) -> State:
        state = game.start(self._level, self._fold)
        for action in self._history:
            state = game.step(action)
        return state

    @staticmethod
    def _verified(game: Game, path: tuple[str, ...], state: State) -> tuple[str, ...] | None:
        """Play the valid steps of `path` from `state`, the game's present one; return them if they win."""
        played = []
        for action in path:
            if action in state.valid_actions:
                state = game.step(action)
                played.append(action)
        return tuple(played) if state.success else None

    def _engine(self) -> Game:
        if self._game is None:
            self._game = Game(self.game, self.game_parameters)
        return self._game

    def _observation(self, state: State) -> Observation:
        self._valid = state.valid_actions
        return {
            "text": state.observation,
            "goal": self._goal,
            "look": state.look,
            "inventory": state.inventory,
            "valid_actions": state.valid_actions,
        }

    def close(self) -> None:
        """Let go of the games; the JVM serves other environments and ends with the process."""
        self._game = self._twin = None
        super().close()


COOKING_WORLD_SPEC = TextSpec(
    goal=(
        "Find the cookbook in the kitchen and read the recipe. Collect its ingredients, cut and cook each as the recipe says, "
        "prepare the meal in the kitchen and eat it. Spoiling an ingredient loses the game."
    ),
    fields={
        "text": Field("what the game answers to the last action"),
        "goal": Field("the task of this game"),
        "look": Field("what the present room looks like"),
        "inventory": Field("what you carry"),
        "valid_actions": Field("the actions that the game accepts now", is_list=True),
    },
    actions=(
        Action("look around", "describe the present room"),
        Action("inventory", "list what you carry"),
        Action("examine {thing}", "look at a thing"),
        Action("read cookbook", "read the recipe; take the cookbook first if it is not in view"),
        Action("take {thing}", "pick up a thing from the room or an open container"),
        Action("put {thing} in {container}", "put down a thing"),
        Action("open {container}", "open a container"),
        Action("close {container}", "close a container"),
        Action("open door to {direction}", "open a door"),
        Action("close door to {direction}", "close a door"),
        Action("move {direction}", "walk to the next room"),
        Action("chop {ingredient}", "cut with a knife that you carry; also slice and dice, as the recipe says"),
        Action("cook {ingredient} in {appliance}", "cook an ingredient: stove to fry, oven to roast, barbeque to grill"),
        Action("prepare meal", "combine the finished ingredients, in the kitchen"),
        Action("eat {food}", "eat; eating the meal wins"),
    ),
    encoding="text",
    reward="Each ingredient found, each right step of its preparation, the prepared and the eaten meal raise the score, up to 1.",
)


class CookingWorldEnv(TextWorldExpressEnv):
    """Cook a meal by the recipe: TextWorldExpress's CookingWorld.

    ## Description

    A house of up to 11 rooms. The cookbook in the kitchen names ingredients and how each is to be cut and cooked; they
    lie in the rooms, in containers and in the garden. The engine is Jansen and Côté's TextWorldExpress
    (https://arxiv.org/abs/2208.01174), the registered parameters the setting most often used for research.

    ## Action Space

    `Text`: any string is a legal action. The game understands those in ``obs["valid_actions"]``; it answers any other
    with "Unknown action", which costs a step and sets ``info["action_was_valid"]`` to False.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | the game's answer to the last action, unchanged |
    | `goal` | `Text` | the task |
    | `look` | `Text` | what the present room looks like |
    | `inventory` | `Text` | what the agent carries |
    | `valid_actions` | `Sequence(Text)` | a sorted tuple of the actions that the game accepts now |

    ## Rewards

    The change of the game's score, which is 0 at the start and 1 when the meal is eaten.

    ## Starting State

    Seed s plays level ``seeds[s % 1000]`` of the fold: train has the engine's seeds 0 to 999, dev 10000 to 10999, test 20000
    to 20999. No level of one fold is a level of another.

    ## Episode End

    Terminated when the meal is eaten (``info["success"]``) or an ingredient is spoiled (``info["failure"]``); truncated
    after 50 steps. At the registered parameters the expert needs 10 to 26.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `num_locations` | 1 to 11 | 3 | rooms |
    | `num_ingredients` | 1 to 5 | 2 | ingredients of the recipe |
    | `num_distractor_items` | 0 to 10 | 2 | things of no use |
    | `include_doors` | bool | True | doors that must be opened |
    | `limit_inventory_size` | bool | True | carry at most as many things as the game allows |
    | `fold` | train, dev, test | train | the set of levels |
    | `expert` | off, path, replan | path | the hints in `info` |
    | `render_mode` | ansi, rgb_array | None | text, or text drawn as a picture |

    ## Info

    `gold_path` is the engine's solution, replayed at reset: steps that are not valid when they are played are dropped, and
    it is left out should it not win. With ``expert="replan"`` the engine's gold agent plans again on a copy of the
    game wherever the agent has left the path; its plan is believed if it wins when replayed.

    ## Version History

    * v0: first version, on textworld-express 1.1.0.
    """

    game = "cookingworld"
    gold_agent = "CookingWorldGoldAgent"
    parameters: ClassVar[dict[str, Range]] = {
        "num_locations": Range("numLocations", 1, 11),
        "num_ingredients": Range("numIngredients", 1, 5),
        "num_distractor_items": Range("numDistractorItems", 0, 10),
        "include_doors": Range("includeDoors", 0, 1),
        "limit_inventory_size": Range("limitInventorySize", 0, 1),
    }

    def __init__(
        self,
        *,
        num_locations: int = 3,
        num_ingredients: int = 2,
        num_distractor_items: int = 2,
        include_doors: bool = True,
        limit_inventory_size: bool = True,
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        for name, flag in (("include_doors", include_doors), ("limit_inventory_size", limit_inventory_size)):
            if not isinstance(flag, (bool, np.bool_)):
                raise UsageError(f"{name}: expected True or False; got {flag!r}.")
        super().__init__(
            text_spec=COOKING_WORLD_SPEC,
            fold=fold,
            expert=expert,
            render_mode=render_mode,
            num_locations=num_locations,
            num_ingredients=num_ingredients,
            num_distractor_items=num_distractor_items,
            include_doors=int(include_doors),
            limit_inventory_size=int(limit_inventory_size),
        )
