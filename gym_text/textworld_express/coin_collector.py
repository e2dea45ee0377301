"""Coin Collector: find the coin in a house."""

from __future__ import annotations

from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Flag, Parameters, Range
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, WALK, TextWorldExpressEnv
from gym_text.textworld_express.planner import PlannerConfig

COIN_COLLECTOR_SPEC = TextSpec(
    goal="Search the rooms of the house for the coin, which lies in plain view in one of them, and take it.",
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("take {thing}", "pick up a thing; taking the coin wins"),
        *PUT_AWAY,
        *WALK,
    ),
    encoding="text",
    reward="Taking the coin raises the score from 0 to 1; nothing else is rewarded.",
)


class CoinCollectorEnv(TextWorldExpressEnv):
    """Find a coin and take it: TextWorldExpress's Coin Collector.

    ## Description

    A house of up to 11 rooms, with doors between them. A coin lies in plain view in one of the rooms. This is the
    engine's version of Coin Collector (https://arxiv.org/abs/1806.11525).

    {spaces}

    ## Rewards

    The change of the game's score: 1 for taking the coin, else 0.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the coin is taken (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 2 to 36: it searches the house too.

    {last_sections}
    """

    game = "coin"
    game_spec = COIN_COLLECTOR_SPEC
    most_actions = 15
    most_actions_ever = 18
    planner_config = PlannerConfig(agent="CoinGoldAgent", agent_plans=4, agent_searches=True)
    parameters: ClassVar[Parameters] = {
        "num_locations": Range("numLocations", 1, 11, 11, "rooms"),
        "num_distractor_items": Range("numDistractorItems", 0, 10, 0, "things of no use"),
        "include_doors": Flag("includeDoors", True, "doors that must be opened"),
        "limit_inventory_size": Flag("limitInventorySize", True, "carry at most two things"),
    }
