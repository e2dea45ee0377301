"""Sorting: put things into a box in the order of their quantities."""

from __future__ import annotations

from gym_text.index_actions import GAME_FIELDS
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, TextWorldExpressEnv

SORTING_SPEC = TextSpec(
    goal=(
        "Put all things that have a quantity into the box, the smallest quantity first. Units differ: 50g is less than 2kg. "
        "A thing out of order loses the game."
    ),
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("take {thing}", "pick up a thing with its quantity, such as 25g of oak"),
        *PUT_AWAY,
    ),
    encoding="text",
    reward="Each thing in the box in order raises the score by its share, up to 1; one out of order makes it -1 and ends the game.",
)


class SortingEnv(TextWorldExpressEnv):
    """Sort things by quantity: TextWorldExpress's Sorting.

    ## Description

    One room with a box and 3 to 5 things whose names begin with a quantity. The units differ within a level, such as g and kg.

    {spaces}

    ## Rewards

    The change of the game's score: of n things each counts 1/n while it is in the box. A thing out of order makes the score
    -1, so that the last reward is -1 minus the score before.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when everything is in the box (``info["success"]``) or a thing was put there out of order
    (``info["failure"]``); truncated after 50 steps. The expert needs 6 to 10.

    {last_sections}
    """

    game = "sorting"
    game_spec = SORTING_SPEC
    most_actions = most_actions_ever = 42
