"""Play and learning compute a model's probabilities by different code. The rollout gap says how far they are apart.

Play has a copy of the model with keys and values that it remembers; learning packs conversations into rows. A gap beyond rounding
means that the model would learn from other prompts, or by other weights, than it has played with. Then a run stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gym_text.errors import RunError
from gym_text_policies.training.options import Dtype, OnPolicyConfig

if TYPE_CHECKING:
    from torch import Tensor

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Conversation

LIMITS: dict[Dtype, tuple[str, float]] = {"float32": ("rollout_gap", 0.01), "bfloat16": ("rollout_kl", 0.01)}
"""A run whose first value of this metric is larger stops, by number format. Rounding makes a gap of up to 0.001 in float32. In
bfloat16 single gaps of up to 0.5 were seen; the divergence was at most 0.002 in three short runs, whose gaps were up to 0.09."""

AsPlayed = Callable[[list[int], "Tensor"], "Tensor"]
"""Makes of decisions' indices and the model's log-probabilities of the candidates, of shape (b, A), those with which it played."""


def gap_metrics(played: Tensor, actions: Tensor, log_probs: Tensor) -> dict[str, float]:
    """Return ``rollout_gap`` and ``rollout_kl``.

    * ``rollout_gap``: greatest difference of the log-probability of an action that was taken.
    * ``rollout_kl``: mean over the decisions of the KL divergence of learning's probabilities from those of play, in nats.

    Args:
        played: Probabilities of the candidates in play, of shape (B, A), padded with 0.
        actions: Index, among the candidates, of the action that was taken, of shape (B,).
        log_probs: Log-probabilities of the candidates in learning, of shape (B, A).
    """
    taken = actions[:, None]
    gaps = (log_probs.gather(1, taken) - played.gather(1, taken).log()).abs()
    divergences = (played * (played.log() - log_probs)).where(played > 0, 0.0).sum(1)
    return {"rollout_gap": float(gaps.max()), "rollout_kl": float(divergences.mean())}


def first_pass_gap(
    config: OnPolicyConfig,
    actor: Actor,
    conversations: Sequence[Conversation],
    played: Tensor,
    actions: Tensor,
    as_played: AsPlayed = lambda decisions, log_probs: log_probs,
) -> dict[str, float]:
    """Return the metrics of `gap_metrics` in the first pass over a batch. Call it before the model learns.

    `as_played` does what play has done to the model's probabilities.
    """
    import torch

    from gym_text_policies.training.model.sequences import passes

    group, *_ = passes(conversations, config.tokens_per_pass)
    decisions = [index for conversation in group for index in conversation.indices]
    with torch.no_grad():
        log_probs = as_played(decisions, actor.evaluate(group).log_probs)  # (b, A of this pass)
    return gap_metrics(played[decisions, : log_probs.shape[1]], actions[decisions], log_probs)


def check_gap(dtype: Dtype, where: str, metrics: Mapping[str, float]) -> None:
    """Raise `RunError` if the model's probabilities in learning are not those of play."""
    name, most = LIMITS[dtype]
    if not metrics[name] <= most:
        raise RunError(
            f"{where}: expected {name}, which compares the model's probabilities in play and in learning, to be at most {most} in "
            f"{dtype}; got {metrics[name]:.3g}. So the model would learn from other prompts, or by other weights, than it played "
            "with. What it has learnt in this iteration is not saved. Try another device or another model."
        )
