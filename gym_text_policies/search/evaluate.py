"""The value of a policy's parameters: the mean return of rollouts on fixed seeds.

The loop here, `play`, is not `rollout`: it makes no texts, prompts and records, and a step takes a quarter to a third of the time.
Returns are equal in both.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import EngineError
from gym_text.mountain_car_vector import PlayTogether
from gym_text.wrappers import DescribeObservation
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.policies.parametric import Form, form_of

_AT_ONCE = 64
"""Number of policies that are rolled out together if the environment plays all rollouts in one computation."""


@dataclass(frozen=True)
class Rollout:
    """One episode of a policy whose parameters are a proposal."""

    seed: int
    total_reward: float
    length: int
    success: bool
    observations: np.ndarray
    """The observed numbers, also those after the last step, of shape (length + 1, k); empty if they were not kept."""
    actions: np.ndarray
    """The actions, of shape (length, size), or (length,) for whole numbers; empty if they were not kept."""


@dataclass(frozen=True)
class Task:
    """What is rolled out: an environment, a form of policy, and the seeds."""

    environment: str
    """Name of the environment; see `parse_environment`."""
    seeds: tuple[int, ...]
    bias: bool
    bounds: tuple[float, float]

    def make(self, **arguments: Any) -> gym.Env[Any, Any]:
        """Make the environment."""
        return environment_maker(self.environment, **fold_arguments(self.environment, None))(**arguments)

    def form(self, env: gym.Env[Any, Any]) -> Form:
        """Return the form of policy that fits the environment."""
        return form_of(env, bias=self.bias, bounds=self.bounds)


class Evaluator:
    """Rolls out policies. A rollout does not depend on how many others are played at once, or on the process that plays it.

    Args:
        task: The environment, the form and the seeds.
        workers: Number of processes. It has no effect on an environment that plays many episodes in one computation; see
            `PlayTogether`.
    """

    def __init__(self, task: Task, *, workers: int = 1) -> None:
        self.task = task
        self._env = task.make()
        self.form = task.form(self._env)
        self.spec = self._env.get_wrapper_attr("text_spec")
        self._play_together: PlayTogether | None = getattr(self._env, "play_together", None)
        self._limit = (self._env.spec and self._env.spec.max_episode_steps) or -1
        if self._limit < 1:
            self._play_together = None
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1 and not self._play_together:
            context = multiprocessing.get_context("spawn")  # a forked child of a process with threads may hang
            self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(task,))
        self.at_once = _AT_ONCE if self._play_together else 1

    def __call__(self, batch: Sequence[Sequence[float]], *, keep: bool = True) -> list[tuple[Rollout, ...]]:
        """Return the rollouts of each policy.

        Args:
            batch: Parameters of each policy.
            keep: Whether to keep observations and actions.
        """
        pairs = [(tuple(values), seed) for values in batch for seed in self.task.seeds]
        if self._pool:
            rollouts = list(self._pool.map(_play_in_worker, [(*pair, keep) for pair in pairs]))
        elif self._play_together:
            rollouts = self._play_all(self._play_together, pairs, keep)
        else:
            rollouts = [play(self._env, self.form, *pair, keep) for pair in pairs]
        n = len(self.task.seeds)
        return [tuple(rollouts[i * n : (i + 1) * n]) for i in range(len(batch))]

    def close(self) -> None:
        """Close the environment, and end the processes."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._env.close()

    def _play_all(self, play_together: PlayTogether, pairs: Sequence[tuple[tuple[float, ...], int]], keep: bool) -> list[Rollout]:
        values = np.array([parameters for parameters, _ in pairs], dtype=np.float64)
        seeds = [seed for _, seed in pairs]
        act = lambda obs, episodes: self.form.act(values[episodes], obs.astype(np.float64))[:, 0]  # noqa: E731
        episodes = play_together(act, seeds, limit=self._limit, keep=keep)
        return [
            Rollout(seed, *episode._replace(actions=episode.actions[:, None]))
            for seed, episode in zip(seeds, episodes, strict=True)
        ]


def play(env: gym.Env[Any, Any], form: Form, values: Sequence[float], seed: int, keep: bool) -> Rollout:
    """Play one episode with a policy's parameters."""
    weights = np.array([values], dtype=np.float64)
    described = isinstance(env, DescribeObservation)
    game: gym.Env[Any, Any] = env.env if isinstance(env, DescribeObservation) else env  # the policy reads no texts
    read = (lambda obs: form.numbers({form.keys[0]: obs})) if described and len(form.keys) == 1 else form.numbers
    obs, info = (env if described and len(form.keys) > 1 else game).reset(seed=seed)
    observations, actions, total, over = [read(obs)], [], 0.0, False
    while not over:
        action = form.act(weights, observations[-1][None])[0]
        obs, reward, terminated, truncated, info = game.step(action if action.ndim else int(action))
        total, over = total + float(reward), bool(terminated or truncated)
        observations.append(read(obs))
        actions.append(action)
        if not (math.isfinite(total) and np.isfinite(observations[-1]).all()):
            name = env.spec.id if env.spec else str(env)
            got = f"{reward} and {observations[-1]}"
            raise EngineError(f"{name}, seed {seed}, step {len(actions)}: expected a finite reward and observation; got {got}.")
    success = bool(info.get("success", False))
    if isinstance(env, DescribeObservation) and "success" not in info:
        success = env.succeeded(obs, float(reward), bool(terminated), bool(truncated), total)
    arrays = (np.array(observations), np.array(actions)) if keep else (np.zeros((0, 0)), np.zeros(0))
    return Rollout(seed, total, len(actions), success, *arrays)


_worker: tuple[gym.Env[Any, Any], Form]
"""Environment and form of a worker process."""


def _start_worker(task: Task) -> None:
    global _worker
    env = task.make()
    _worker = env, task.form(env)


def _play_in_worker(job: tuple[tuple[float, ...], int, bool]) -> Rollout:
    values, seed, keep = job
    return play(*_worker, values, seed, keep)
