"""The games of TextWorldExpress that are played in one room, or without rooms."""

from __future__ import annotations

from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS, listed_spec
from gym_text.parameters import BOOL, Parameter, Parameters
from gym_text.spec import Action, Field
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
"""Levels of Pecking Order's dev fold that an exhaustive search cannot win: two things have one name, "take" takes the wrong one."""
_FIELDS = {**GAME_FIELDS, "look": Field("always empty: there are no rooms"), "inventory": Field("always empty: nothing is carried")}
_ACTION = Action("{command}", "do a command, such as touch grape or jump up and down")
_REWARD = "Each right command raises the score by its share, up to 1; a wrong one makes it -1 and ends the game."


class ArithmeticEnv(TextWorldExpressEnv):
    """Solve a math problem and put that many things into a box: TextWorldExpress's Arithmetic.

    One room with a box, a sheet with a problem such as "divide 22 by 11", and bundles of things. One bundle has as many
    things as the answer; others have as many as the result of a wrong operation.

    ## Rewards

    The change of the game's score: 0.5 for reading the problem, 0.5 for the right bundle in the box. Anything else in the box
    makes the score -1, so that the last reward is -1 minus the score before.

    ## Episode End

    Terminated when the problem is read and the right bundle is in the box (``info["success"]``), or when anything else is put
    there (``info["failure"]``); truncated after 50 steps. The expert needs 5.
    """

    game = "arithmetic"
    game_spec = listed_spec(
        "Take and read the math problem and solve it. Then take the things whose number is the answer and put them into the box. "
        "Putting anything else into the box loses the game.",
        *INSPECT,
        Action("take {thing}", "pick up the math problem, or a bundle of things such as 6 oranges"),
        Action("read math problem", "read the problem; take it first"),
        *PUT_AWAY,
        reward=(
            "Reading the problem gives 0.5, the right things in the box 0.5; "
            "a wrong thing there makes the score -1 and ends the game."
        ),
    )
    most_actions = most_actions_ever = 59


class SortingEnv(TextWorldExpressEnv):
    """Sort things by quantity: TextWorldExpress's Sorting.

    One room with a box and 3 to 5 things whose names begin with a quantity. The units differ within a level, such as g and kg.

    ## Rewards

    The change of the game's score: of n things each counts 1/n while it is in the box. A thing out of order makes the score
    -1, so that the last reward is -1 minus the score before.

    ## Episode End

    Terminated when everything is in the box (``info["success"]``) or a thing was put there out of order
    (``info["failure"]``); truncated after 50 steps. The expert needs 6 to 10.
    """

    game = "sorting"
    game_spec = listed_spec(
        "Put all things that have a quantity into the box, the smallest quantity first. Units differ: 50g is less than 2kg. "
        "A thing out of order loses the game.",
        *INSPECT,
        Action("take {thing}", "pick up a thing with its quantity, such as 25g of oak"),
        *PUT_AWAY,
        reward=(
            "Each thing in the box in order raises the score by its share, up to 1; one out of order makes it -1 and ends the game."
        ),
    )
    most_actions = most_actions_ever = 42


class PeckingOrderEnv(TextWorldExpressEnv):
    """Take things in the order that a book gives, one at a time: TextWorldExpress's Pecking Order.

    One room with a book and 4 things. The book names the thing to take; when that thing is taken, the book names the next.

    55 levels of dev cannot be won: two of their things have the same name, and the game takes the wrong thing. The environment
    plays the next level that can be won instead.

    ## Rewards

    The change of the game's score, 0.25 for each thing taken in order. Taking another thing makes the score -1, so that the last
    reward is -1 minus the score before.

    ## Episode End

    Terminated when everything is taken (``info["success"]``) or a thing was taken out of order (``info["failure"]``);
    truncated after 50 steps. The expert needs 9.
    """

    game = "peckingorder"
    game_spec = listed_spec(
        "Read the instructions book, which names the one thing to take now. Take it and read again, until everything is taken. "
        "Taking another thing loses the game.",
        *INSPECT,
        Action("read instructions book", "read what to take now; it changes after each right thing"),
        Action("take {thing}", "pick up a thing"),
        *PUT_AWAY,
        reward="Each thing taken in order raises the score by its share, up to 1; another thing makes it -1 and ends the game.",
    )
    most_actions = most_actions_ever = 31
    planner_config = PlannerConfig(instructions_change=True)

    def _level_seed(self, seed: int) -> int:
        level = super()._level_seed(seed)
        while level in UNWINNABLE:
            level += 1
        return level


class SimonSaysEnv(TextWorldExpressEnv):
    """Do as you are told: TextWorldExpress's Simon Says.

    Simon says a command; when that command is done, he says the next. `valid_actions` has all of his commands, and distractors.
    `look` and `inventory` are empty in this game.

    ## Rewards

    The change of the game's score: of n commands each counts 1/n. A wrong command makes the score -1, so that the last reward is
    -1 minus the score before. An invalid action is not a command: it costs a step and loses nothing.

    ## Episode End

    Terminated when the last command is done (``info["success"]``) or a wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters, which are the engine's defaults, the expert needs 5.
    """

    game = "simonsays"
    game_spec = listed_spec(
        "Do exactly what Simon says: play the very command in his last sentence. Any other of the listed commands loses the game.",
        _ACTION,
        reward=_REWARD,
        fields=_FIELDS,
    )
    most_actions = 8
    most_actions_ever = 65  # all commands that Simon knows
    parameters: ClassVar[Parameters] = {
        "game_length": Parameter("gameLength", range(1, 1001), 5, "commands to be done"),
        "num_distractors": Parameter("numDistractors", range(0, 6), 3, "further commands among the valid actions"),
    }


class SimonSaysMemoryEnv(SimonSaysEnv):
    """Do as you were told, from memory: TextWorldExpress's Simon Says with memorization.

    Simon says all commands at the start and then nothing. `valid_actions` has all of his commands, and distractors.
    `look` and `inventory` are empty in this game, and `text` after each right command, unless ``verbose=True``.

    ## Rewards

    As in SimonSaysText: of n commands each counts 1/n; a wrong one makes the score -1.

    ## Episode End

    Terminated when the last command is done (``info["success"]``) or a wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters, which are the engine's defaults, the expert needs 5.
    """

    game_spec = listed_spec(
        "Do exactly what Simon says: he says all commands once, at the start. Play them from memory, one a step, in his order. "
        "Any other of the listed commands loses the game.",
        _ACTION,
        reward=_REWARD,
        fields=_FIELDS,
    )
    parameters: ClassVar[Parameters] = {
        **SimonSaysEnv.parameters,
        "verbose": Parameter("verbose", BOOL, False, 'say "Correct!" after each right command'),
    }
    fixed_parameters: ClassVar[dict[str, int]] = {"memorization": 1}
