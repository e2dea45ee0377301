"""How often a model in training wins the dev fold, and what is told where episodes of training end in an error."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gym_text.errors import RunError
from gym_text_policies.backends.base import Backend
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.records import Episode
from gym_text_policies.rollouts import rollout
from gym_text_policies.training.model.processes import gather, is_first, own_share

_logger = logging.getLogger(__name__)
_BATCH = 8
"""Episodes that run at once."""


def play_dev_fold(player: Backend, environments: Sequence[str], episodes: int, policy: PolicyConfig) -> list[bool]:
    """Return which episodes of each environment's dev fold a model wins; it plays its most probable action.

    Several processes share the episodes, and each returns all. One that ends in an error is told in the log, and not won.

    Args:
        player: The model.
        environments: Ids, with keyword arguments.
        episodes: Number of episodes of each environment.
        policy: How the model is prompted.

    Raises:
        RunError: If all ended in an error.
    """
    played: list[Episode] = []
    for environment in environments:
        make_env = environment_maker(environment, **{"fold": "dev", "expert": "off"})
        env = make_env()
        learner = load_policy(player, env, **policy.given)
        played += rollout(make_env, learner, own_share(range(episodes)), num_envs=_BATCH)
        env.close()
    played = gather(played)
    tell_failures("dev fold", played)
    return [episode.outcome == "won" for episode in played]


def tell_failures(where: str, played: Sequence[Episode]) -> None:
    """Log how many episodes ended in an error, and why the first of them did.

    Args:
        where: What was played, for the message.
        played: The episodes of all processes.

    Raises:
        RunError: If all ended in an error.
    """
    failed = [episode for episode in played if episode.error is not None]
    if not failed:
        return
    first = failed[0]
    level = f"{first.environment['id']}, seed {first.seed}"
    told = f"{where}: {len(failed)} of {len(played)} episodes ended in an error; of {level}: {first.error}"
    if len(failed) == len(played):
        raise RunError(told)
    if is_first():
        _logger.warning("%s", told)
