"""Map Reader: fetch a coin with the help of a map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gym_text.errors import UsageError
from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Flag, Parameters, Range
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT, WALK, TextWorldExpressEnv

_ROOMS_NEEDED = {1: 2, 2: 3, 3: 6, 4: 9, 5: 14, 6: 18, 7: 23, 8: 29}
"""For each distance: the fewest rooms with which the engine can make all 3,000 levels."""

MAP_READER_SPEC = TextSpec(
    goal=(
        "Take the coin from the room that the task names and put it into the box in the room where you start. "
        "The map that you carry says which rooms are connected, but not in which direction."
    ),
    fields=GAME_FIELDS,
    actions=(
        *INSPECT,
        Action("task", "tell the task again"),
        Action("read map", "read which rooms are connected"),
        Action("take {thing}", "pick up a thing"),
        PUT,
        *WALK,
    ),
    encoding="text",
    reward="The score is 0.5 while you carry the coin and 1 when it is in the box.",
)


class MapReaderEnv(TextWorldExpressEnv):
    """Fetch a coin from a named room and bring it to the box: TextWorldExpress's Map Reader.

    ## Description

    A building of up to 48 rooms. The task names the room with the coin and the room with the box, where the agent
    begins; a map names each room's neighbours. Between some rooms there are doors, if the game has them.

    {spaces}

    ## Rewards

    The change of the game's score: 0.5 for taking the coin, 0.5 for putting it into the box; -0.5 for putting it elsewhere.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the coin is in the box (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 7 to 13.

    {last_sections}
    """

    game = "mapreader"
    game_spec = MAP_READER_SPEC
    most_actions = 27
    most_actions_ever = 28
    parameters: ClassVar[Parameters] = {
        "num_locations": Range("numLocations", 2, 48, 15, "rooms"),  # the engine accepts 1, 49 and 50 and then makes no level
        "max_distance_apart": Range(
            "maxDistanceApart", 1, 8, 4, "most steps from the box to the coin; more steps need more rooms: an error says how many"
        ),
        "max_distractor_items_per_location": Range(
            "maxDistractorItemsPerLocation", 0, 3, 3, "things of no use in each room, at most"
        ),
        "include_doors": Flag("includeDoors", False, "doors that must be opened"),
        "limit_inventory_size": Flag("limitInventorySize", False, "carry at most two things, one of which is the map"),
    }

    def _read_parameters(self, arguments: Mapping[str, object]) -> dict[str, int]:
        values = super()._read_parameters(arguments)
        rooms, distance = values["numLocations"], values["maxDistanceApart"]
        needed = _ROOMS_NEEDED[distance]
        if rooms < needed:
            raise UsageError(f"num_locations: expected at least {needed} where max_distance_apart={distance}; got {rooms}.")
        return values
