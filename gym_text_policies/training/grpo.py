"""GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300) for a language model that plays in ``choose``, from top to bottom.

The policy is a distribution over the valid actions, as in `gym_text_policies.training.ppo`. There is no critic. Each iteration
plays every level several times by drawing, and compares the decisions of these episodes:

* A decision's return is the discounted sum of the rewards from its step on.
* A baseline group is the decisions of one level with the same sum of rewards so far and the same number of steps since the last
  reward. Where the only reward comes at the end, these are the decisions of the same step.
* A decision's advantage is its return minus the mean return of its baseline group. With a decay below 1 it is a generalised
  advantage (Schulman et al. 2015, https://arxiv.org/abs/1506.02438) whose values are these means.

GRPO for answers of one turn has one mean for whole episodes. Here lost episodes are the longest, and with one mean their many
negative advantages would outweigh all others. Advantages are not divided by their standard deviation, which would make a small
difference count as much as a large one (Liu et al. 2025, https://arxiv.org/abs/2503.20783). A decision of advantage 0 teaches
nothing, so the model does not read it.

The objective is PPO's clipped one, with a higher upper clip (Yu et al. 2025, https://arxiv.org/abs/2503.14476): the probability of
a rare action that is good may grow by more than a fifth. Each decision counts the same, however long its episode is (as there).
A run that was killed goes on from its last checkpoint.

To follow GRPO from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and the gradient
steps), `gym_text_policies.training.trajectories` (the episodes) and `gym_text_policies.training.model.actor_critic` (the model).

Metrics are those of `gym_text_policies.training.ppo`, without ``value_loss``, ``explained_variance`` and ``rollout_gap``, and with:

* ``mixed``: share of the levels that have a decision whose advantage is not 0; the others are not learnt from.
* ``learnt``: decisions that were learnt from; ``steps`` counts those that were played.

An iteration without mixed levels has no metrics of learning.

Shapes: B decisions of an iteration that are learnt from, b of them in one pass, A the most candidates of a decision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gym_text.errors import UsageError, check_int
from gym_text_policies.old_names import gone
from gym_text_policies.training import loop
from gym_text_policies.training.loop import OnPolicyConfig
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.ppo import generalised_advantages
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Segment

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""The ratio of new to old probability counts within 1 - CLIP_LOW and 1 + CLIP_HIGH (Yu et al. 2025, section 4.1)."""


@gone(clip=CLIP_LOW, clip_high=CLIP_HIGH)
@dataclass(frozen=True, kw_only=True)
class GRPOConfig(OnPolicyConfig):
    """Let a language model learn from its own episodes by their returns beside others of the same level, by GRPO with LoRA."""

    algorithm: ClassVar[str] = "grpo"

    folder: str = "runs/grpo"
    episodes_per_iteration: int = 64
    """Episodes of each iteration, a multiple of group_size; the environments take turns."""
    group_size: int = 8
    """Episodes of each level."""
    discount: float = 1.0
    """Worth of a reward one step later. Below 1 a decision's return depends on the rewards soon after it, and on how soon."""
    decay: float = 1.0
    """Lambda of generalised advantages: 1 counts all later rewards; below 1 the luck of later steps counts less."""
    least_probability: float = 0.0
    """Candidates that play draws more rarely are left out in learning, except the action that was taken and the four most probable.
    0.001 nearly halves the work where there are forty. 0 to 0.1."""
    epochs: int = 1
    episodes_per_step: int = 16
    """Episodes in one step of the optimiser, those of whole levels: a multiple of group_size."""
    learning_rate: float = 5e-5
    kl_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("group_size", self.group_size, 2, 1_000_000)
        self.check_ranges(discount=(0, 1), decay=(0, 1), least_probability=(0, 0.1))
        for name in ("episodes_per_iteration", "episodes_per_step"):
            if getattr(self, name) % self.group_size:
                raise UsageError(f"{name}: expected a multiple of group_size={self.group_size}; got {getattr(self, name)}.")


def train(config: GRPOConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder or the model do not fit; nothing is overwritten.
    """
    play_groups = functools.partial(play, group_size=config.group_size, least_probability=config.least_probability)
    return loop.run(config, loop.make_actor, play_groups, learn)


def learn(
    config: GRPOConfig, actor: Actor, optimizer: Optimizer, progress: Progress, trajectories: Sequence[Trajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics. Where no level is mixed there is nothing to learn."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_finite says it in one sentence
        advantages = group_advantages(trajectories, config.discount, config.decay)
    check_finite(progress.title, advantages=np.concatenate(advantages))
    mixed = {one.level for one, of_episode in zip(trajectories, advantages, strict=True) if of_episode.any()}
    metrics = {
        "mixed": len(mixed) / len({one.level for one in trajectories}),
        "learnt": float(sum(int(np.count_nonzero(of_episode)) for of_episode in advantages)),
    }
    if not mixed:
        return metrics
    batch = make_batch(config, actor, trajectories, advantages)
    objective = functools.partial(clipped_objective, batch)
    levels_per_step = config.episodes_per_step // config.group_size
    return metrics | loop.update_policy(config, actor, optimizer, progress, batch, objective, levels_per_step)


def group_advantages(trajectories: Sequence[Trajectory], discount: float = 1.0, decay: float = 1.0) -> list[np.ndarray]:
    """Return the advantage of each decision over its baseline group.

    With a decay of 1 the advantages of a baseline group sum to 0, and are 0 where the group is a single decision or all its returns
    are equal. With a smaller decay a decision's advantage depends more on the baselines of the next steps, and less on how the rest
    of the episode happened to go.

    Args:
        trajectories: The episodes, those of a level in any order.
        discount: Worth of a reward one step later.
        decay: Lambda of `generalised_advantages`, from 0 (the next step's baseline) to 1 (all rewards).

    Returns:
        Arrays of shape (length of the episode,).
    """
    returns = [generalised_advantages(one.rewards, [0.0] * len(one.rewards), 0.0, discount, 1.0)[0] for one in trajectories]
    keys = [baseline_keys(one) for one in trajectories]
    groups: dict[tuple[object, ...], list[float]] = {}
    for of_episode, episode_keys in zip(returns, keys, strict=True):
        for value, key in zip(of_episode, episode_keys, strict=True):
            groups.setdefault(key, []).append(value)
    baselines = {key: float(np.mean(values)) for key, values in groups.items()}
    advantages = []
    for one, episode_keys in zip(trajectories, keys, strict=True):
        values = [baselines[key] for key in episode_keys]
        of_decisions = np.array(generalised_advantages(one.rewards, values, 0.0, discount, decay)[0])
        advantages.append(np.where(np.abs(of_decisions) < 1e-6, 0.0, of_decisions))  # rounding teaches nothing
    return advantages


def baseline_keys(trajectory: Trajectory) -> list[tuple[object, ...]]:
    """Return the baseline group of each decision: its level, the rewards so far, and the steps since the last reward."""
    keys: list[tuple[object, ...]] = []
    reward_so_far, steps_since = 0.0, 0
    for reward in trajectory.rewards:
        keys.append((trajectory.level, round(reward_so_far, 6), steps_since))
        reward_so_far, steps_since = reward_so_far + reward, 0 if reward else steps_since + 1
    return keys


@dataclass(frozen=True)
class Batch(loop.Batch):
    """The decisions that are learnt from, as they were played; tensors on the CPU. Their segments are grouped by level."""

    old_log_probs: Tensor  # (B,)
    """Log-probability with which play drew the action that was taken."""
    actions: Tensor  # (B,)
    """Number of the candidate that was taken."""
    advantages: Tensor  # (B,)
    """Of that candidate, over its baseline group."""


def make_batch(config: GRPOConfig, actor: Actor, trajectories: Sequence[Trajectory], advantages: Sequence[np.ndarray]) -> Batch:
    """Return the decisions whose advantage is not 0. Episodes of a level follow each other, as `play` returns them.

    These have much in common, which the model reads once: so the segments of a level stay together.
    """
    import torch

    from gym_text_policies.training.model.sequences import segments_of

    kept = [(one, of_episode != 0) for one, of_episode in zip(trajectories, advantages, strict=True) if of_episode.any()]
    levels: dict[tuple[str, int], list[Segment]] = {}
    episodes = segments_of(one.conversations(config, actor, is_learnt.tolist()) for one, is_learnt in kept)
    for (one, _), segments in zip(kept, episodes, strict=True):
        levels.setdefault(one.level, []).extend(segments)
    flat = torch.from_numpy(np.concatenate(advantages))
    mask = flat != 0
    probabilities = torch.tensor([probability for one in trajectories for probability in one.probabilities])[mask]
    return Batch(
        segments=[*levels.values()],
        reference=loop.reference_log_probs(config, actor, [*levels.values()]),
        old_log_probs=probabilities.log(),
        actions=torch.tensor([action for one in trajectories for action in one.actions])[mask],
        advantages=flat[mask].float(),
    )


def clipped_objective(batch: Batch, rows: list[int], new_log_probs: Tensor) -> dict[str, Tensor]:
    """Return the sums of the policy's loss and metrics over some decisions.

    Args:
        batch: All decisions that are learnt from.
        rows: Where these decisions are in it, b numbers.
        new_log_probs: Their candidates' log-probabilities now, with gradients, of shape (b, A of this pass).
    """
    import torch

    device = new_log_probs.device
    mb_advantages = batch.advantages[rows].to(device)  # (b,)
    log_ratio = new_log_probs.gather(1, batch.actions[rows].to(device)[:, None])[:, 0] - batch.old_log_probs[rows].to(device)
    ratio = log_ratio.exp()  # (b,)
    clipped_ratio = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return {
        "policy_loss": -torch.minimum(ratio * mb_advantages, clipped_ratio * mb_advantages).sum(),
        "old_kl": (ratio - 1 - log_ratio).detach().sum(),
        "clipped": ((ratio < 1 - CLIP_LOW) | (ratio > 1 + CLIP_HIGH)).sum(),
    }


def run(config: GRPOConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return f"The adapter: {train(config)}; load_policy takes this folder as a model."
