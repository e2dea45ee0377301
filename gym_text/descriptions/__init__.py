"""Descriptions of well-known Gymnasium environments, for the wrapper `DescribeObservation`.

The class of the environment determines its description: every registered version has one, as has any id that you register with that
class.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym

from gym_text.box2d import import_box2d
from gym_text.descriptions.base import Description, Ending, words_of_numbers
from gym_text.errors import UsageError
from gym_text.spec import TextSpec

__all__ = ["DESCRIBED", "Description", "Ending", "find_description", "gymnasium_id", "import_engine", "words_of_numbers"]

DESCRIBED = {
    "AcrobotEnv": "classic_control:acrobot",
    "BlackjackEnv": "toy_text:blackjack",
    "CartPoleEnv": "classic_control:cart_pole",
    "CliffWalkingEnv": "toy_text:cliff_walking",
    "Continuous_MountainCarEnv": "classic_control:mountain_car_continuous",
    "FrozenLakeEnv": "toy_text:frozen_lake",
    "LunarLander": "box2d:lunar_lander",
    "MountainCarEnv": "classic_control:mountain_car",
    "PendulumEnv": "classic_control:pendulum",
    "TaxiEnv": "toy_text:taxi",
}
"""The names of Gymnasium's classes, each with the module and function in this folder that describe it."""
_GYM_LLM = {"TaxiLLM-v3": "Taxi", "BlackjackLLM-v1": "Blackjack"}
"""Ids of gym-llm (https://github.com/rsanchezmo/gym-llm, MIT), each with the name of the Gymnasium environment that it means."""


def gymnasium_id(env_id: str) -> str:
    """Return Gymnasium's newest id of the environment that an id of gym-llm means; any other id unchanged."""
    if env_id not in _GYM_LLM or env_id in gym.registry:
        return env_id
    versions = {
        spec.version or 0: spec.id for spec in gym.registry.values() if spec.name == _GYM_LLM[env_id] and not spec.namespace
    }
    return versions[max(versions)] if versions else env_id


def import_engine(entry_point: str) -> None:
    """Import the engine of a Gymnasium environment; if it is missing, the error says how to install it.

    Args:
        entry_point: The environment's entry point, ``module:Class``.

    Raises:
        MissingDependencyError: If the engine is not installed.
    """
    if entry_point.startswith("gymnasium.envs.box2d."):
        import_box2d()


def find_description(env: gym.Env[Any, Any]) -> Description | None:
    """Return the description of an environment with its arguments (map, limits …), or None if this package has none."""
    for env_class in type(env.unwrapped).__mro__:
        if env_class.__module__.startswith("gymnasium.envs.") and env_class.__name__ in DESCRIBED:
            module, _, function = DESCRIBED[env_class.__name__].partition(":")
            description: Description = getattr(importlib.import_module(f"{__name__}.{module}"), function)(env)
            return description
    return None


def missing_fields(env: gym.Env[Any, Any]) -> list[str]:
    """Return what prompts need and an environment lacks: a ``text_spec``, or fields in it and in the observations."""
    spec = env.get_wrapper_attr("text_spec") if env.has_wrapper_attr("text_spec") else None
    if not isinstance(spec, TextSpec):
        return ["text_spec"]
    seen = env.observation_space.spaces.keys() if isinstance(env.observation_space, gym.spaces.Dict) else set()
    told = {key for key, field in spec.fields.items() if not field.is_list}  # `EncodeText` can drop lists of actions
    return sorted(({"text", "goal"} | told) - seen | ({"text", "goal"} - told))


def description_of(env: gym.Env[Any, Any]) -> Description:
    """Return the description of an environment: its own ``text_spec``, or the description that this package has.

    Raises:
        UsageError: If there is none.
    """
    own = env.get_wrapper_attr("text_spec") if env.has_wrapper_attr("text_spec") else None
    description = Description(own) if isinstance(own, TextSpec) else find_description(env)
    if description is None:
        raise UsageError(
            f"DescribeObservation: expected a TextSpec, as this package does not describe {env.unwrapped}. Give its class an "
            "attribute text_spec = TextSpec(…) with the task, the actions, and the meaning of each field of the observation."
        )
    return description
