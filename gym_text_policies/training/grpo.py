"""GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300) for a language model that plays in ``choose``, from top to bottom.

The policy is a distribution over the valid actions, as in `gym_text_policies.training.ppo`. There is no critic. In each iteration
the model plays every level several times, and draws its actions. GRPO compares the decisions of the episodes of one level:

* The return of a decision is the discounted sum of the rewards from its step on.
* A baseline group contains the decisions of one level that have the same sum of rewards so far and the same number of steps since
  the last reward. If the only reward comes at the end of an episode, a baseline group is the decisions at one step of the level.
* The advantage of a decision is its return minus the mean return of its baseline group. With `decay` below 1 it is a generalised
  advantage (Schulman et al. 2015, https://arxiv.org/abs/1506.02438), and these means are the values. GAGPO (Zhu et al. 2026,
  https://arxiv.org/abs/2605.13217) has such values and advantages, too.

GRPO for answers of one turn takes one mean over whole episodes. In these environments lost episodes are the longest. With one mean,
their many negative advantages would outweigh all others. Advantages are not divided by their standard deviation: that would make a
small difference count as much as a large one (Liu et al. 2025, https://arxiv.org/abs/2503.20783). A decision of advantage 0 teaches
nothing, so the model does not read it.

The objective is PPO's clipped objective with a higher upper clip, and each decision has the same weight, however long its episode
is (Yu et al. 2025, https://arxiv.org/abs/2503.14476). The higher clip lets the probability of a rare good action grow by more than
a fifth. A run that was killed goes on from its last checkpoint.

To follow GRPO from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and the gradient
steps), `gym_text_policies.training.trajectories` (the episodes) and `gym_text_policies.training.model.actor_critic` (the model).

An iteration without mixed levels, whose decisions have an advantage that is not 0, has no metrics of learning. The documentation's
page Training says what the metrics mean.

Shapes: B is the number of decisions that an iteration learns from, b the number of decisions in one forward pass, A the greatest
number of candidates of a decision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gym_text_policies.training import loop
from gym_text_policies.training.model.saving import Progress, check_finite
from gym_text_policies.training.options import RewardConfig
from gym_text_policies.training.ppo import ActionBatch, clipped_objective, generalised_advantages
from gym_text_policies.training.rollout_gap import first_pass_gap
from gym_text_policies.training.trajectories import Trajectory, play_groups

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""The ratio of new to old probability counts within 1 - CLIP_LOW and 1 + CLIP_HIGH (Yu et al. 2025, section 4.1)."""


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(RewardConfig):
    """Train a language model on its own episodes by GRPO with LoRA: it compares the returns of several episodes of each level."""

    algorithm: ClassVar[str] = "grpo"
    least_group: ClassVar[int] = 2

    folder: str = "runs/grpo"
    discount: float = 1.0
    decay: float = 1.0


def run(config: GRPOConfig) -> Path:
    """Train, and return the folder of the adapter. For the errors see `gym_text_policies.training.loop.run`."""
    return loop.run(config, play_groups, learn)


def learn(
    config: GRPOConfig, actor: Actor, optimizer: Optimizer, progress: Progress, trajectories: Sequence[Trajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics. If no level is mixed, the model learns nothing."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_finite reports NaN and infinity
        advantages = group_advantages(trajectories, config.discount, config.decay)
    check_finite(progress.title, advantages=np.concatenate(advantages))
    mixed = {trajectory.level for trajectory, of_steps in zip(trajectories, advantages, strict=True) if of_steps.any()}
    metrics = {
        "mixed": len(mixed) / len({trajectory.level for trajectory in trajectories}),
        "learnt": float(sum(int(np.count_nonzero(of_steps)) for of_steps in advantages)),
    }
    if not mixed:
        return metrics
    batch = make_batch(config, actor, trajectories, advantages)
    metrics |= first_pass_gap(config, actor, batch.conversations, batch.played, batch.actions)
    objective = functools.partial(clipped_objective, batch, CLIP_LOW, CLIP_HIGH)
    return metrics | loop.update_policy(config, actor, optimizer, progress, batch, objective, config.levels_per_step)


def group_advantages(trajectories: Sequence[Trajectory], discount: float = 1.0, decay: float = 1.0) -> list[np.ndarray]:
    """Return the advantage of each decision over its baseline group.

    With a decay of 1 the advantages of a baseline group sum to 0. They are all 0 if the group is a single decision, or if all its
    returns are equal. With a smaller decay a decision's advantage depends more on the baselines of the next steps, and less on how
    the rest of the episode happened to go.

    Args:
        trajectories: The episodes, in any order.
        discount: Discount factor (gamma).
        decay: Lambda of `generalised_advantages`, from 0 (the next step's baseline) to 1 (all rewards).

    Returns:
        For each episode an array of shape (length of the episode,).
    """
    keys = [baseline_keys(trajectory) for trajectory in trajectories]
    groups: dict[tuple[object, ...], list[float]] = {}
    for trajectory, episode_keys in zip(trajectories, keys, strict=True):
        no_values = [0.0] * len(trajectory.rewards)
        returns, _ = generalised_advantages(trajectory.rewards, no_values, 0.0, discount, 1.0)
        for value, key in zip(returns, episode_keys, strict=True):
            groups.setdefault(key, []).append(value)
    baselines = {key: float(np.mean(values)) for key, values in groups.items()}
    advantages = []
    for trajectory, episode_keys in zip(trajectories, keys, strict=True):
        values = [baselines[key] for key in episode_keys]
        of_steps = np.array(generalised_advantages(trajectory.rewards, values, 0.0, discount, decay)[0])
        advantages.append(np.where(np.abs(of_steps) < 1e-6, 0.0, of_steps))  # the model must not learn rounding errors
    return advantages


def baseline_keys(trajectory: Trajectory) -> list[tuple[object, ...]]:
    """Return the baseline group of each decision: its level, the rewards so far, and the steps since the last reward."""
    keys: list[tuple[object, ...]] = []
    reward_so_far, steps_since = 0.0, 0
    for reward in trajectory.rewards:
        keys.append((trajectory.level, round(reward_so_far, 6), steps_since))
        reward_so_far, steps_since = reward_so_far + reward, 0 if reward else steps_since + 1
    return keys


def make_batch(
    config: GRPOConfig, actor: Actor, trajectories: Sequence[Trajectory], advantages: Sequence[np.ndarray]
) -> ActionBatch:
    """Return the decisions whose advantage is not 0."""
    import torch

    batch = loop.make_batch(config, actor, trajectories, [(of_steps != 0).tolist() for of_steps in advantages])
    flat = np.concatenate(advantages)
    drawn = batch.played.gather(1, batch.actions[:, None])[:, 0]
    return ActionBatch(**vars(batch), old_log_probs=drawn.log(), advantages=torch.from_numpy(flat[flat != 0]).float())
