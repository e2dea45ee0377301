"""Simon Says: repeat commands, one at a time or all from memory."""

from __future__ import annotations

from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Flag, Parameters, Range
from gym_text.spec import Action, Field, TextSpec
from gym_text.textworld_express.env import TextWorldExpressEnv

_FIELDS = {**GAME_FIELDS, "look": Field("always empty: there are no rooms"), "inventory": Field("always empty: nothing is carried")}
_ACTION = Action("{command}", "do a command, such as touch grape or jump up and down")
_REWARD = "Each right command raises the score by its share, up to 1; a wrong one makes it -1 and ends the game."

SIMON_SAYS_SPEC = TextSpec(
    goal="Do exactly what Simon says: play the very command in his last sentence. Any other of the listed commands loses the game.",
    fields=_FIELDS,
    actions=(_ACTION,),
    encoding="text",
    reward=_REWARD,
)
SIMON_SAYS_MEMORY_SPEC = TextSpec(
    goal=(
        "Do exactly what Simon says: he says all commands once, at the start. Play them from memory, one a step, in his order. "
        "Any other of the listed commands loses the game."
    ),
    fields=_FIELDS,
    actions=(_ACTION,),
    encoding="text",
    reward=_REWARD,
)


class SimonSaysEnv(TextWorldExpressEnv):
    """Do as you are told: TextWorldExpress's Simon Says.

    ## Description

    Simon says a command; when that command is done, he says the next. `valid_actions` has all of his commands, and distractors.

    ## Action Space

    {action_space}

    ## Observation Space

    {observation_space}

    `look` and `inventory` are empty in this game.

    ## Rewards

    The change of the game's score: of n commands each counts 1/n. A wrong command makes the score -1, so that the last reward is
    -1 minus the score before. An invalid action is not a command: it costs a step and loses nothing.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the last command is done (``info["success"]``) or a wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters, which are the engine's defaults, the expert needs 5.

    {last_sections}
    """

    game = "simonsays"
    game_spec = SIMON_SAYS_SPEC
    most_actions = 8
    most_actions_ever = 65  # all commands that Simon knows
    parameters: ClassVar[Parameters] = {
        "game_length": Range("gameLength", 1, 1000, 5, "commands to be done"),
        "num_distractors": Range("numDistractors", 0, 5, 3, "further commands among the valid actions"),
    }


class SimonSaysMemoryEnv(SimonSaysEnv):
    """Do as you were told, from memory: TextWorldExpress's Simon Says with memorization.

    ## Description

    Simon says all commands at the start and then nothing. `valid_actions` has all of his commands, and distractors.

    ## Action Space

    {action_space}

    ## Observation Space

    {observation_space}

    `look` and `inventory` are empty in this game, and `text` after each right command, unless ``verbose=True``.

    ## Rewards

    As in SimonSaysText: of n commands each counts 1/n; a wrong one makes the score -1.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the last command is done (``info["success"]``) or a wrong one (``info["failure"]``); truncated after 50
    steps. At the registered parameters, which are the engine's defaults, the expert needs 5.

    {last_sections}
    """

    game_spec = SIMON_SAYS_MEMORY_SPEC
    parameters: ClassVar[Parameters] = {
        **SimonSaysEnv.parameters,
        "verbose": Flag("verbose", False, 'say "Correct!" after each right command'),
    }
    fixed_parameters: ClassVar[dict[str, int]] = {"memorization": 1}
