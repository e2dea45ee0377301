"""Many rollouts of Gymnasium's MountainCarContinuous at once, in numpy, equal to Gymnasium's results to the last bit.

Gymnasium computes the first step in float64 and all others in float32, and takes the cosine from the C library. This module does
the same operations in the same precision and order. The dynamics are those of
`gymnasium.envs.classic_control.continuous_mountain_car`
(https://gymnasium.farama.org/environments/classic_control/mountain_car_continuous/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium.utils import seeding

_POWER, _GRAVITY = np.float32(0.0015), 0.0025
_LEFT, _RIGHT, _FASTEST, _FLAG = -1.2, 0.6, 0.07, 0.45


class Played(NamedTuple):
    """An episode that was computed together with others."""

    total_reward: float
    length: int
    """Number of steps."""
    success: bool
    observations: np.ndarray
    """All observations, of shape (length + 1, k); the last is that of the final state."""
    actions: np.ndarray
    """All actions, of shape (length,)."""


Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (float32, shape (n, k)) and the indices of their episodes (int, shape (n,)) to actions, shape (n,)."""
PlayTogether = Callable[[Act, Sequence[int], int], list[Played]]
"""Plays one episode for each seed, for a greatest number of steps, with exactly the numbers of Gymnasium's environment."""


def drive(act: Act, seeds: Sequence[int], limit: int) -> list[Played]:
    """Drive one car for each seed until it reaches the flag, or for `limit` steps.

    Args:
        act: Chooses the forces, float32, of all cars that still drive. They are clipped to -1 and 1.
        seeds: Seeds of the episodes, as ``env.reset(seed=…)`` takes them; a seed may occur several times.
        limit: Most steps.
    """
    starts = [float(seeding.np_random(seed)[0].uniform(low=-0.6, high=-0.4)) for seed in seeds]
    position, velocity = np.array(starts), np.zeros(len(seeds))  # float64, as Gymnasium's state is until the first step
    observations = np.zeros((limit + 1, len(seeds), 2), dtype=np.float32)
    observations[0, :, 0] = position
    forces = np.zeros((limit, len(seeds)), dtype=np.float32)
    totals, lengths, won = np.zeros(len(seeds)), np.full(len(seeds), limit), np.zeros(len(seeds), dtype=bool)
    cars = np.arange(len(seeds))  # those that still drive
    for step in range(limit):
        if not len(cars):
            break
        force = forces[step, cars] = _between(np.asarray(act(observations[step, cars], cars), dtype=np.float32), -1, 1)
        position, velocity, arrived = _step(position, velocity, force)
        observations[step + 1, cars] = np.stack([position, velocity], axis=1)
        effort = force.astype(np.float64)
        totals[cars] += arrived * 100.0 - effort * effort * 0.1
        won[cars[arrived]], lengths[cars[arrived]] = True, step + 1
        cars, position, velocity = cars[~arrived], position[~arrived], velocity[~arrived]
    histories = [(observations[: n + 1, car].copy(), forces[:n, car].copy()) for car, n in enumerate(lengths)]
    return [Played(float(totals[i]), int(lengths[i]), bool(won[i]), *history) for i, history in enumerate(histories)]


def _step(position: np.ndarray, velocity: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the states after one step, float32, and which cars have arrived."""
    # the cosine of the C library, as in Gymnasium; numpy's cosine may differ in the last bit
    pull = np.array([_GRAVITY * math.cos(angle) for angle in (3 * position).tolist()]).astype(np.float32)
    velocity = _between(velocity + (force * _POWER - pull), -_FASTEST, _FASTEST)
    position = _between(position + velocity, _LEFT, _RIGHT)
    velocity[(position == position.dtype.type(_LEFT)) & (velocity < 0)] = 0
    arrived = (position >= position.dtype.type(_FLAG)) & (velocity >= 0)
    return position.astype(np.float32, copy=False), velocity.astype(np.float32, copy=False), arrived


def _between(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clip values as `numpy.clip` does; for few values this is several times as fast."""
    dtype = values.dtype.type
    return np.asarray(np.minimum(np.maximum(values, dtype(low)), dtype(high)))
