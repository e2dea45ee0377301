"""Commonsense (TextWorld Commonsense, twc): put things where they belong."""

from __future__ import annotations

from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Flag, Parameters, Range
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, WALK, TextWorldExpressEnv
from gym_text.textworld_express.planner import PlannerConfig

COMMONSENSE_SPEC = TextSpec(
    goal=(
        "Pick up the things that lie about and put each in or on the piece of furniture where people usually keep it, "
        "such as dirty clothes in the laundry basket. It may be closed, or in another room."
    ),
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("take {thing}", "pick up a thing"),
        *PUT_AWAY,
        *WALK,
    ),
    encoding="text",
    reward="Each thing raises the score by half its share when you carry it, by all of it when it is in its usual place, up to 1.",
)


class CommonsenseEnv(TextWorldExpressEnv):
    """Put things in their usual places: TextWorldExpress's TextWorld Commonsense.

    ## Description

    A house of up to 3 rooms, in which up to 4 things lie where they do not belong. The game does not say where they belong: the
    player has to know it. This is the engine's version of TextWorld Commonsense (https://arxiv.org/abs/2010.03790).

    {spaces}

    ## Rewards

    The change of the game's score, which is 0 at the start and 1 when everything is in its place. Of n things each counts 1/n:
    half when it is carried, all when it is in its place. A thing that is put down elsewhere counts nothing again.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when everything is in its place (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 10 to 21.

    {last_sections}
    """

    game = "twc"
    game_spec = COMMONSENSE_SPEC
    most_actions = 42
    most_actions_ever = 46
    planner_config = PlannerConfig(agent="TWCGoldAgent", agent_plans=4, agent_searches=True)
    parameters: ClassVar[Parameters] = {
        "num_locations": Range("numLocations", 1, 3, 3, "rooms"),
        "num_items_to_put_away": Range("numItemsToPutAway", 1, 4, 4, "things to be put away"),
        "include_doors": Flag("includeDoors", False, "doors that must be opened"),
        "limit_inventory_size": Flag("limitInventorySize", False, "carry at most as many things as the game allows"),
    }
