"""How often a model in training wins the dev fold; several processes share the episodes."""

from __future__ import annotations

from collections.abc import Sequence

from gym_text_policies.backends.base import Backend
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.rollout import rollout

_BATCH = 8
"""Episodes that run at once."""


def play_dev_fold(player: Backend, environments: Sequence[str], seeds: Sequence[int], policy: PolicyConfig) -> list[bool]:
    """Return which episodes of each environment's dev fold a model wins; it plays its most probable action.

    Args:
        player: The model.
        environments: Ids, with keyword arguments.
        seeds: Of the episodes of each environment.
        policy: How the model is prompted.
    """
    won: list[bool] = []
    for environment in environments:
        make_env = environment_maker(environment, **{"fold": "dev", "expert": "off"})
        env = make_env()
        learner = load_policy(player, env, **policy.given)
        won += [episode.outcome == "won" for episode in rollout(make_env, learner, seeds, batch=_BATCH)]
        env.close()
    return won
