"""The games of TextWorldExpress that are played in a house or a building of several rooms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gym_text.errors import UsageError
from gym_text.index_actions import listed_spec
from gym_text.parameters import BOOL, Parameter, Parameters
from gym_text.spec import Action
from gym_text.textworld_express.env import INSPECT, PUT, PUT_AWAY, WALK, TextWorldExpressEnv
from gym_text.textworld_express.planner import PlannerConfig

_ROOMS_NEEDED = {1: 2, 2: 3, 3: 6, 4: 9, 5: 14, 6: 18, 7: 23, 8: 29}
"""For each distance in Map Reader: the fewest rooms with which the engine can make all 3,000 levels."""


class CookingWorldEnv(TextWorldExpressEnv):
    """Cook a meal by the recipe: TextWorldExpress's CookingWorld.

    A house of up to 11 rooms. The cookbook in the kitchen names ingredients and how each is to be cut and cooked. The
    ingredients lie in the rooms, in containers and in the garden. The engine is Jansen and Côté's TextWorldExpress
    (https://arxiv.org/abs/2208.01174). The registered parameters are the setting that research uses most often.

    ## Rewards

    The change of the game's score, which is 0 at the start and 1 when the meal is eaten.

    ## Episode End

    Terminated when the meal is eaten (``info["success"]``) or an ingredient is spoiled (``info["failure"]``); truncated
    after 50 steps. At the registered parameters the expert needs 10 to 25.
    """

    game = "cookingworld"
    game_spec = listed_spec(
        "Find the cookbook in the kitchen and read the recipe. Collect its ingredients, cut and cook each as the recipe says, "
        "prepare the meal in the kitchen and eat it. Spoiling an ingredient loses the game.",
        *INSPECT,
        Action("examine {thing}", "look at a thing"),
        Action("read cookbook", "read the recipe; take the cookbook first if it is not in view"),
        Action("take {thing}", "pick up a thing from the room or an open container"),
        *PUT_AWAY,
        *WALK,
        Action("chop {ingredient}", "cut with a knife that you carry; also slice and dice, as the recipe says"),
        Action("cook {ingredient} in {appliance}", "cook an ingredient: stove to fry, oven to roast, barbeque to grill"),
        Action("prepare meal", "combine the finished ingredients, in the kitchen"),
        Action("eat {food}", "eat; eating the meal wins"),
        reward=(
            "Each ingredient found, each right step of its preparation, the prepared and the eaten meal raise the score, up to 1."
        ),
    )
    most_actions = 77
    most_actions_ever = 255
    planner_config = PlannerConfig(agent="CookingWorldGoldAgent", agent_plans=4)
    parameters: ClassVar[Parameters] = {
        "num_locations": Parameter("numLocations", range(1, 12), 3, "rooms"),
        "num_ingredients": Parameter("numIngredients", range(1, 6), 2, "ingredients of the recipe"),
        "num_distractor_items": Parameter("numDistractorItems", range(0, 11), 2, "things of no use"),
        "include_doors": Parameter("includeDoors", BOOL, True, "doors that must be opened"),
        "limit_inventory_size": Parameter("limitInventorySize", BOOL, True, "carry at most as many things as the game allows"),
    }


class CommonsenseEnv(TextWorldExpressEnv):
    """Put things in their usual places: TextWorldExpress's TextWorld Commonsense.

    A house of up to 3 rooms, in which up to 4 things lie where they do not belong. The game does not say where they belong: the
    player has to know it. This is the engine's version of TextWorld Commonsense (https://arxiv.org/abs/2010.03790).

    ## Rewards

    The change of the game's score, which is 0 at the start and 1 when everything is in its place. Of n things each counts 1/n:
    half when it is carried, all when it is in its place. A thing that is put down elsewhere counts nothing again.

    ## Episode End

    Terminated when everything is in its place (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 10 to 21.
    """

    game = "twc"
    game_spec = listed_spec(
        "Pick up the things that lie about and put each in or on the piece of furniture where people usually keep it, "
        "such as dirty clothes in the laundry basket. It may be closed, or in another room.",
        *INSPECT,
        Action("take {thing}", "pick up a thing"),
        *PUT_AWAY,
        *WALK,
        reward=(
            "Each thing raises the score by half its share when you carry it, by all of it when it is in its usual place, up to 1."
        ),
    )
    most_actions = 42
    most_actions_ever = 46
    planner_config = PlannerConfig(agent="TWCGoldAgent", agent_plans=4, agent_searches=True)
    parameters: ClassVar[Parameters] = {
        "num_locations": Parameter("numLocations", range(1, 4), 3, "rooms"),
        "num_items_to_put_away": Parameter("numItemsToPutAway", range(1, 5), 4, "things to be put away"),
        "include_doors": Parameter("includeDoors", BOOL, False, "doors that must be opened"),
        "limit_inventory_size": Parameter("limitInventorySize", BOOL, False, "carry at most as many things as the game allows"),
    }


class CoinCollectorEnv(TextWorldExpressEnv):
    """Find a coin and take it: TextWorldExpress's Coin Collector.

    A house of up to 11 rooms, with doors between them. A coin lies in plain view in one of the rooms. This is the
    engine's version of Coin Collector (https://arxiv.org/abs/1806.11525).

    ## Rewards

    The change of the game's score: 1 for taking the coin, else 0.

    ## Episode End

    Terminated when the coin is taken (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 2 to 36: it searches the house too.
    """

    game = "coin"
    game_spec = listed_spec(
        "Search the rooms of the house for the coin, which lies in plain view in one of them, and take it.",
        *INSPECT,
        Action("take {thing}", "pick up a thing; taking the coin wins"),
        *PUT_AWAY,
        *WALK,
        reward="Taking the coin raises the score from 0 to 1; nothing else is rewarded.",
    )
    most_actions = 15
    most_actions_ever = 18
    planner_config = PlannerConfig(agent="CoinGoldAgent", agent_plans=4, agent_searches=True)
    parameters: ClassVar[Parameters] = {
        "num_locations": Parameter("numLocations", range(1, 12), 11, "rooms"),
        "num_distractor_items": Parameter("numDistractorItems", range(0, 11), 0, "things of no use"),
        "include_doors": Parameter("includeDoors", BOOL, True, "doors that must be opened"),
        "limit_inventory_size": Parameter("limitInventorySize", BOOL, True, "carry at most two things"),
    }


class MapReaderEnv(TextWorldExpressEnv):
    """Fetch a coin from a named room and bring it to the box: TextWorldExpress's Map Reader.

    A building of up to 48 rooms. The task names the room with the coin and the room with the box, where the agent
    begins; a map names each room's neighbours. Between some rooms there are doors, if the game has them.

    ## Rewards

    The change of the game's score: 0.5 for taking the coin, 0.5 for putting it into the box; -0.5 for putting it elsewhere.

    ## Episode End

    Terminated when the coin is in the box (``info["success"]``); the game cannot be lost; truncated after 50 steps.
    At the registered parameters, which are the engine's defaults, the expert needs 7 to 13.
    """

    game = "mapreader"
    game_spec = listed_spec(
        "Take the coin from the room that the task names and put it into the box in the room where you start. "
        "The map that you carry says which rooms are connected, but not in which direction.",
        *INSPECT,
        Action("task", "tell the task again"),
        Action("read map", "read which rooms are connected"),
        Action("take {thing}", "pick up a thing"),
        PUT,
        *WALK,
        reward="The score is 0.5 while you carry the coin and 1 when it is in the box.",
    )
    most_actions = 27
    most_actions_ever = 28
    parameters: ClassVar[Parameters] = {
        # the engine accepts 1, 49 and 50 rooms and then makes no level
        "num_locations": Parameter("numLocations", range(2, 49), 15, "rooms"),
        "max_distance_apart": Parameter(
            "maxDistanceApart",
            range(1, 9),
            4,
            "most steps from the box to the coin; more steps need more rooms: an error says how many",
        ),
        "max_distractor_items_per_location": Parameter(
            "maxDistractorItemsPerLocation", range(0, 4), 3, "things of no use in each room, at most"
        ),
        "include_doors": Parameter("includeDoors", BOOL, False, "doors that must be opened"),
        "limit_inventory_size": Parameter("limitInventorySize", BOOL, False, "carry at most two things, one of which is the map"),
    }

    def read_parameters(self, arguments: Mapping[str, Any]) -> dict[str, int]:
        """Return all parameters; refuse fewer rooms than the engine needs."""
        values = super().read_parameters(arguments)
        rooms, distance = values["num_locations"], values["max_distance_apart"]
        if rooms < (needed := _ROOMS_NEEDED[distance]):
            raise UsageError(f"num_locations: expected at least {needed} where max_distance_apart={distance}; got {rooms}.")
        return values
