"""Text games and control tasks as Gymnasium environments that a language model can play.

Importing this package registers the environments; `gym.make("gym_text:CookingWorldText-v0")` does both. Nothing heavy is
loaded before an environment is made.
"""

from gym_text import registration  # noqa: F401  registers the environments
from gym_text.copies import fork
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
    "fork",
]
