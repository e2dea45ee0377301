"""The parameters of an engine's games: one table gives the checks and the constructor's signature."""

import inspect
import re
from typing import ClassVar

import numpy as np
import pytest

from gym_text import TextSpec, UsageError
from gym_text.parameters import BOOL, GameWithParameters, Parameter

SIZE, DOORS, BOXES = (
    Parameter("numRooms", range(1, 12), 3, "rooms"),
    Parameter("includeDoors", BOOL, True, "doors"),
    Parameter("boxes", (0, 2, 4), 2, "boxes"),
)


class Game(GameWithParameters):
    """A game.

    It has rooms.

    ## Rewards

    None.

    ## Episode End

    None.
    """

    texts = dict.fromkeys(("engine", "action_space", "text", "goal", "starting_state", "info"), "something")
    game_spec = TextSpec("", {}, (), "text")
    most_actions, most_actions_ever = 1, 2
    parameters: ClassVar = {"num_rooms": SIZE, "include_doors": DOORS, "num_boxes": BOXES}

    def __init__(self, *, fold=None, **parameters):
        self.values = self.read_parameters(parameters)


@pytest.mark.parametrize(
    ("parameter", "value", "engine_value"),
    [(SIZE, 11, 11), (SIZE, np.int64(1), 1), (DOORS, True, True), (BOXES, 4, 4)],
)
def test_a_value_that_fits_becomes_the_engines(parameter, value, engine_value):
    found = parameter.check("name", value)
    assert found == engine_value and type(found) is type(parameter.default)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        *((SIZE, value, "an integer from 1 to 11") for value in (0, 12, 2.5, "3", True)),
        *((DOORS, value, "True or False") for value in (1, 0, "yes", None)),
        (BOXES, 3, "one of 0, 2, 4"),
        *((BOXES, value, "an integer from 0 to 4") for value in (True, "2", None)),
    ],
)
def test_any_other_value_is_an_error_that_names_what_fits(parameter, value, expected):
    with pytest.raises(UsageError, match=f"name: expected {expected}; got"):
        parameter.check("name", value)


def test_the_signature_has_the_parameters_by_keyword_with_their_defaults_before_the_others():
    described = "(*, num_rooms: 'int' = 3, include_doors: 'bool' = True, num_boxes: 'int' = 2, fold=None) -> 'None'"
    assert str(inspect.signature(Game)) == described


def test_the_docstring_gets_the_sections_that_all_games_share():
    headings = re.findall(r"^## (.*)", Game.__doc__, re.MULTILINE)
    shared = ["Description", "Action Space", "Observation Space", "Rewards", "Starting State", "Episode End", "Arguments"]
    assert headings == [*shared, "Info", "Version History"] and "| `num_boxes` | 0, 2, 4 | 2 | boxes |" in Game.__doc__
