"""CookingWorld: collect, prepare and eat a meal by the recipe."""

from __future__ import annotations

from typing import ClassVar

from gym_text.index_actions import GAME_FIELDS
from gym_text.parameters import Flag, Parameters, Range
from gym_text.spec import Action, TextSpec
from gym_text.textworld_express.env import INSPECT, PUT_AWAY, WALK, TextWorldExpressEnv
from gym_text.textworld_express.planner import PlannerConfig

COOKING_WORLD_SPEC = TextSpec(
    goal=(
        "Find the cookbook in the kitchen and read the recipe. Collect its ingredients, cut and cook each as the recipe says, "
        "prepare the meal in the kitchen and eat it. Spoiling an ingredient loses the game."
    ),
    fields=GAME_FIELDS,
    actions=(
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
    ),
    encoding="text",
    reward="Each ingredient found, each right step of its preparation, the prepared and the eaten meal raise the score, up to 1.",
)


class CookingWorldEnv(TextWorldExpressEnv):
    """Cook a meal by the recipe: TextWorldExpress's CookingWorld.

    ## Description

    A house of up to 11 rooms. The cookbook in the kitchen names ingredients and how each is to be cut and cooked. The
    ingredients lie in the rooms, in containers and in the garden. The engine is Jansen and Côté's TextWorldExpress
    (https://arxiv.org/abs/2208.01174). The registered parameters are the setting that research uses most often.

    {spaces}

    ## Rewards

    The change of the game's score, which is 0 at the start and 1 when the meal is eaten.

    ## Starting State

    {starting_state}

    ## Episode End

    Terminated when the meal is eaten (``info["success"]``) or an ingredient is spoiled (``info["failure"]``); truncated
    after 50 steps. At the registered parameters the expert needs 10 to 25.

    {last_sections}
    """

    game = "cookingworld"
    game_spec = COOKING_WORLD_SPEC
    most_actions = 77
    most_actions_ever = 255
    planner_config = PlannerConfig(agent="CookingWorldGoldAgent", agent_plans=4)
    parameters: ClassVar[Parameters] = {
        "num_locations": Range("numLocations", 1, 11, 3, "rooms"),
        "num_ingredients": Range("numIngredients", 1, 5, 2, "ingredients of the recipe"),
        "num_distractor_items": Range("numDistractorItems", 0, 10, 2, "things of no use"),
        "include_doors": Flag("includeDoors", True, "doors that must be opened"),
        "limit_inventory_size": Flag("limitInventorySize", True, "carry at most as many things as the game allows"),
    }
