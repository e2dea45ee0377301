"""Gymnasium's classic control tasks.

Facts from their classes' docstrings and code (https://gymnasium.farama.org/environments/classic_control/).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv

from gym_text import mountain_car as car_in_words
from gym_text.descriptions.base import Description, fields
from gym_text.mountain_car_vector import drive
from gym_text.spec import Action, Quantity, TextSpec


def _quantities(env: gym.Env[Any, Any], *rows: tuple[str, str, str]) -> list[Quantity]:
    """Return quantities (name, meaning, unit) with the limits of the observation space."""
    space: Any = env.observation_space
    limits = zip(rows, space.low.tolist(), space.high.tolist(), strict=True)
    return [Quantity(name, meaning, low, high, unit) for (name, meaning, unit), low, high in limits]


def cart_pole(env: gym.Env[Any, Any]) -> Description:
    """Describe CartPole."""
    numbers = _quantities(
        env,
        ("cart_position", "place of the cart, positive to the right of the centre", "m"),
        ("cart_velocity", "velocity of the cart, positive to the right", "m/s"),
        ("pole_angle", "tilt of the pole, positive to the right, 0 upright", "radians"),
        ("pole_angular_velocity", "change of the tilt, positive to the right", "radians/s"),
    )
    # an argument of the class chooses between two rewards
    negative = bool(getattr(env.unwrapped, "_sutton_barto_reward", False))
    spec = TextSpec(
        goal=(
            "Balance the pole on the cart by pushing the cart left and right, for as long as possible. It is over when the pole "
            "tilts by more than 12 degrees (0.2095 radians) or the cart is more than 2.4 m from the centre."
        ),
        fields=fields("the state in numbers", numbers),
        actions=(Action("push left", "push the cart to the left"), Action("push right", "push the cart to the right")),
        encoding="discrete",
        reward="-1 when the pole falls or the cart leaves, else 0." if negative else "1 for every step.",
    )
    return Description(spec, success=lambda end: end.truncated and not end.terminated)


def acrobot(env: gym.Env[Any, Any]) -> Description:
    """Describe Acrobot."""
    numbers = _quantities(
        env,
        ("cos1", "cosine of the first link's angle, which is 0 hanging straight down", ""),
        ("sin1", "sine of the first link's angle", ""),
        ("cos2", "cosine of the second link's angle relative to the first", ""),
        ("sin2", "sine of the second link's angle relative to the first", ""),
        ("velocity1", "angular velocity of the first link", "radians/s"),
        ("velocity2", "angular velocity of the second link relative to the first", "radians/s"),
    )
    spec = TextSpec(
        goal=(
            "Two links hang from a fixed point, joined by a joint with a motor. Swing the free end up until it is more "
            "than 1 m above "
            "the fixed point (each link is 1 m long), in as few steps as possible. The motor is too weak to lift it in one go."
        ),
        fields=fields("the state in numbers", numbers),
        actions=(
            Action("torque negative", "torque -1 N m on the joint between the links"),
            Action("no torque", "let it swing"),
            Action("torque positive", "torque 1 N m on the joint between the links"),
        ),
        encoding="discrete",
        reward="-1 for every step that does not reach the height.",
    )
    return Description(spec, success=lambda end: end.terminated)


def pendulum(env: gym.Env[Any, Any]) -> Description:
    """Describe Pendulum."""
    torque = float(env.action_space.high[0])  # type: ignore[attr-defined]
    numbers = _quantities(
        env,
        ("cos", "cosine of the angle, 1 upright, -1 hanging down", ""),
        ("sin", "sine of the angle, positive when tilted counter-clockwise", ""),
        ("velocity", "angular velocity, positive counter-clockwise", "radians/s"),
    )
    spec = TextSpec(
        goal="Swing the pendulum up by a torque at its pivot and hold it upright and still, with as little torque as possible.",
        fields=fields("the state in numbers", numbers),
        actions=(
            Action("torque clockwise hard", f"torque -{torque:g} N m", -torque),
            Action("torque clockwise", f"torque -{torque / 2:g} N m", -torque / 2),
            Action("no torque", "let it swing", 0.0),
            Action("torque counter-clockwise", f"torque {torque / 2:g} N m", torque / 2),
            Action("torque counter-clockwise hard", f"torque {torque:g} N m", torque),
        ),
        encoding="box",
        low=-torque,
        high=torque,
        reward="At every step -(angle squared + 0.1 x angular velocity squared + 0.001 x torque squared), the angle 0 upright.",
    )
    # success: within about 18 degrees of upright at the end of the episode
    return Description(spec, success=lambda end: end.truncated and float(end.observation[0]) > 0.95)


def _car(env: gym.Env[Any, Any]) -> tuple[float, list[Quantity]]:
    """Return the flag's position and the quantities of a mountain car."""
    flag = float(getattr(env.unwrapped, "goal_position"))  # noqa: B009  an attribute of two classes that share no base
    meaning = f"place along the track; the valley's bottom is at -0.52, the flag at {flag:g}"
    return flag, _quantities(
        env, ("position", meaning, ""), ("velocity", "change of the position in a step, positive to the right", "")
    )


def mountain_car(env: gym.Env[Any, Any]) -> Description:
    """Describe MountainCar with its three actions."""
    flag, numbers = _car(env)
    spec = TextSpec(
        goal=(
            f"Drive the car from the bottom of the valley up to the flag on the right hill, at position {flag:g}, in as few "
            "steps as "
            "possible. The engine is too weak to climb in one go: swing to and fro to gather speed."
        ),
        fields=fields("the state in numbers", numbers),
        actions=(
            Action("push left", "accelerate to the left"),
            Action("coast", "do not accelerate"),
            Action("push right", "accelerate to the right"),
        ),
        encoding="discrete",
        reward="-1 for every step.",
    )
    return Description(spec, lambda obs: car_in_words.describe({"car": obs}, flag), lambda end: end.terminated)


def mountain_car_continuous(env: gym.Env[Any, Any]) -> Description:
    """Describe MountainCarContinuous, in the words of MountainCarContinuousLLM-v0."""
    flag, numbers = _car(env)
    ours = car_in_words.MOUNTAIN_CAR_SPEC
    spec = TextSpec(ours.goal, fields("the state in numbers", numbers), ours.actions, "box", reward=ours.reward)
    as_registered = type(env.unwrapped) is Continuous_MountainCarEnv and env.unwrapped.goal_velocity == 0
    return Description(
        spec,
        lambda obs: car_in_words.describe({"car": obs}, flag),
        lambda end: end.terminated,
        play_together=drive if as_registered else None,
    )
