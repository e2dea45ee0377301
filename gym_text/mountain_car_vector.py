"""Many rollouts of Gymnasium's MountainCarContinuous at once, in numpy, equal to Gymnasium's results to the last bit.

Gymnasium computes the first step in float64 and all others in float32, and takes the cosine from the C library. This module does
the same operations in the same precision and order. The dynamics are those of
`gymnasium.envs.classic_control.continuous_mountain_car`
(https://gymnasium.farama.org/environments/classic_control/mountain_car_continuous/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from gymnasium.utils import seeding

from gym_text.errors import check_int
from gym_text.folds import MAX_SEED

LIMIT = 999
"""Most steps of an episode, as Gymnasium registers it."""
_POWER, _GRAVITY = np.float32(0.0015), 0.0025
_LEFT, _RIGHT, _FASTEST, _FLAG = -1.2, 0.6, 0.07, 0.45


class Played(NamedTuple):
    """An episode that was computed together with others."""

    total_reward: float
    length: int
    """Number of steps."""
    success: bool
    observations: np.ndarray
    """All observations, of shape (length + 1, k); the last is that of the final state. Empty if not kept."""
    actions: np.ndarray
    """All actions, of shape (length,); empty if not kept."""


Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (float32, shape (n, k)) and the indices of their episodes (int, shape (n,)) to actions, shape (n,)."""


class PlayTogether(Protocol):
    """Plays one episode for each seed, all in one computation, with exactly the numbers of Gymnasium's environment."""

    def __call__(self, act: Act, seeds: Sequence[int], *, limit: int, keep: bool) -> Sequence[Played]:
        """Return the episodes.

        Args:
            act: Chooses the actions of all episodes that still run.
            seeds: Seeds of the episodes, as ``env.reset(seed=…)`` takes them.
            limit: Most steps of an episode.
            keep: Whether to keep observations and actions.
        """


def drive(act: Act, seeds: Sequence[int], *, limit: int = LIMIT, keep: bool = True) -> list[Played]:
    """Drive one car for each seed until it reaches the flag, or for `limit` steps.

    Args:
        act: Chooses the forces, float32, of all cars that still drive. They are clipped to -1 and 1.
        seeds: Seeds of the episodes, as ``env.reset(seed=…)`` takes them; a seed may occur several times.
        limit: Most steps.
        keep: Whether to keep observations and forces.
    """
    seeds = [check_int("seed", seed, 0, MAX_SEED) for seed in seeds]
    starts = {seed: float(seeding.np_random(seed)[0].uniform(low=-0.6, high=-0.4)) for seed in dict.fromkeys(seeds)}
    position = np.array([starts[seed] for seed in seeds])  # float64, as Gymnasium's state is until the first step
    velocity = np.zeros(len(seeds))
    totals, lengths, won = np.zeros(len(seeds)), np.full(len(seeds), limit), np.zeros(len(seeds), dtype=bool)
    cars, recorder = np.arange(len(seeds)), _Recorder(keep)  # the cars that still drive
    for step in range(limit):
        if not len(cars):
            break
        obs = np.empty((len(cars), 2), dtype=np.float32)
        obs[:, 0], obs[:, 1] = position, velocity
        force = _between(np.asarray(act(obs, cars), dtype=np.float32), -1, 1)
        recorder.record(cars, obs, force)
        position, velocity, arrived = _step(position, velocity, force)
        effort = force.astype(np.float64)
        totals[cars] += arrived * 100.0 - effort * effort * 0.1
        if arrived.any():
            won[cars[arrived]], lengths[cars[arrived]] = True, step + 1
            recorder.record(cars[arrived], np.stack([position, velocity], axis=1)[arrived])
            cars, position, velocity = cars[~arrived], position[~arrived], velocity[~arrived]
    recorder.record(cars, np.stack([position, velocity], axis=1))
    histories = zip(*recorder.by_car(len(seeds)), strict=True)
    return [Played(float(totals[i]), int(lengths[i]), bool(won[i]), *arrays) for i, arrays in enumerate(histories)]


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


class _Recorder:
    """Records the observations and forces of all cars, step by step.

    Args:
        keep: Whether to record anything.
    """

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._observations: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0, dtype=int), np.zeros((0, 2), dtype=np.float32))]
        self._forces: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0, dtype=int), np.zeros(0, dtype=np.float32))]

    def record(self, cars: np.ndarray, obs: np.ndarray, force: np.ndarray | None = None) -> None:
        """Record the observations of some cars and, except in the final state, their forces."""
        if self._keep:
            self._observations.append((cars, obs))
            if force is not None:
                self._forces.append((cars, force))

    def by_car(self, cars: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the observations and the forces of each car."""
        return _by_car(self._observations, cars), _by_car(self._forces, cars)


def _by_car(records: list[tuple[np.ndarray, np.ndarray]], cars: int) -> list[np.ndarray]:
    """Return the values of each car, in the order of the steps."""
    indices = np.concatenate([car_indices for car_indices, _ in records])
    values = np.concatenate([car_values for _, car_values in records])[np.argsort(indices, kind="stable")]
    return np.split(values, np.cumsum(np.bincount(indices, minlength=cars))[:-1]) if cars else []
