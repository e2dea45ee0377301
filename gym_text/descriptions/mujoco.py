"""Gymnasium's MuJoCo tasks that small policies solve.

Facts from their classes' docstrings and models (https://gymnasium.farama.org/environments/mujoco/).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from gym_text.descriptions.base import Description, Ending, cart_and_pole, fields, words_of_numbers
from gym_text.spec import Action, Quantity, TextSpec

_ANGLE = "radians"
_TURN = "radians/s"


def _quantities(*rows: tuple[str, str, str]) -> list[Quantity]:
    """Return quantities (name, meaning, unit); Gymnasium gives them no limits."""
    return [Quantity(name, meaning, -math.inf, math.inf, unit) for name, meaning, unit in rows]


def _positions(env: gym.Env[Any, Any], *rows: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Return the quantities of the positions if the environment was made to observe them, else none."""
    return [] if getattr(env.unwrapped, "_exclude_current_positions_from_observation", True) else list(rows)


def _reaches_threshold(env: gym.Env[Any, Any]) -> Callable[[Ending], bool]:
    """Return the success test: the episode's return is at least Gymnasium's reward threshold."""
    threshold = env.spec.reward_threshold if env.spec else None
    return lambda end: threshold is not None and end.score >= threshold


def inverted_pendulum(env: gym.Env[Any, Any]) -> Description:
    """Describe InvertedPendulum."""
    numbers = _quantities(
        ("cart_position", "place of the cart, positive to the right of the centre", "m"),
        ("pole_angle", "tilt of the pole, positive to the right, 0 upright", _ANGLE),
        ("cart_velocity", "velocity of the cart, positive to the right", "m/s"),
        ("pole_angular_velocity", "change of the tilt, positive to the right", _TURN),
    )
    forces = {"push left hard": -3.0, "push left": -1.0, "coast": 0.0, "push right": 1.0, "push right hard": 3.0}
    spec = TextSpec(
        goal=(
            "Balance the pole on the cart by pushing the cart left and right, for as long as possible. It is over when the "
            "pole tilts "
            "by more than 0.2 radians."
        ),
        fields=fields("the state in numbers", numbers),
        actions=tuple(Action(name, f"force {force:g}", force) for name, force in forces.items()),
        encoding="box",
        low=-3.0,
        high=3.0,
        reward="1 for every step that the pole stands.",
    )
    return Description(spec, _pole_in_words, lambda end: end.truncated and not end.terminated)


def _pole_in_words(obs: Any) -> str:
    position, angle, velocity, spin = (float(value) for value in obs)
    return cart_and_pole(f"at {position:.3f} m", velocity, angle, spin)


def swimmer(env: gym.Env[Any, Any]) -> Description:
    """Describe Swimmer."""
    numbers = _quantities(
        *_positions(env, ("x", "place of the front tip, positive forwards", "m"), ("y", "place of the front tip across", "m")),
        ("tip_angle", "direction of the front link, positive counter-clockwise, 0 forwards", _ANGLE),
        ("first_angle", "angle of the first rotor, positive counter-clockwise, 0 straight", _ANGLE),
        ("second_angle", "angle of the second rotor, positive counter-clockwise, 0 straight", _ANGLE),
        ("tip_vx", "velocity of the front tip, positive forwards", "m/s"),
        ("tip_vy", "velocity of the front tip across", "m/s"),
        ("tip_spin", "angular velocity of the front link", _TURN),
        ("first_spin", "angular velocity of the first rotor", _TURN),
        ("second_spin", "angular velocity of the second rotor", _TURN),
    )
    ways = {"clockwise": -1.0, "loose": 0.0, "counter-clockwise": 1.0}
    actions = tuple(
        Action(f"first {first}, second {second}", f"torques {ways[first]:g} and {ways[second]:g}", (ways[first], ways[second]))
        for first, second in itertools.product(ways, ways)
    )
    spec = TextSpec(
        goal=(
            "Three links in a row lie in a fluid, joined by two rotors. Swim forwards, in the direction of x, as fast as "
            "possible by "
            "turning the rotors: a wave that runs through the links pushes against the fluid."
        ),
        fields=fields("the state in numbers", numbers),
        actions=actions,
        encoding="box",
        size=2,
        reward="At every step the velocity forwards, minus 0.0001 x the squared torques.",
    )
    return Description(spec, lambda obs: words_of_numbers(spec, {"observation": obs}), _reaches_threshold(env))


def hopper(env: gym.Env[Any, Any]) -> Description:
    """Describe Hopper."""
    numbers = _quantities(
        *_positions(env, ("x", "place of the torso, positive forwards", "m")),
        ("height", "height of the torso, 1.25 standing", "m"),
        ("torso_angle", "tilt of the torso, positive forwards, 0 upright", _ANGLE),
        ("thigh_angle", "angle of the hip, negative when bent, 0 straight", _ANGLE),
        ("leg_angle", "angle of the knee, negative when bent, 0 straight", _ANGLE),
        ("foot_angle", "angle of the ankle, positive with the toe raised, 0 level", _ANGLE),
        ("vx", "velocity forwards", "m/s"),
        ("vz", "velocity upwards", "m/s"),
        ("torso_spin", "angular velocity of the torso", _TURN),
        ("thigh_spin", "angular velocity of the hip", _TURN),
        ("leg_spin", "angular velocity of the knee", _TURN),
        ("foot_spin", "angular velocity of the ankle", _TURN),
    )
    actions = (
        Action("relax", "torques 0, 0, 0", (0.0, 0.0, 0.0)),
        Action("bend hip", "torques -1, 0, 0", (-1.0, 0.0, 0.0)),
        Action("extend hip", "torques 1, 0, 0", (1.0, 0.0, 0.0)),
        Action("bend knee", "torques 0, -1, 0", (0.0, -1.0, 0.0)),
        Action("extend knee", "torques 0, 1, 0", (0.0, 1.0, 0.0)),
        Action("press toe", "torques 0, 0, -1", (0.0, 0.0, -1.0)),
        Action("raise toe", "torques 0, 0, 1", (0.0, 0.0, 1.0)),
    )
    spec = TextSpec(
        goal=(
            "A leg of thigh, lower leg and foot carries a torso. Hop forwards, in the direction of x, as fast as possible without "
            "falling. It is over when the torso is lower than 0.7 m or tilts by more than 0.2 radians."
        ),
        fields=fields("the state in numbers", numbers),
        actions=actions,
        encoding="box",
        size=3,
        reward="At every step 1 for standing and the velocity forwards, minus 0.001 x the squared torques.",
    )
    return Description(spec, lambda obs: words_of_numbers(spec, {"observation": obs}), _reaches_threshold(env))
