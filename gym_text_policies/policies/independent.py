"""`Independent`: a policy that draws independently in each episode, also where several episodes play one level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Turn


class Independent(Policy):
    """Plays as another policy does, with random generators that depend on the episode's number and the step.

    So several episodes of one level may run at once. `rollout` with one worker begins the episodes in the order of their seeds.

    Args:
        policy: The other policy.
        entropies: For each episode, in the order in which they begin, integers that determine what is drawn.
    """

    def __init__(self, policy: Policy, entropies: Sequence[Sequence[int]]) -> None:
        super().__init__(policy.spec, seed=policy.seed)
        self._policy = policy
        self._entropies = entropies
        self._numbers: dict[str, int] = {}  # of episodes, as they begin

    @property
    def config(self) -> dict[str, Any]:
        """The other policy's configuration."""
        return self._policy.config

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers."""
        return self._policy.wrap(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Let the other policy decide."""
        return self._policy.decide([replace(turn, rng=self._rng(turn)) for turn in turns])

    def _rng(self, turn: Turn) -> np.random.Generator:
        number = self._numbers.setdefault(turn.episode, len(self._numbers))
        return np.random.default_rng([*self._entropies[number], turn.step])
