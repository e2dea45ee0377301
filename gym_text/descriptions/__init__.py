"""Descriptions of well-known Gymnasium environments; `DescribeObservation` puts them on.

They are found by the class of the environment: every registered version has one, and so has every id of yours with that class.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym

from gym_text.descriptions.base import Description, Ending, words_of_numbers
from gym_text.errors import UsageError

__all__ = ["DESCRIBED", "Description", "Ending", "find_description", "words_of_numbers"]

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
