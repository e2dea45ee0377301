"""Sequences of tokens as lines of a file, in formats that other trainers read.

Each format has the group of a level (see `TokenRow.group`) and the mask of the tokens that the model generated:

* ``trl`` (TRL 1.16): lines of JSON by the names of its three readers. ``prompt_ids``, ``completion_ids``, ``logprobs``,
  ``env_mask``: what a `rollout_func` of `GRPOTrainer` returns. ``input_ids``, ``completion_mask``, ``old_log_probs``, ``advantage``
  (the return less the group's mean), ``group_id``, ``metrics``: what the collator of `AsyncGRPOTrainer` packs. ``input_ids``,
  ``labels``: what `SFTTrainer` reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from gym_text_policies.data.token_rows import TokenRow

_NOT_LEARNT = -100
"""Label of a token that does not count in the loss."""


def trl_lines(rows: Sequence[TokenRow]) -> list[str]:
    """Return sequences as lines of JSON by TRL's names."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(row.group for row in rows))}
    returns: dict[str, dict[int, float]] = {}
    for row in rows:
        returns.setdefault(row.group, {})[row.member] = row.episode.total_reward
    lines = []
    for row in rows:
        group, prompt = returns[row.group], len(row.prompt)
        labels = [token if generated else _NOT_LEARNT for token, generated in zip(row.completion, row.mask, strict=True)]
        reward = row.episode.total_reward
        data = {
            "prompt_ids": row.prompt,
            "completion_ids": row.completion,
            "logprobs": row.log_probs,
            "env_mask": row.mask,
            "input_ids": row.prompt + row.completion,
            "labels": [_NOT_LEARNT] * prompt + labels,
            "completion_mask": (0,) * prompt + row.mask,
            "old_log_probs": (0.0,) * prompt + row.log_probs,
            "advantage": reward - sum(group.values()) / len(group),
            "group_id": groups[row.group],
            "metrics": {"reward": reward, "success": float(row.episode.outcome == "won")},
            "seed": row.episode.seed,
        }
        lines.append(json.dumps(data))
    return lines


TOKEN_FORMATS: dict[str, Callable[[Sequence[TokenRow]], list[str]]] = {"trl": trl_lines}
"""For each format its name, and the function that makes the lines."""
