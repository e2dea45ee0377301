"""Pairs of answers to one prompt, of which one is preferred: data for preference optimisation, as TRL's `DPOTrainer` reads it.

Two episodes of one level see the same until the player acts differently. There the prompts are equal and the answers differ. An
answer is worth the mean return of the episodes that gave it there.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.data.rows import Row
from gym_text_policies.records import Message

Returns = dict[str, list[float]]
"""Answer -> the return of each episode that gave it."""


def preference_pairs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each prompt to which episodes of a level gave different answers the best and the worst of them.

    Args:
        rows: Conversations of several episodes of each level, with the player's own answers: of ``gym-text collect --labels own``.

    Returns:
        Records with ``prompt``, ``chosen`` and ``rejected`` (lists of messages), and ``difference`` of the mean returns.

    Raises:
        UsageError: If no prompt has answers of different worth.
    """
    found: defaultdict[tuple[str, int, str], Returns] = defaultdict(lambda: defaultdict(list))
    prompts: dict[tuple[str, int, str], Sequence[Message]] = {}
    for row in rows:
        before = hashlib.sha256()  # of the messages so far: a prompt's texts are read once, not again for each longer prompt
        for number, message in enumerate(row.messages):
            if message["role"] == "assistant" and row.labels[number] == message["content"]:
                key = (row.environment, row.seed, before.hexdigest())
                prompts[key] = row.messages[:number]
                found[key][message["content"]].append(row.episode_return)
            before.update(json.dumps(message).encode())
    pairs = [pair for key, returns in found.items() if (pair := _pair(prompts[key], returns))]
    if not pairs:
        raise UsageError(
            "data: expected several episodes of a level that act and end differently; got none. Let gym-text collect draw actions "
            "and keep what is lost (--labels own --temperature 1 --threshold -1), twice, with another --seed and --folder."
        )
    return pairs


def _pair(prompt: Sequence[Message], returns: Returns) -> dict[str, Any] | None:
    """Return the record of a prompt; None if all answers are worth the same."""
    worth = {answer: fmean(values) for answer, values in returns.items()}
    best, worst = max(worth, key=worth.__getitem__), min(worth, key=worth.__getitem__)
    if worth[best] == worth[worst]:
        return None
    chosen, rejected = ([{"role": "assistant", "content": answer}] for answer in (best, worst))
    return {"prompt": list(prompt), "chosen": chosen, "rejected": rejected, "difference": worth[best] - worth[worst]}
