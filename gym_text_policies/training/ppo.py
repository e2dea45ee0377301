"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for a language model that plays in ``choose``, from top to bottom.

The policy is the probability of each valid action. (If it were the probability of generated tokens, most of it would first have to
move onto words that are actions at all.) Each iteration plays episodes of the train fold by drawing, and learns from them for some
epochs: first the policy, then the values. The values are read from the model's hidden states and do not change the model. A run
that was killed goes on from its last checkpoint. What does not belong to PPO itself is in `gym_text_policies.training.on_policy`
(optimiser, dev fold, checkpoints) and `gym_text_policies.training.trajectories` (play).

Metrics, one line of ``metrics.jsonl`` for each iteration:

* ``episodes``, ``minutes``: how many were played so far, and the time of play and learning so far, without the dev fold.
* ``return``, ``success``, ``length``: means over the episodes that were played by drawing.
* ``failed``: how many of them ended in an error; they are told in the log, and neither learnt from nor counted in the means.
* ``dev_success``: share of the dev fold that is won, playing the most probable action; in iterations that play it,
  and in iteration 0, before it learns.
* ``policy_loss``: mean of the clipped objective, negated. It stays about 0; its gradient is what counts.
* ``value_loss``: half the mean squared error of the values; of each value the greater error with and without clipping.
* ``explained_variance``: 1 - Var(return - value) / Var(return), before learning. 0: no better than a constant; 1: perfect.
* ``entropy``: mean entropy of the distribution over the actions, in nats. At 0 nothing new is tried any more.
* ``kl``: mean divergence of that distribution from the model that training began with, in nats; if it has a weight.
* ``kl_weight``: weight of ``kl`` in the loss.
* ``old_kl``: mean of ratio - 1 - log ratio in the last epoch: how far the iteration moved.
* ``clipped``: share of decisions whose ratio is outside the clip range, in the last epoch.
* ``grad_norm``: mean norm of the gradients before clipping, in the last epoch.
* ``rollout_gap``: greatest difference of a log-probability between play and learning; rounding, or a bug.
* ``steps``: decisions that were learnt from.
* ``seconds_play``, ``seconds_learn``: where the time went.

Probabilities, and with them ``entropy`` and ``kl``, are those at the temperature. ``value_loss`` is of scaled rewards, ``return``
is not. Iterations that learn values alone have no ``policy_loss``, ``entropy``, ``kl``, ``old_kl``, ``clipped`` and ``grad_norm``.

Shapes: B decisions of an iteration, b of them in one pass, A the most candidates of a decision, H the width of the model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gym_text.errors import check_int, import_extra
from gym_text_policies.training.model.checkpoints import State
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import claim, gather, join, own_share
from gym_text_policies.training.on_policy import (
    FREE,
    OnPolicyConfig,
    Stopwatch,
    conversations_of,
    end_iteration,
    entropy_and_kl,
    finish,
    generalised_advantages,
    iterations,
    reference_log_probs,
    update_policy,
)
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    import torch

    from gym_text_policies.training.model.actor_critic import ActorCritic
    from gym_text_policies.training.model.sequences import Segment


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Let a language model learn from its own episodes by their rewards, by PPO with LoRA over the actions that can be said."""

    folder: str = "runs/ppo"
    """Run folder: checkpoints, metrics.jsonl, and at the end the adapter. A run that was stopped goes on."""
    value_learning_rate: float = 1e-4
    """Learning rate of the value head."""
    value_epochs: int = 100
    """Steps of the optimiser for the value head in each iteration, all decisions in each; they take no pass through the model."""
    value_iterations: int = 2
    """Iterations at the start in which the values alone are learnt."""
    reward_scale: float = 1.0
    """Rewards are multiplied by it for learning; it should bring returns to about 1, as value_clip expects."""
    discount: float = 0.99
    """Worth of a reward one step later."""
    decay: float = 0.95
    """Lambda of the generalised advantages."""
    clip: float = 0.2
    """The ratio of new to old probability counts within 1 - clip and 1 + clip."""
    value_clip: float = 0.2
    """Likewise the change of a value, once the policy is learnt as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("value_epochs", self.value_epochs, 1, 1_000_000)
        check_int("value_iterations", self.value_iterations, 0, 2**31 - 1)
        self.check_positive("value_learning_rate", "reward_scale", "clip", "value_clip")
        self.check_ranges(discount=(0, 1), decay=(0, 1))


def train(config: PPOConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder or the adapter do not fit; nothing is overwritten.
    """
    torch = import_extra("torch", "train")
    import_extra("peft", "train")
    from gym_text_policies.training.model.actor_critic import ActorCritic

    with claim("ppo", config, FREE):
        join(config.device)
        torch.manual_seed(config.seed)
        agent = ActorCritic(config.model, config.adapter, **config.actor_options)
        groups = [
            {"params": agent.parameters, "lr": config.learning_rate},
            {"params": list(agent.value_head.parameters()), "lr": config.value_learning_rate},
        ]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        for state in iterations(config, agent, optimizer):
            watch = Stopwatch()
            trajectories = play(config, agent, state)
            watch.played()
            batch = make_batch(config, agent, trajectories)
            metrics = learn(config, agent, optimizer, batch, state)
            episodes = [trajectory.episode for trajectory in trajectories]
            end_iteration(config, agent, optimizer, state, episodes, metrics | watch.seconds())
        return finish("ppo", config, agent)


@dataclass(frozen=True)
class Batch:
    """The decisions of an iteration as they were when played; tensors on the CPU."""

    segments: list[list[Segment]]
    """Of each episode."""
    old_log_probs: torch.Tensor  # (B, A)
    """Log-probability of each candidate; -inf where a decision has fewer."""
    reference: torch.Tensor | None  # (B, A)
    """The same by the model that training began with; None where kl has no weight."""
    actions: torch.Tensor  # (B,)
    """Number of the candidate that was taken."""
    advantages: torch.Tensor  # (B,)
    """Of that candidate, normalised over the batch."""
    hidden: torch.Tensor  # (B, H)
    """Hidden states from which the values are read."""
    values: torch.Tensor  # (B,)
    returns: torch.Tensor  # (B,)
    rollout_gap: float


def make_batch(config: PPOConfig, agent: ActorCritic, trajectories: Sequence[Trajectory]) -> Batch:
    """Evaluate what was played: log-probabilities, values, advantages and returns."""
    import torch

    from gym_text_policies.training.model.sequences import passes, segments_of, stack_padded

    segments = segments_of(trajectory.conversations(config, agent) for trajectory in trajectories)
    groups = passes((segment for episode in segments for segment in episode), config.tokens_per_pass)
    with torch.no_grad():
        found = gather([agent.evaluate(conversations_of(group)).cpu() for group in own_share(groups)])
        reference = reference_log_probs(config, agent, groups)  # (B, A)
        hidden = torch.cat([evaluation.hidden for evaluation in found])  # (B, H)
        values = agent.values(hidden)  # (B,)
        last_values = iter(agent.values(torch.cat([evaluation.last_hidden for evaluation in found])).tolist())
    old_log_probs = stack_padded([evaluation.log_probs for evaluation in found])  # (B, A)
    actions = torch.tensor([action for trajectory in trajectories for action in trajectory.actions])  # (B,)

    b_advantages: list[float] = []
    b_returns: list[float] = []
    for trajectory in trajectories:
        start = len(b_advantages)
        own_values = values[start : start + trajectory.episode.length].tolist()
        last_value = next(last_values) if trajectory.truncated else 0.0
        rewards = [config.reward_scale * reward for reward in trajectory.rewards]
        advantages, returns = generalised_advantages(rewards, own_values, last_value, config.discount, config.decay)
        b_advantages += advantages
        b_returns += returns
    normalised = torch.tensor(b_advantages)  # (B,)
    normalised = (normalised - normalised.mean()) / (normalised.std(correction=0) + 1e-6)

    played = torch.tensor([probability for trajectory in trajectories for probability in trajectory.probabilities])  # (B,)
    rollout_gap = float((old_log_probs.gather(1, actions[:, None])[:, 0] - played.log()).abs().max())
    return Batch(segments, old_log_probs, reference, actions, normalised, hidden, values, torch.tensor(b_returns), rollout_gap)


def learn(config: PPOConfig, agent: ActorCritic, optimizer: torch.optim.Optimizer, batch: Batch, state: State) -> dict[str, float]:
    """Learn the policy, once the first `value_iterations` are over, and the values; return the metrics."""
    check_finite(state.place, returns=batch.returns, advantages=batch.advantages, values=batch.values)
    metrics = {"kl_weight": state.kl_weight, "rollout_gap": batch.rollout_gap}
    if state.iteration < config.value_iterations:
        return metrics | update_values(config, agent, optimizer, batch, state, math.inf)
    losses = functools.partial(policy_losses, config, agent, batch)
    metrics |= update_policy(config, agent, optimizer, state, batch.segments, config.episodes_per_step, losses)
    return metrics | update_values(config, agent, optimizer, batch, state, config.value_clip)


def policy_losses(config: PPOConfig, agent: ActorCritic, batch: Batch, group: Sequence[Segment]) -> dict[str, torch.Tensor]:
    """Return the sums of the policy's losses and metrics over the decisions of one pass, with gradients."""
    import torch

    mb = [row for segment in group for row in segment.rows]
    new_log_probs = agent.evaluate(conversations_of(group)).log_probs  # (b, A of this pass)
    device, width = new_log_probs.device, new_log_probs.shape[1]
    mb_actions = batch.actions[mb].to(device)[:, None]  # (b, 1)
    mb_advantages = batch.advantages[mb].to(device)  # (b,)
    mb_old_log_probs = batch.old_log_probs[mb, :width].to(device)  # (b, A of this pass)
    mb_reference = None if batch.reference is None else batch.reference[mb, :width].to(device)

    log_ratio = (new_log_probs.gather(1, mb_actions) - mb_old_log_probs.gather(1, mb_actions))[:, 0]  # (b,)
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - config.clip, 1 + config.clip)
    return entropy_and_kl(new_log_probs, mb_reference) | {
        "policy_loss": -torch.minimum(ratio * mb_advantages, clipped_ratio * mb_advantages).sum(),
        "old_kl": (ratio - 1 - log_ratio).detach().sum(),
        "clipped": ((ratio - 1).abs() > config.clip).sum(),
    }


def update_values(
    config: PPOConfig, agent: ActorCritic, optimizer: torch.optim.Optimizer, batch: Batch, state: State, clip: float
) -> dict[str, float]:
    """Learn the values from the returns; each moves by at most `clip` from what it was in play."""
    import torch

    old_values, returns = batch.values, batch.returns
    unexplained = float((returns - old_values).var(correction=0)) / max(float(returns.var(correction=0)), 1e-8)
    for _ in range(config.value_epochs):
        values = agent.values(batch.hidden)  # (B,)
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        loss = 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()
        check_finite(state.place, value_loss=loss)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return {"value_loss": float(loss.detach()), "explained_variance": 1 - unexplained}


def run(config: PPOConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return f"The adapter: {train(config)}; load_policy takes this folder as a model."
