"""Learning target probabilities: the loss of algorithms that know, for all candidates, what the policy should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gym_text_policies.training import loop
from gym_text_policies.training.loop import DecisionBatch, OnPolicyConfig
from gym_text_policies.training.trajectories import Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from gym_text_policies.training.model.actor_critic import Actor

Targets = dict[str, float]
"""Target probability of each action of a decision; one that is left out has 0. Empty: the model does not read the decision."""


@dataclass(frozen=True)
class TargetBatch(DecisionBatch):
    """Decisions to learn from, with their target probabilities. Tensors are on the CPU."""

    targets: Tensor  # (B, A)
    """Target probability of each candidate."""


def make_batch(
    config: OnPolicyConfig, actor: Actor, trajectories: Sequence[Trajectory], targets: Sequence[Sequence[Targets]]
) -> TargetBatch:
    """Return the decisions that have targets.

    Args:
        config: Settings of the run.
        actor: The model.
        trajectories: The episodes.
        targets: For each episode the target probabilities of its decisions.
    """
    import torch

    from gym_text_policies.training.model.sequences import segments_of, stack_padded

    learnt = [(trajectory, of_steps) for trajectory, of_steps in zip(trajectories, targets, strict=True) if any(of_steps)]
    segments = segments_of(trajectory.conversations(config, actor, [*map(bool, of_steps)]) for trajectory, of_steps in learnt)
    of_candidates = [
        torch.tensor([[target.get(name, 0.0) for name in candidates]])
        for trajectory, of_steps in learnt
        for candidates, target in zip(trajectory.candidates, of_steps, strict=True)
        if target
    ]
    return TargetBatch(
        segments=segments,
        reference=loop.reference_log_probs(config, actor, segments),
        targets=stack_padded(of_candidates, 0.0),
    )


def divergence_from_targets(targets: Tensor, rows: list[int], log_probs: Tensor) -> dict[str, Tensor]:
    """Return the policy's loss, KL(target probabilities || policy), summed over some decisions.

    Args:
        targets: Target probability of each candidate of all decisions that the model learns from, of shape (B, A).
        rows: Indices of the decisions in the batch, b numbers.
        log_probs: Log-probabilities of the decisions' candidates by the present policy, with gradients; shape (b, A of this pass).
    """
    import torch

    is_candidate = log_probs > -math.inf
    mb_targets = targets[rows, : log_probs.shape[1]].to(log_probs.device).masked_fill(~is_candidate, 0.0)
    divergence = torch.special.xlogy(mb_targets, mb_targets) - mb_targets * log_probs.masked_fill(~is_candidate, 0.0)
    return {"policy_loss": divergence.sum()}
