"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for a language model that plays in ``choose``, from top to bottom.

The policy is a distribution over the valid actions, not over generated tokens. (A policy over tokens would first have to learn
which texts are actions at all.) In each iteration the model plays episodes of the train fold, and draws its actions from the
policy. Each level is played several times, as the model reads once what these episodes have in common. Then:

* The model reads all decisions. A linear head on its hidden states, the critic, is fitted to the returns by least squares: that
  takes no gradient steps, no learning rate, and no iteration of its own. The values of a level come from other levels' returns,
  so no decision's value was fitted to its own luck.
* The advantages are generalised advantages. An action that changes nothing has the same observation after it, with the same
  value. So it costs what the discount takes from this value, whatever happens later: that is how PPO learns to leave circles.
* PPO trains the policy on these decisions for some epochs.

A run that was killed goes on from its last checkpoint.

To follow PPO from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and the gradient
steps), `gym_text_policies.training.trajectories` (the episodes) and `gym_text_policies.training.model.actor_critic` (the model).

The documentation's page Training says what the metrics mean, one line of ``metrics.jsonl`` for each iteration. Probabilities are
computed at the temperature; this holds for ``entropy`` and ``kl``, too.

Shapes: N is the number of decisions of an iteration, B of those that are learnt, b of those in one forward pass, A the greatest
number of candidates of a decision, T the number of truncated episodes, H the width of the model.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gym_text_policies.training import loop
from gym_text_policies.training.loop import DecisionBatch
from gym_text_policies.training.model.saving import Progress, check_finite
from gym_text_policies.training.options import RewardConfig
from gym_text_policies.training.rollout_gap import gap_metrics
from gym_text_policies.training.trajectories import Trajectory, play_groups

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import ActorCritic, Critic

CLIP = 0.2
"""The ratio of new to old probability counts within 1 - CLIP and 1 + CLIP (Schulman et al. 2017, table 3)."""
WARMUP_ITERATIONS = 3
"""In the first iterations the learning rate rises, and then it falls linearly to 0. Adam's first steps are as long as the rate in
every direction, also where the gradient is noise: at the full rate they moved the policy by a KL divergence of 0.15 to 0.4."""
ENTROPY_WEIGHT = 0.01
"""Weight of the policy's mean entropy, which training raises. Without it the policy may get sure of an action that ends in a
circle. There every episode is lost, so no action is better than another, and nothing leads out."""
FOLDS = 8
"""The values of each eighth of the levels come from a critic that is fitted to the other levels."""
LEAST_WEIGHT = 0.05
"""A decision moves the policy by at most its advantage times 1 - the probability of its action. Decisions with less than this share
of the mean are not learnt, so the model need not read them."""
LEAST_VARIANCE = 1e-8
"""Returns of a smaller variance are equal but for rounding: then no share of it is explained."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RewardConfig):
    """Train a language model on the rewards of its own episodes by PPO with LoRA. The policy is over the valid actions."""

    algorithm: ClassVar[str] = "ppo"
    entropy_weight, schedule, warmup_iterations = ENTROPY_WEIGHT, "linear", WARMUP_ITERATIONS

    folder: str = "runs/ppo"
    learning_rate: float = 1e-4
    discount: float = 0.9
    decay: float = 0.5


def run(config: PPOConfig) -> Path:
    """Train, and return the folder of the adapter. For the errors see `gym_text_policies.training.loop.run`."""
    return loop.run(config, play_groups, learn, critic=True)


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
    """The decisions of an iteration that are learnt; N is the number of all its decisions."""

    returns: Tensor  # (N,)
    """Discounted rewards from each decision on, with the critic's value of the last observation if the episode was truncated."""
    values: Tensor  # (N,)
    """Values of the decisions, by a critic that has not seen the returns of their level."""
    critic: Critic
    """The critic that is fitted to all returns."""
    rollout: dict[str, float]
    """How far the probabilities are from those of play: see `gap_metrics`."""


def make_batch(config: PPOConfig, agent: ActorCritic, trajectories: Sequence[Trajectory]) -> PPOBatch:
    """Evaluate the played decisions with the model: log-probabilities, returns, values, advantages, and which are learnt."""
    import torch

    from gym_text_policies.training.model.sequences import passes, stack_padded

    conversations = (conversation for part in loop.parts_of(config, agent, trajectories) for conversation in part)
    with torch.no_grad():
        evaluations = [agent.evaluate(group) for group in passes(conversations, config.tokens_per_pass)]
    log_probs = stack_padded([evaluation.log_probs for evaluation in evaluations])  # (N, A)
    hidden = torch.cat([evaluation.hidden for evaluation in evaluations])  # (N, H)
    last_hidden = torch.cat([evaluation.last_hidden for evaluation in evaluations])  # (T, H)
    returns = advantages_of(trajectories, torch.zeros(len(hidden)), agent.critic.values(last_hidden), config.discount, decay=1.0)
    values, last_values = values_of_others(agent.critic, trajectories, hidden, last_hidden, returns)
    advantages = advantages_of(trajectories, values, last_values, config.discount, config.decay)
    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-6)
    taken = torch.tensor([action for trajectory in trajectories for action in trajectory.actions])
    old_log_probs = log_probs.gather(1, taken[:, None])[:, 0]  # (N,)
    weights = advantages.abs() * (1 - old_log_probs.exp())
    is_learnt = ~(weights < LEAST_WEIGHT * weights.mean())
    batch = loop.make_batch(config, agent, trajectories, by_episode(trajectories, is_learnt))
    return PPOBatch(
        **vars(batch),
        old_log_probs=old_log_probs[is_learnt],
        advantages=advantages[is_learnt],
        returns=returns,
        values=values,
        critic=agent.critic.fitted(hidden, returns),
        rollout=gap_metrics(batch.played, batch.actions, log_probs[is_learnt, : batch.played.shape[1]]),
    )


def values_of_others(
    critic: Critic, trajectories: Sequence[Trajectory], hidden: Tensor, last_hidden: Tensor, returns: Tensor
) -> tuple[Tensor, Tensor]:
    """Return values of all decisions, shape (N,), and last observations, (T,), by critics fitted to the returns of other levels."""
    import torch

    levels = {level: number % FOLDS for number, level in enumerate(dict.fromkeys(one.level for one in trajectories))}
    fold = torch.tensor([levels[one.level] for one in trajectories for _ in one.rewards])  # (N,)
    last_fold = torch.tensor([levels[one.level] for one in trajectories if one.truncated])  # (T,)
    values, last_values = (torch.zeros(len(states), dtype=torch.float64) for states in (hidden, last_hidden))
    for one in set(levels.values()):
        fitted = critic.fitted(hidden[fold != one], returns[fold != one])
        values[fold == one] = fitted.values(hidden[fold == one])
        last_values[last_fold == one] = fitted.values(last_hidden[last_fold == one])
    return values, last_values


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


def advantages_of(trajectories: Sequence[Trajectory], values: Tensor, last_values: Tensor, discount: float, decay: float) -> Tensor:
    """Return the generalised advantages of all decisions, of shape (B,). With values of 0 and a decay of 1 they are the returns.

    Args:
        trajectories: The episodes.
        values: Value of each decision's observation, of shape (B,).
        last_values: Value of the last observation of each truncated episode, of shape (T,).
        discount: Discount factor (gamma).
        decay: Lambda of `generalised_advantages`.
    """
    import torch

    last_left = iter(last_values.tolist())
    advantages: list[float] = []
    for trajectory, of_steps in zip(trajectories, by_episode(trajectories, values), strict=True):
        last = next(last_left) if trajectory.truncated else 0.0
        advantages += generalised_advantages(trajectory.rewards, of_steps, last, discount, decay)[0]
    return torch.tensor(advantages)


def by_episode(trajectories: Sequence[Trajectory], of_decisions: Tensor) -> list[list[Any]]:
    """Return what a tensor of shape (N,) says of the decisions of each episode."""
    left = iter(of_decisions.tolist())
    return [list(itertools.islice(left, trajectory.episode.length)) for trajectory in trajectories]


def update(config: PPOConfig, agent: ActorCritic, optimizer: Optimizer, progress: Progress, batch: PPOBatch) -> dict[str, float]:
    """Learn the policy, and keep the critic; return the metrics."""
    check_finite(progress.title, returns=batch.returns, advantages=batch.advantages, values=batch.values)
    objective = functools.partial(clipped_objective, batch, CLIP, CLIP)
    metrics = batch.rollout | {"learnt": float(batch.advantages.count_nonzero())}
    metrics |= loop.update_policy(config, agent, optimizer, progress, batch, objective, config.levels_per_step)
    agent.critic = batch.critic
    if (variance := float(batch.returns.var(correction=0))) > LEAST_VARIANCE:
        metrics["explained_variance"] = 1 - float((batch.returns - batch.values).var(correction=0)) / variance
    return metrics


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
