"""Arithmetic: solve a problem and bring the right number of things."""

from __future__ import annotations

from gym_text.index_actions import GAME_FIELDS
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, TextWorldExpressEnv

ARITHMETIC_SPEC = TextSpec(
    goal=(
        "Take and read the math problem and solve it. Then take the things whose number is the answer and put them into the box. "
        "Putting anything else into the box loses the game."
    ),
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("take {thing}", "pick up the math problem, or a bundle of things such as 6 oranges"),
        Action("read math problem", "read the problem; take it first"),
        *PUT_AWAY,
    ),
    encoding="text",
    reward=(
        "Reading the problem gives 0.5, the right things in the box 0.5; a wrong thing there makes the score -1 and ends the game."
    ),
)


class ArithmeticEnv(TextWorldExpressEnv):
    """Solve a math problem and put that many things into a box: TextWorldExpress's Arithmetic.

    ## Description

    One room with a box, a sheet with a problem such as "divide 22 by 11", and bundles of things. One bundle has as many
    things as the answer; others have as many as the result of a wrong operation.

    {spaces}

    ## Rewards

    The change of the game's score: 0.5 for reading the problem, 0.5 for the right bundle in the box. Anything else in the box
    makes the score -1, so that the last reward is -1 minus the score before.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the problem is read and the right bundle is in the box (``info["success"]``), or when anything else is put
    there (``info["failure"]``); truncated after 50 steps. The expert needs 5.

    {last_sections}
    """

    game = "arithmetic"
    game_spec = ARITHMETIC_SPEC
    most_actions = most_actions_ever = 59
