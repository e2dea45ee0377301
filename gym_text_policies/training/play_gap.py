"""Whether the model learns on what it has played: the difference of its log-probabilities between play and learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gym_text.errors import RunError
from gym_text_policies.training.model.lora import Dtype
from gym_text_policies.training.model.processes import gather, own_share

if TYPE_CHECKING:
    from torch import Tensor

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Segment

LARGEST_GAP = {"float32": 0.01, "bfloat16": 1.0}
"""A run whose first ``rollout_gap`` is larger stops, by number format. Rounding makes up to 0.001 in float32; in bfloat16 up to 0.5
was measured."""


def rollout_gap(tokens_per_pass: int, actor: Actor, segments: Sequence[Sequence[Segment]], actions: Tensor, drawn: Tensor) -> float:
    """Return the greatest difference of an action's log-probability between play and learning, in one pass of each process.

    Call it before the model learns.

    Args:
        tokens_per_pass: Number of tokens in a pass.
        actor: The model.
        segments: The decisions of each part of the batch.
        actions: Index, among the candidates, of the action that was taken, of shape (B,).
        drawn: Its log-probability in play, of shape (B,).
    """
    import torch

    from gym_text_policies.training.model.sequences import passes

    groups = passes((segment for part in segments for segment in part), tokens_per_pass)
    gaps = []
    for group in own_share(groups)[:1]:
        rows = [row for segment in group for row in segment.rows]
        with torch.no_grad():
            log_probs = actor.evaluate([segment.conversation for segment in group]).log_probs.cpu()  # (b, A of this pass)
        gaps.append(float((log_probs.gather(1, actions[rows][:, None])[:, 0] - drawn[rows]).abs().max()))
    return max(gather(gaps))


def check_gap(dtype: Dtype, where: str, gap: float) -> None:
    """Raise `RunError` if the model's probabilities in learning are not those of play."""
    most = LARGEST_GAP[dtype]
    if gap > most:
        raise RunError(
            f"{where}: expected an action's log-probability in learning to differ from that in play by at most {most} "
            f"({dtype}); it differs by {gap:.3g}. So the model would learn from other prompts, or by other weights, than it "
            "played with. What it has learnt in this iteration is not saved. Try --strategy chat, another device or another model."
        )
