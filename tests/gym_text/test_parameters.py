"""The parameters of an engine's games: one table gives the checks and the constructor's signature."""

import inspect

import numpy as np
import pytest

from gym_text import UsageError
from gym_text.parameters import Choice, Flag, Range, signature_of

SIZE, DOORS, BOXES = (
    Range("numRooms", 1, 11, 3, "rooms"),
    Flag("includeDoors", True, "doors"),
    Choice("boxes", (0, 2, 4), 2, "boxes"),
)


@pytest.mark.parametrize(
    ("parameter", "value", "engine_value"),
    [(SIZE, 11, 11), (SIZE, np.int64(1), 1), (DOORS, True, 1), (DOORS, np.bool_(False), 0), (BOXES, 4, 4)],
)
def test_a_value_that_fits_becomes_the_engines(parameter, value, engine_value):
    found = parameter.check("name", value)
    assert found == engine_value and type(found) is int


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        *((SIZE, value, "an integer from 1 to 11") for value in (0, 12, 2.5, "3", True)),
        *((DOORS, value, "True or False") for value in (1, 0, "yes", None)),
        *((BOXES, value, "one of 0, 2, 4") for value in (3, True, "2", None)),
    ],
)
def test_any_other_value_is_an_error_that_names_what_fits(parameter, value, expected):
    with pytest.raises(UsageError, match=f"name: expected {expected}; got"):
        parameter.check("name", value)


def test_the_signature_has_the_parameters_by_keyword_with_their_defaults_before_the_others():
    fold = inspect.Parameter("fold", inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = signature_of({"num_rooms": SIZE, "include_doors": DOORS, "num_boxes": BOXES}, [fold])
    assert str(signature) == "(*, num_rooms: 'int' = 3, include_doors: 'bool' = True, num_boxes: 'int' = 2, fold=None) -> 'None'"
