"""Coin Collector: find the coin in a house."""

from __future__ import annotations

from typing import ClassVar

from gym_text.spec import Action, TextSpec
from gym_text.text_env import Expert, Fold
from gym_text.textworld_express.env import (
    CONTAINERS,
    DOORS,
    GAME_FIELDS,
    INVENTORY,
    LOOK_AROUND,
    MOVE,
    PUT,
    Actions,
    Flag,
    Range,
    TextWorldExpressEnv,
)
from gym_text.textworld_express.planner import PlannerConfig

COIN_COLLECTOR_SPEC = TextSpec(
    goal="Search the rooms of the house for the coin, which lies in plain view in one of them, and take it.",
    fields=GAME_FIELDS,
    actions=(
        LOOK_AROUND,
        INVENTORY,
        Action("take {thing}", "pick up a thing; taking the coin wins"),
        PUT,
        *CONTAINERS,
        *DOORS,
        MOVE,
    ),
    encoding="text",
    reward="Taking the coin raises the score from 0 to 1; nothing else is rewarded.",
)


class CoinCollectorEnv(TextWorldExpressEnv):
    """Find a coin and take it: TextWorldExpress's Coin Collector.

    ## Description

    A house of up to 11 rooms, with doors between them. A coin lies in plain view in one of the rooms. The engine's
    version of Coin Collector (https://arxiv.org/abs/1806.11525).

    ## Action Space

    {action_space}

    ## Observation Space

    {observation_space}

    ## Rewards

    The change of the game's score: 1 for taking the coin, else 0.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the coin is taken (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 2 to 36: it searches the house too.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `num_locations` | 1 to 11 | 11 | rooms |
    | `num_distractor_items` | 0 to 10 | 0 | things of no use |
    | `include_doors` | bool | True | doors that must be opened |
    | `limit_inventory_size` | bool | True | carry at most two things |
    {arguments}

    ## Info

    {info}

    ## Version History

    * v0: first version, on textworld-express 1.1.0.
    """

    game = "coin"
    game_spec = COIN_COLLECTOR_SPEC
    most_actions = 15
    most_actions_ever = 18
    planner_config = PlannerConfig(agent="CoinGoldAgent", agent_plans=4, agent_searches=True)
    parameters: ClassVar[dict[str, Range | Flag]] = {
        "num_locations": Range("numLocations", 1, 11),
        "num_distractor_items": Range("numDistractorItems", 0, 10),
        "include_doors": Flag("includeDoors"),
        "limit_inventory_size": Flag("limitInventorySize"),
    }

    def __init__(
        self,
        *,
        num_locations: int = 11,
        num_distractor_items: int = 0,
        include_doors: bool = True,
        limit_inventory_size: bool = True,
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(actions=actions, fold=fold, expert=expert, render_mode=render_mode)
        self._set_parameters(
            num_locations=num_locations,
            num_distractor_items=num_distractor_items,
            include_doors=include_doors,
            limit_inventory_size=limit_inventory_size,
        )
