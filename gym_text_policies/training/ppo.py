"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for a language model that plays in ``choose``, from top to bottom.

The policy is a distribution over the valid actions, not over generated tokens. (A policy over tokens would first have to learn
which texts are actions at all.) In each iteration the model plays episodes of the train fold, and draws its actions from the
policy. Then PPO trains the policy on these episodes for some epochs, and after it the values. A linear head computes the values
from the model's hidden states. The gradients of this head do not reach the model. A run that was killed goes on from its last
checkpoint.

To follow PPO from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and the gradient
steps), `gym_text_policies.training.trajectories` (the episodes) and `gym_text_policies.training.model.actor_critic` (the model).

The documentation's page Training says what the metrics mean, one line of ``metrics.jsonl`` for each iteration. Probabilities are
computed at the temperature; this holds for ``entropy`` and ``kl``, too. ``value_loss`` is computed from scaled rewards, ``return``
from the environment's rewards.

Shapes: B is the number of decisions of an iteration, b the number of decisions in one forward pass, A the greatest number of
candidates of a decision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gym_text.errors import check_int
from gym_text_policies.training import loop
from gym_text_policies.training.loop import DecisionBatch
from gym_text_policies.training.model.saving import Progress, check_finite
from gym_text_policies.training.options import RewardConfig
from gym_text_policies.training.rollout_gap import gap_metrics
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import ActorCritic

CLIP = 0.2
"""The ratio of new to old probability counts within 1 - CLIP and 1 + CLIP (Schulman et al. 2017, table 3)."""
VALUE_CLIP = 0.2
"""A value may change by at most this much in an iteration that learns the policy as well. CleanRL's PPO clips values and ratios by
one number, too."""
VALUE_LEARNING_RATE = 1e-4
"""Learning rate of the value head."""
LEAST_VARIANCE = 1e-8
"""Returns of a smaller variance are equal but for rounding: then no share of it is explained."""
VALUE_EPOCHS = 100
"""Steps of the optimiser for the value head in each iteration. Each step takes all decisions at once, and no pass of the model."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RewardConfig):
    """Train a language model on the rewards of its own episodes by PPO with LoRA. The policy is over the valid actions."""

    algorithm: ClassVar[str] = "ppo"

    folder: str = "runs/ppo"
    value_iterations: int = 2
    """Number of iterations at the start that learn the values alone."""
    reward_scale: float = 1.0
    """Learning multiplies rewards by this number. Choose it so that returns are about 1: values change by at most 0.2 in an
    iteration."""
    discount: float = 0.99
    decay: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("value_iterations", self.value_iterations, 0, 2**31 - 1)
        self.check_positive("reward_scale")


def run(config: PPOConfig) -> Path:
    """Train, and return the folder of the adapter. For the errors see `gym_text_policies.training.loop.run`."""
    return loop.run(config, play, learn, critic_rate=VALUE_LEARNING_RATE)


def learn(
    config: PPOConfig, agent: ActorCritic, optimizer: Optimizer, progress: Progress, trajectories: Sequence[Trajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics."""
    return update(config, agent, optimizer, progress, make_batch(config, agent, trajectories))


@dataclass(frozen=True)
class ActionBatch(DecisionBatch):
    """Decisions to learn from, with the advantages of the actions that were taken. Tensors are on the CPU."""

    old_log_probs: Tensor  # (B,)
    """Log-probability, before learning, of the action that was taken."""
    advantages: Tensor  # (B,)
    """Advantage of this action."""


@dataclass(frozen=True)
class PPOBatch(ActionBatch):
    """All decisions of an iteration, evaluated by the model before it learns. Advantages are normalised over the batch."""

    hidden: Tensor  # (B, H)
    """Hidden state of each prompt's last token, from which the critic computes the value; H is the width of the model."""
    values: Tensor  # (B,)
    """Values before learning."""
    returns: Tensor  # (B,)
    """Targets of the values: advantage, before it is normalised, plus value."""
    rollout: dict[str, float]
    """How far the probabilities are from those of play: see `gap_metrics`."""


def make_batch(config: PPOConfig, agent: ActorCritic, trajectories: Sequence[Trajectory]) -> PPOBatch:
    """Evaluate the played decisions with the model: log-probabilities, values, advantages and returns."""
    import torch

    from gym_text_policies.training.model.sequences import passes, stack_padded

    batch = loop.make_batch(config, agent, trajectories)
    with torch.no_grad():
        evaluations = [agent.evaluate(group) for group in passes(batch.conversations, config.tokens_per_pass)]
        hidden = torch.cat([evaluation.hidden for evaluation in evaluations])  # (B, H)
        values = agent.values(hidden)  # (B,)
        last_values = iter(agent.values(torch.cat([evaluation.last_hidden for evaluation in evaluations])).tolist())
    log_probs = stack_padded([evaluation.log_probs for evaluation in evaluations])  # (B, A)
    b_advantages: list[float] = []
    b_returns: list[float] = []
    for trajectory in trajectories:
        start = len(b_advantages)
        episode_values = values[start : start + trajectory.episode.length].tolist()
        last_value = next(last_values) if trajectory.truncated else 0.0
        rewards = [config.reward_scale * reward for reward in trajectory.rewards]
        advantages, returns = generalised_advantages(rewards, episode_values, last_value, config.discount, config.decay)
        b_advantages += advantages
        b_returns += returns
    normalised = torch.tensor(b_advantages)  # (B,)
    return PPOBatch(
        **vars(batch),
        old_log_probs=log_probs.gather(1, batch.actions[:, None])[:, 0],
        advantages=(normalised - normalised.mean()) / (normalised.std(correction=0) + 1e-6),
        hidden=hidden,
        values=values,
        returns=torch.tensor(b_returns),
        rollout=gap_metrics(batch.played, batch.actions, log_probs),
    )


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], last_value: float, discount: float, decay: float
) -> tuple[list[float], list[float]]:
    """Return generalised advantages (Schulman et al. 2015, https://arxiv.org/abs/1506.02438) and returns of one episode.

    Args:
        rewards: Reward of each step.
        values: Value of the observation before each step.
        last_value: Value of the observation after the last step; 0 if the episode terminated, because no reward can follow.
        discount: Discount factor (gamma).
        decay: Lambda, from 0 (the reward of one step and the next value) to 1 (all rewards).

    >>> generalised_advantages([0.0, 1.0], [0.5, 0.5], 0.0, 1.0, 1.0)
    ([0.5, 0.5], [1.0, 1.0])
    >>> generalised_advantages([0.0, 1.0], [0.5, 0.5], 2.0, 1.0, 0.0)
    ([0.0, 2.5], [0.5, 3.0])
    """
    advantages: list[float] = []
    next_advantage, next_value = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        delta = reward + discount * next_value - value
        next_advantage = delta + discount * decay * next_advantage
        advantages.append(next_advantage)
        next_value = value
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values, strict=True)]


def update(config: PPOConfig, agent: ActorCritic, optimizer: Optimizer, progress: Progress, batch: PPOBatch) -> dict[str, float]:
    """Learn the policy and then the values; return the metrics. The first `value_iterations` learn the values alone."""
    check_finite(progress.title, returns=batch.returns, advantages=batch.advantages, values=batch.values)
    metrics = dict(batch.rollout)
    if progress.iteration < config.value_iterations:
        return metrics | update_values(agent, optimizer, batch, progress, math.inf)
    objective = functools.partial(clipped_objective, batch, CLIP, CLIP)
    metrics["learnt"] = float(batch.advantages.count_nonzero())
    metrics |= loop.update_policy(config, agent, optimizer, progress, batch, objective)
    return metrics | update_values(agent, optimizer, batch, progress, VALUE_CLIP)


def clipped_objective(
    batch: ActionBatch, low: float, high: float, decisions: list[int], new_log_probs: Tensor
) -> dict[str, Tensor]:
    """Return the policy's loss and metrics, each summed over some decisions.

    Args:
        batch: All decisions that the model learns from.
        low: The ratio of new to old probability counts from 1 - low on,
        high: up to 1 + high.
        decisions: Indices of the decisions in the batch, b numbers.
        new_log_probs: Log-probabilities of the decisions' candidates by the present policy, with gradients; shape
            (b, A of this pass).
    """
    import torch

    mb_advantages = batch.advantages[decisions]  # (b,)
    log_ratio = new_log_probs.gather(1, batch.actions[decisions][:, None])[:, 0] - batch.old_log_probs[decisions]  # (b,)
    ratio = log_ratio.exp()
    return {
        "policy_loss": -torch.minimum(ratio * mb_advantages, ratio.clamp(1 - low, 1 + high) * mb_advantages).sum(),
        "old_kl": (ratio - 1 - log_ratio).detach().sum(),
        "clipped": ((ratio < 1 - low) | (ratio > 1 + high)).sum(),
    }


def update_values(agent: ActorCritic, optimizer: Optimizer, batch: PPOBatch, progress: Progress, clip: float) -> dict[str, float]:
    """Fit the values to the returns; clip the change of each value from ``batch.values`` to `clip`."""
    import torch

    old_values, returns = batch.values, batch.returns
    variance = float(returns.var(correction=0))
    unexplained = float((returns - old_values).var(correction=0))
    for _ in range(VALUE_EPOCHS):
        values = agent.values(batch.hidden)  # (B,)
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        loss = 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()
        check_finite(progress.title, value_loss=loss)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    metrics = {"value_loss": float(loss.detach())}
    return metrics | {"explained_variance": 1 - unexplained / variance} if variance > LEAST_VARIANCE else metrics
