"""Descriptions of well-known Gymnasium environments; `DescribeObservation` puts them on.

They are found by the class of the environment: every registered version has one, and so has every id of yours with that class.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym

from gym_text.box2d import import_box2d
from gym_text.descriptions.base import Description, Ending, words_of_numbers
from gym_text.errors import UsageError

__all__ = ["DESCRIBED", "Description", "Ending", "find_description", "gymnasium_id", "import_engine", "words_of_numbers"]

DESCRIBED = {
    "AcrobotEnv": "classic_control:acrobot",
    "BlackjackEnv": "toy_text:blackjack",
    "CartPoleEnv": "classic_control:cart_pole",
    "CliffWalkingEnv": "toy_text:cliff_walking",
    "Continuous_MountainCarEnv": "classic_control:mountain_car_continuous",
    "FrozenLakeEnv": "toy_text:frozen_lake",
    "HopperEnv": "mujoco:hopper",
    "InvertedPendulumEnv": "mujoco:inverted_pendulum",
    "LunarLander": "box2d:lunar_lander",
    "MountainCarEnv": "classic_control:mountain_car",
    "PendulumEnv": "classic_control:pendulum",
    "SwimmerEnv": "mujoco:swimmer",
    "TaxiEnv": "toy_text:taxi",
}
"""From the name of a Gymnasium class to the module and function here that describe it."""
_GYM_LLM = {"TaxiLLM-v3": "Taxi", "BlackjackLLM-v1": "Blackjack"}
"""From gym-llm's ids (https://github.com/rsanchezmo/gym-llm, MIT) to the names of Gymnasium's environments that they stand for."""


def gymnasium_id(env_id: str) -> str:
    """Return Gymnasium's newest id of the environment that an id of gym-llm stands for; any other id as it is."""
    if env_id not in _GYM_LLM or env_id in gym.registry:
        return env_id
    versions = {
        spec.version or 0: spec.id for spec in gym.registry.values() if spec.name == _GYM_LLM[env_id] and not spec.namespace
    }
    return versions[max(versions)] if versions else env_id


def import_engine(entry_point: str) -> None:
    """Import the engine of a Gymnasium environment whose own import of it says too little when it fails.

    Args:
        entry_point: The environment's entry point, ``module:Class``.

    Raises:
        MissingDependencyError: If the engine is not installed.
    """
    if entry_point.startswith("gymnasium.envs.box2d."):
        import_box2d()


def find_description(env: gym.Env[Any, Any]) -> Description | None:
    """Return the description of an environment as it was made (its map, its limits …), or None if none ships."""
    for kind in type(env.unwrapped).__mro__:
        if kind.__module__.startswith("gymnasium.envs.") and kind.__name__ in DESCRIBED:
            module, _, function = DESCRIBED[kind.__name__].partition(":")
            description: Description = getattr(importlib.import_module(f"{__name__}.{module}"), function)(env)
            return description
    return None


def description_of(env: gym.Env[Any, Any]) -> Description:
    """Return the description of an environment.

    Raises:
        UsageError: If none ships.
    """
    description = find_description(env)
    if description is None:
        raise UsageError(
            f"DescribeObservation: expected a TextSpec, as none ships for {env}. Pass spec=TextSpec(…) with the meaning of the "
            f"observation's numbers and of the actions. Ships for: {', '.join(sorted(name for name in DESCRIBED))}."
        )
    return description
