"""Pecking Order: read an instruction, follow it, read the next."""

from __future__ import annotations

from gym_text.index_actions import GAME_FIELDS
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, TextWorldExpressEnv
from gym_text.textworld_express.planner import PlannerConfig

# fmt: off
UNWINNABLE = frozenset((
    10022, 10042, 10063, 10064, 10083, 10095, 10110, 10153, 10156, 10171, 10175, 10217, 10218, 10225, 10237, 10261,
    10275, 10287, 10294, 10295, 10332, 10351, 10373, 10374, 10407, 10409, 10410, 10412, 10428, 10436, 10447, 10473,
    10528, 10556, 10568, 10596, 10598, 10611, 10623, 10666, 10670, 10706, 10727, 10755, 10816, 10836, 10852, 10858,
    10871, 10902, 10908, 10938, 10942, 10975, 10994,
))
# fmt: on
"""Levels of dev that an exhaustive search cannot win: two things have the same name, and "take" takes the wrong thing."""

PECKING_ORDER_SPEC = TextSpec(
    goal=(
        "Read the instructions book, which names the one thing to take now. Take it and read again, until everything is taken. "
        "Taking another thing loses the game."
    ),
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("read instructions book", "read what to take now; it changes after each right thing"),
        Action("take {thing}", "pick up a thing"),
        *PUT_AWAY,
    ),
    encoding="text",
    reward="Each thing taken in order raises the score by its share, up to 1; another thing makes it -1 and ends the game.",
)


class PeckingOrderEnv(TextWorldExpressEnv):
    """Take things in the order that a book gives, one at a time: TextWorldExpress's Pecking Order.

    ## Description

    One room with a book and 4 things. The book names the thing to take; when that thing is taken, the book names the next.

    {spaces}

    ## Rewards

    The change of the game's score, 0.25 for each thing taken in order. Taking another thing makes the score -1, so that the last
    reward is -1 minus the score before.

    ## Starting State

    {starting_state}

    55 levels of dev cannot be won: two of their things have the same name, and the game takes the wrong thing. The environment
    plays the next level that can be won instead.

    ## Episode End

    Terminated when everything is taken (``info["success"]``) or a thing was taken out of order (``info["failure"]``);
    truncated after 50 steps. The expert needs 9.

    {last_sections}
    """

    game = "peckingorder"
    game_spec = PECKING_ORDER_SPEC
    most_actions = most_actions_ever = 31
    planner_config = PlannerConfig(instructions_change=True)

    def _level_seed(self, seed: int) -> int:
        level = super()._level_seed(seed)
        while level in UNWINNABLE:
            level += 1
        return level
