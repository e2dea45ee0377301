"""Policies around another policy: some of its actions are replaced, or each of several episodes of a level has its own draws."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError
from gym_text_policies.policies.baselines import GoldPolicy
from gym_text_policies.policy import Policy, PolicyWrapper, check_lists_actions
from gym_text_policies.records import Decision, Turn


class _ReplacingPolicy(PolicyWrapper):
    """Replaces some of another policy's actions. It asks the other policy for the rest only: no unused answer is paid for."""

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Find out which actions are replaced, and ask the other policy about the other turns in one batch."""
        replaced = [self._replacement(turn) for turn in turns]
        asked = [turn for turn, name in zip(turns, replaced, strict=True) if name is None]
        decisions = iter(self.player.decide(asked) if asked else ())
        return [next(decisions) if name is None else Decision(name) for name in replaced]

    @abstractmethod
    def _replacement(self, turn: Turn) -> str | None:
        """Return the action that replaces the other policy's; None if the other policy decides."""


class MixedPolicy(_ReplacingPolicy):
    """Plays another policy's actions, but replaces some of them at random.

    Args:
        player: The other policy.
        noise: Probability of a random action. This is drawn first.
        expert_share: Probability of the expert's action at a step without a random action, if the expert has an action.
    """

    def __init__(self, player: Policy, *, noise: float = 0.0, expert_share: float = 0.0) -> None:
        super().__init__(player)
        if noise:
            check_lists_actions(player.spec, "noise")
        self._noise = noise
        self._expert_share = expert_share

    @property
    def config(self) -> dict[str, Any]:
        """The other policy's configuration, and both probabilities."""
        mixed = {"noise": self._noise, "expert_share": self._expert_share}
        return {"kind": "mixed", "player": self.player.config, **mixed, "seed": self.seed}

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers, and the one that shows the expert's action if it is needed."""
        return self.player.wrap(GoldPolicy(self.spec).wrap(env) if self._expert_share else env)

    def _replacement(self, turn: Turn) -> str | None:
        noisy, expert = turn.rng.random(2)
        if noisy < self._noise:
            names = self.spec.names(dict(turn.obs))
            return names[turn.rng.integers(len(names))]
        return turn.obs["gold_action"] or None if expert < self._expert_share else None


class ActionRate(_ReplacingPolicy):
    """Asks a policy at steps 0, k, 2k …, and repeats the last action in between, or asks where it is no longer valid.

    It needs `rollout` or `Agent`, which know the last action.

    Args:
        player: The policy that is asked.
        k: Number of steps from one question to the next, 2 or more.
    """

    def __init__(self, player: Policy, k: int) -> None:
        super().__init__(player)
        self._k = k

    @property
    def config(self) -> dict[str, Any]:
        """The policy's configuration, and the rate."""
        return {**self.player.config, "action_rate": self._k}

    def _replacement(self, turn: Turn) -> str | None:
        if turn.step % self._k == 0:
            return None
        if turn.last is None:
            raise UsageError("action_rate: expected rollout or Agent, which know the last action; got a single observation.")
        name = turn.last.action
        any_name = self.spec.encoding == "box" or not self.spec.lists_actions
        return name if any_name or name in self.spec.names(dict(turn.obs)) else None


class SeparateDraws(PolicyWrapper):
    """Plays as another policy does, with random generators that depend on the episode's number and the step.

    So several episodes of one level may run at once. `rollout` with one worker begins the episodes in the order of their seeds.

    Args:
        player: The other policy.
        entropies: For each episode, in the order in which they begin, integers that determine what is drawn.
    """

    def __init__(self, player: Policy, entropies: Sequence[Sequence[int]]) -> None:
        super().__init__(player)
        self._entropies = entropies
        self._numbers: dict[str, int] = {}  # of episodes, as they begin

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Let the other policy decide."""
        apart = []
        for turn in turns:
            number = self._numbers.setdefault(turn.episode, len(self._numbers))
            apart.append(dataclasses.replace(turn, rng=np.random.default_rng([*self._entropies[number], turn.step])))
        return self.player.decide(apart)
