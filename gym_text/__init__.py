"""Text games and control tasks as Gymnasium environments that a language model can play.

Importing this package registers the environments; `gym.make("gym_text:CookingWorldText-v0")` does both. Nothing heavy is
loaded before an environment is made.
"""

from gymnasium.envs.registration import register

from gym_text.errors import (
    EngineError,
    EpisodeError,
    GymTextError,
    InvalidActionError,
    MissingDependencyError,
    StepOrderError,
    UsageError,
)
from gym_text.spec import Action, Field, Quantity, TextSpec
from gym_text.text_env import TextEnv

__all__ = [
    "Action",
    "EngineError",
    "EpisodeError",
    "Field",
    "GymTextError",
    "InvalidActionError",
    "MissingDependencyError",
    "Quantity",
    "StepOrderError",
    "TextEnv",
    "TextSpec",
    "UsageError",
]

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
        vector_entry_point=f"gym_text.textworld_express.vector:{_game}VectorEnv",
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
    entry_point="gym_text.babyai.env:BabyAITextEnv",  # its limit is the level's own
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
