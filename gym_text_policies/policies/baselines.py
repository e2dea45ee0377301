"""Policies without a model: random, and the expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from gym_text import TextSpec, UsageError
from gym_text.errors import PolicyError
from gym_text.wrappers import GoldAction
from gym_text_policies.policy import Policy, check_lists_actions
from gym_text_policies.records import Decision, Turn


class RandomPolicy(Policy):
    """Plays any valid action, each with the same probability.

    Raises:
        UsageError: If the game takes any words, so that there is no list to draw from.
    """

    def __init__(self, spec: TextSpec, *, seed: int = 0) -> None:
        super().__init__(spec, seed=seed)
        check_lists_actions(spec, "policy 'random'")

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Draw an action for each turn, from the turn's own generator."""
        choices = [self.spec.names(dict(turn.obs)) for turn in turns]
        return [Decision(names[turn.rng.integers(len(names))]) for names, turn in zip(choices, turns, strict=True)]

    @property
    def config(self) -> dict[str, Any]:
        """Its name and seed."""
        return {"kind": "random", "seed": self.seed}


class GoldPolicy(Policy):
    """Plays the action of the environment's expert. It needs the environment ``policy.wrap(env)``."""

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put the expert's action into the observation."""
        return GoldAction(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Return the expert's action of each turn.

        Raises:
            UsageError: If the environment is not wrapped.
            PolicyError: If the expert has no action in this state.
        """
        for turn in turns:
            if "gold_action" not in turn.obs:
                raise UsageError("obs: expected the key 'gold_action'; it is missing. Use policy.wrap(env).")
            if not turn.obs["gold_action"]:
                raise PolicyError(
                    "The expert has no action here: it finds no plan, or the episode has left its path (expert='replan')."
                )
        return [Decision(turn.obs["gold_action"]) for turn in turns]

    @property
    def config(self) -> dict[str, Any]:
        """Its name. It has no seed, as nothing is random."""
        return {"kind": "gold"}
