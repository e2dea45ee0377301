"""GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300) for a language model that plays in ``choose``, from top to bottom.

The policy is the probability of each valid action, as in `gym_text_policies.training.ppo`. There is no critic: each iteration plays
every level several times by drawing. A decision's advantage is the discounted sum of the rewards from it on, less the mean of
these sums over the decisions of the same level in a like situation: as much had been won, and as many steps ago. Where the reward
comes at the end, these are the decisions of the same step. With a decay below 1 it is a generalised advantage (Schulman et al.
2015, https://arxiv.org/abs/1506.02438) whose values are these means. (Less one mean of all, as it is for answers of one turn, the
advantages of lost episodes, the longest ones, would outweigh all others.) It is not divided by the spread of these sums, which
would make a small difference count as much as a large one (Liu et al. 2025, https://arxiv.org/abs/2503.20783). Where all in a
situation fare alike there is nothing to learn, and it is not read.

What is learnt is the clipped objective of PPO, with a higher upper clip (Yu et al. 2025, https://arxiv.org/abs/2503.14476): an
action that was rare and good may gain more than a fifth. Each decision counts the same, however long its episode is (there, too).
A run that was killed goes on from its last checkpoint. What does not belong to GRPO itself is in
`gym_text_policies.training.on_policy` (optimiser, dev fold, checkpoints) and `gym_text_policies.training.trajectories` (play).

Metrics, one line of ``metrics.jsonl`` for each iteration:

* ``episodes``, ``minutes``: how many were played so far, and the time of play and learning so far, without the dev fold.
* ``return``, ``success``, ``length``: means over the episodes that were played by drawing.
* ``failed``: how many of them ended in an error; they are told in the log, and neither learnt from nor counted in the means.
* ``dev_success``: share of the dev fold that is won, playing the most probable action; in iterations that play it,
  and in iteration 0, before it learns.
* ``mixed``: share of the levels whose episodes fare differently, from which alone is learnt.
* ``policy_loss``: mean of the clipped objective, negated. It stays about 0; its gradient is what counts.
* ``entropy``: mean entropy of the distribution over the actions, in nats. At 0 nothing new is tried any more.
* ``kl``: mean divergence of that distribution from the model that training began with, in nats; if it has a weight.
* ``kl_weight``: weight of ``kl`` in the loss.
* ``old_kl``: mean of ratio - 1 - log ratio in the last epoch: how far the iteration moved.
* ``clipped``: share of decisions whose ratio is outside the clip range, in the last epoch.
* ``grad_norm``: mean norm of the gradients before clipping, in the last epoch.
* ``steps``: decisions that were played; ``learnt``: decisions that were learnt from.
* ``seconds_play``, ``seconds_learn``: where the time went.

Probabilities, and with them ``entropy`` and ``kl``, are those at the temperature.

Shapes: B decisions of an iteration that are learnt from, b of them in one pass, A the most candidates of a decision.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gym_text.errors import UsageError, check_int, import_extra
from gym_text_policies.training.model.checkpoints import State
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import claim, join
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

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Segment


@dataclass(frozen=True)
class GRPOConfig(OnPolicyConfig):
    """Let a language model learn from its own episodes by their returns beside others of the same level, by GRPO with LoRA."""

    folder: str = "runs/grpo"
    """Run folder: checkpoints, metrics.jsonl, and at the end the adapter. A run that was stopped goes on."""
    episodes: int = 64
    """Episodes of each iteration, dealt to the environments in turn: a multiple of group_size."""
    group_size: int = 8
    """Episodes of each level."""
    discount: float = 1.0
    """Worth of a reward one step later. Below 1, what a decision is worth depends on the rewards soon after it, and on how soon."""
    decay: float = 1.0
    """Lambda of generalised advantages: 1 counts all that follows; less counts later luck less."""
    epochs: int = 1
    """How often the episodes of an iteration are learnt from."""
    episodes_per_step: int = 16
    """Episodes in one step of the optimiser, those of whole levels: a multiple of group_size."""
    learning_rate: float = 5e-5
    """Learning rate of the adapter."""
    kl_weight: float = 0.0
    """Weight of kl, the divergence from the model that training began with; at 0, without a kl_target, that model is not run."""
    clip: float = 0.2
    """The ratio of new to old probability counts down to 1 - clip."""
    clip_high: float = 0.28
    """And up to 1 + clip_high."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("group_size", self.group_size, 2, 1_000_000)
        self.check_ranges(discount=(0, 1), decay=(0, 1))
        self.check_positive("clip", "clip_high")
        for name in ("episodes", "episodes_per_step"):
            if getattr(self, name) % self.group_size:
                raise UsageError(f"{name}: expected a multiple of group_size={self.group_size}; got {getattr(self, name)}.")


def train(config: GRPOConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder or the adapter do not fit; nothing is overwritten.
    """
    torch = import_extra("torch", "train")
    import_extra("peft", "train")
    from gym_text_policies.training.model.actor_critic import Actor

    with claim("grpo", config, FREE):
        join(config.device)
        torch.manual_seed(config.seed)
        actor = Actor(config.model, config.adapter, **config.actor_options)
        optimizer = torch.optim.AdamW(actor.parameters, lr=config.learning_rate, weight_decay=0.0)
        for state in iterations(config, actor, optimizer):
            watch = Stopwatch()
            trajectories = play(config, actor, state, config.group_size)
            watch.played()
            metrics = learn(config, actor, optimizer, trajectories, state)
            episodes = [trajectory.episode for trajectory in trajectories]
            end_iteration(config, actor, optimizer, state, episodes, metrics | watch.seconds())
        return finish("grpo", config, actor)


@dataclass(frozen=True)
class Batch:
    """The decisions that are learnt from, as they were when played; tensors on the CPU."""

    segments: list[list[Segment]]
    """Of each level, whose episodes have much in common, which is read once."""
    old_log_probs: torch.Tensor  # (B,)
    """Log-probability with which play drew the action that was taken."""
    reference: torch.Tensor | None  # (B, A)
    """Log-probability of each candidate by the model that training began with; None where kl has no weight."""
    actions: torch.Tensor  # (B,)
    """Number of the candidate that was taken."""
    advantages: torch.Tensor  # (B,)
    """Of that candidate, beside the level's other episodes in a like situation."""


def make_batch(config: GRPOConfig, actor: Actor, trajectories: Sequence[Trajectory], advantages: Sequence[np.ndarray]) -> Batch:
    """Return what is learnt from: the decisions whose advantage is not 0. The levels follow each other, as `play` returns them."""
    import torch

    from gym_text_policies.training.model.sequences import passes, segments_of

    kept = [(one, own != 0) for one, own in zip(trajectories, advantages, strict=True) if own.any()]
    segments: dict[tuple[str, int], list[Segment]] = {}
    episodes = segments_of(one.conversations(config, actor, own.tolist()) for one, own in kept)
    for (one, _), episode in zip(kept, episodes, strict=True):
        segments.setdefault(one.level, []).extend(episode)
    with torch.no_grad():
        groups = passes((segment for level in segments.values() for segment in level), config.tokens_per_pass)
        reference = reference_log_probs(config, actor, groups)  # (B, A)
    flat = torch.from_numpy(np.concatenate(advantages))
    mask = flat != 0
    probabilities = torch.tensor([value for one in trajectories for value in one.probabilities])[mask]
    actions = torch.tensor([value for one in trajectories for value in one.actions])[mask]
    return Batch([*segments.values()], probabilities.log(), reference, actions, flat[mask].float())


def group_advantages(trajectories: Sequence[Trajectory], discount: float = 1.0, decay: float = 1.0) -> list[np.ndarray]:
    """Return the advantage of each episode's decisions beside those of the same level in a like situation.

    Situations are alike in a level where as much has been won so far, and as many steps ago. The value of one is the mean of what
    followed there. With a decay of 1 an advantage is what follows, less that value. So they sum to 0 in each situation, also where
    lost episodes are the longest, and they are 0 where an episode is alone or all fare alike. With less, what a decision is worth
    depends on the values of the next situations, and less on the luck of the whole rest of its episode.

    Args:
        trajectories: The episodes, those of a level in any order.
        discount: Worth of a reward one step later.
        decay: Lambda of `generalised_advantages`, from 0 (the next situation's value) to 1 (all rewards).

    Returns:
        Arrays of shape (length of the episode,).
    """
    follow = [generalised_advantages(one.rewards, [0.0] * len(one.rewards), 0.0, discount, 1.0)[0] for one in trajectories]
    alike: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for place, one in enumerate(trajectories):
        won, since = 0.0, 0
        for step, reward in enumerate(one.rewards):
            alike.setdefault((one.level, round(won, 6), since), []).append((place, step))
            won, since = won + reward, 0 if reward else since + 1
    values = [[0.0] * len(one.rewards) for one in trajectories]
    for decisions in alike.values():
        mean = float(np.mean([follow[place][step] for place, step in decisions]))
        for place, step in decisions:
            values[place][step] = mean
    found = (
        np.array(generalised_advantages(one.rewards, own, 0.0, discount, decay)[0])
        for one, own in zip(trajectories, values, strict=True)
    )
    return [np.where(np.abs(own) < 1e-6, 0.0, own) for own in found]


def learn(
    config: GRPOConfig, actor: Actor, optimizer: torch.optim.Optimizer, trajectories: Sequence[Trajectory], state: State
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics. Where no level's episodes differ there is nothing to learn."""
    with np.errstate(over="ignore", invalid="ignore"):  # told in one sentence below
        advantages = group_advantages(trajectories, config.discount, config.decay)
    check_finite(state.place, advantages=np.concatenate(advantages))
    mixed = {one.level for one, own in zip(trajectories, advantages, strict=True) if own.any()}
    learnt = sum(int(np.count_nonzero(own)) for own in advantages)
    metrics = {
        "kl_weight": state.kl_weight,
        "mixed": len(mixed) / len({one.level for one in trajectories}),
        "learnt": float(learnt),
    }
    if not mixed:
        return metrics
    batch = make_batch(config, actor, trajectories, advantages)
    losses = functools.partial(policy_losses, config, actor, batch)
    return metrics | update_policy(
        config, actor, optimizer, state, batch.segments, config.episodes_per_step // config.group_size, losses
    )


def policy_losses(config: GRPOConfig, actor: Actor, batch: Batch, group: Sequence[Segment]) -> dict[str, torch.Tensor]:
    """Return the sums of the losses and metrics over the decisions of one pass, with gradients."""
    import torch

    mb = [row for segment in group for row in segment.rows]
    new_log_probs = actor.evaluate(conversations_of(group)).log_probs  # (b, A of this pass)
    device, width = new_log_probs.device, new_log_probs.shape[1]
    mb_advantages = batch.advantages[mb].to(device)  # (b,)
    mb_reference = None if batch.reference is None else batch.reference[mb, :width].to(device)

    taken = new_log_probs.gather(1, batch.actions[mb].to(device)[:, None])[:, 0]  # (b,)
    log_ratio = taken - batch.old_log_probs[mb].to(device)  # (b,)
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - config.clip, 1 + config.clip_high)
    return entropy_and_kl(new_log_probs, mb_reference) | {
        "policy_loss": -torch.minimum(ratio * mb_advantages, clipped_ratio * mb_advantages).sum(),
        "old_kl": (ratio - 1 - log_ratio).detach().sum(),
        "clipped": ((ratio < 1 - config.clip) | (ratio > 1 + config.clip_high)).sum(),
    }


def run(config: GRPOConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return f"The adapter: {train(config)}; load_policy takes this folder as a model."
