"""Text games and control tasks as Gymnasium environments that a language model can play.

Importing this package registers the environments; `gym.make("gym_text:CookingWorldText-v0")` does both. Nothing heavy is
loaded before an environment is made.
"""

from gymnasium.envs.registration import WrapperSpec, register

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

_CHECK_LIMIT = (WrapperSpec("CheckLimit", "gym_text.wrappers:CheckLimit", kwargs={}),)

register(
    id="CookingWorldText-v0",
    entry_point="gym_text.textworld_express.env:CookingWorldEnv",
    max_episode_steps=50,
    additional_wrappers=_CHECK_LIMIT,
)
register(
    id="BabyAIText-v0",
    entry_point="gym_text.babyai.env:BabyAITextEnv",  # its limit is the level's own
    additional_wrappers=_CHECK_LIMIT,
)
register(
    id="LunarLanderLLM-v2",
    entry_point="gym_text.lunar_lander:LunarLanderEnv",
    max_episode_steps=1000,
    additional_wrappers=_CHECK_LIMIT,
)
register(
    id="MountainCarContinuousLLM-v0",
    entry_point="gym_text.mountain_car:MountainCarContinuousEnv",
    max_episode_steps=999,
    additional_wrappers=_CHECK_LIMIT,
)
