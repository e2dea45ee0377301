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

register(
    id="CookingWorldText-v0",
    entry_point="gym_text.textworld_express.cooking_world:CookingWorldEnv",
    vector_entry_point="gym_text.textworld_express.vector:CookingWorldVectorEnv",
    max_episode_steps=50,
)
register(
    id="CommonsenseText-v0",
    entry_point="gym_text.textworld_express.commonsense:CommonsenseEnv",
    vector_entry_point="gym_text.textworld_express.vector:CommonsenseVectorEnv",
    max_episode_steps=50,
)
register(
    id="CoinCollectorText-v0",
    entry_point="gym_text.textworld_express.coin_collector:CoinCollectorEnv",
    vector_entry_point="gym_text.textworld_express.vector:CoinCollectorVectorEnv",
    max_episode_steps=50,
)
register(
    id="MapReaderText-v0",
    entry_point="gym_text.textworld_express.map_reader:MapReaderEnv",
    vector_entry_point="gym_text.textworld_express.vector:MapReaderVectorEnv",
    max_episode_steps=50,
)
register(
    id="ArithmeticText-v0",
    entry_point="gym_text.textworld_express.arithmetic:ArithmeticEnv",
    vector_entry_point="gym_text.textworld_express.vector:ArithmeticVectorEnv",
    max_episode_steps=50,
)
register(
    id="SortingText-v0",
    entry_point="gym_text.textworld_express.sorting:SortingEnv",
    vector_entry_point="gym_text.textworld_express.vector:SortingVectorEnv",
    max_episode_steps=50,
)
register(
    id="SimonSaysText-v0",
    entry_point="gym_text.textworld_express.simon_says:SimonSaysEnv",
    vector_entry_point="gym_text.textworld_express.vector:SimonSaysVectorEnv",
    max_episode_steps=50,
)
register(
    id="SimonSaysMemoryText-v0",
    entry_point="gym_text.textworld_express.simon_says:SimonSaysMemoryEnv",
    vector_entry_point="gym_text.textworld_express.vector:SimonSaysMemoryVectorEnv",
    max_episode_steps=50,
)
register(
    id="PeckingOrderText-v0",
    entry_point="gym_text.textworld_express.pecking_order:PeckingOrderEnv",
    vector_entry_point="gym_text.textworld_express.vector:PeckingOrderVectorEnv",
    max_episode_steps=50,
)
register(
    id="BabyAIText-v0",
    entry_point="gym_text.babyai.env:BabyAITextEnv",  # its limit is the level's own
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
