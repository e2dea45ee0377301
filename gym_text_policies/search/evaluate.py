"""The value of a policy's parameters: the mean return of rollouts on fixed seeds.

The loop here, `play`, is not `rollout`: it makes no texts, prompts and records, and a step takes a quarter to a third of the time.
Returns are equal in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    """The observed numbers, also those after the last step, of shape (length + 1, k)."""
    actions: np.ndarray
    """The actions, of shape (length, size), or (length,) for whole numbers."""


class Evaluator:
    """Rolls out policies of the form that fits an environment. A rollout does not depend on how many others are played at once.

    Args:
        environment: Name of the environment; see `parse_environment`.
        seeds: Seeds of the episodes of each policy.
        bias: Whether a linear policy has a constant term.
        bounds: Least and greatest value of a linear policy's parameters.
    """

    def __init__(self, environment: str, seeds: Sequence[int], *, bias: bool, bounds: tuple[float, float]) -> None:
        self.seeds = tuple(seeds)
        self._env = environment_maker(environment, **fold_arguments(environment, None))()
        self.form = form_of(self._env, bias=bias, bounds=bounds)
        self.spec = self._env.get_wrapper_attr("text_spec")
        self._limit = (self._env.spec and self._env.spec.max_episode_steps) or -1
        self._play_together: PlayTogether | None = getattr(self._env, "play_together", None) if self._limit > 0 else None
        self.at_once = _AT_ONCE if self._play_together else 1

    def __call__(self, batch: Sequence[Sequence[float]]) -> list[tuple[Rollout, ...]]:
        """Return the rollouts of each policy, given the parameters of each."""
        pairs = [(tuple(values), seed) for values in batch for seed in self.seeds]
        if self._play_together:
            rollouts = self._play_all(self._play_together, pairs)
        else:
            rollouts = [play(self._env, self.form, *pair) for pair in pairs]
        n = len(self.seeds)
        return [tuple(rollouts[i * n : (i + 1) * n]) for i in range(len(batch))]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _play_all(self, play_together: PlayTogether, pairs: Sequence[tuple[tuple[float, ...], int]]) -> list[Rollout]:
        values = np.array([parameters for parameters, _ in pairs], dtype=np.float64)
        seeds = [seed for _, seed in pairs]
        act = lambda obs, episodes: self.form.act(values[episodes], obs.astype(np.float64))[:, 0]  # noqa: E731
        episodes = play_together(act, seeds, limit=self._limit)
        return [
            Rollout(seed, *episode._replace(actions=episode.actions[:, None]))
            for seed, episode in zip(seeds, episodes, strict=True)
        ]


def play(env: gym.Env[Any, Any], form: Form, values: Sequence[float], seed: int) -> Rollout:
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
    return Rollout(seed, total, len(actions), success, np.array(observations), np.array(actions))


def summarise(rollouts: Sequence[Rollout], names: Sequence[str]) -> str:
    """Describe rollouts: how many succeeded, how long they were, and the ranges of the observed numbers."""
    lengths = [rollout.length for rollout in rollouts]
    won = sum(rollout.success for rollout in rollouts)
    parts = [f"{won} of {len(rollouts)} episodes succeeded, {np.mean(lengths):.0f} steps on average"]
    seen = np.concatenate([rollout.observations for rollout in rollouts])
    if seen.size and seen.shape[1] == len(names) and len(names) <= 12:
        parts.append(
            ", ".join(f"{n} {low:.3g} to {high:.3g}" for n, low, high in zip(names, seen.min(0), seen.max(0), strict=True))
        )
    actions = np.concatenate([rollout.actions.reshape(rollout.length, -1) for rollout in rollouts])
    if actions.size:
        parts.append(f"mean action {', '.join(f'{value:.2g}' for value in actions.mean(axis=0))}")
    return "; ".join(parts)
