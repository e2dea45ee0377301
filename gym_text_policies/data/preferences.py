"""Pairs of answers to one prompt, of which one is preferred: data for preference optimisation, as TRL's `DPOTrainer` reads it.

A pair is of two episodes or of two actions. Two episodes of one level see the same until the player acts differently. There the
prompts are equal and the answers differ. An answer is worth the mean return of the episodes that gave it there. Two actions of one
state are worth what playing on after them returned: see `gym_text_policies.data.action_values`.

A pair has ``prompt``, ``chosen`` and ``rejected`` (lists of messages), and ``chosen_return`` and ``rejected_return``, the mean
returns, in units of the reward. If the answers are calls, it also has ``tools``.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.data.action_values import ValuedState
from gym_text_policies.data.calls import as_template_reads, said_in, template_tools
from gym_text_policies.data.rows import Row, answer_message
from gym_text_policies.records import Message

LEAST_DIFFERENCE = 1e-6
"""Mean returns that differ by less are equal: sums of the same rewards in another order may differ in their last digits."""
Returns = Mapping[str, Sequence[float]]
"""Answer -> the return of each episode that gave it, or of each time that it was played on."""


def preference_pairs(rows: Sequence[Row], margin: float = 0.0) -> list[dict[str, Any]]:
    """Return for each prompt to which episodes of a level gave different answers the best and the worst of them, as a pair.

    Args:
        rows: Conversations of several episodes of each level, with the player's own answers: of ``gym-text collect --labels own``.
        margin: Least difference of the mean returns.

    Raises:
        UsageError: If no prompt has answers whose mean returns differ enough.
    """
    found: defaultdict[tuple[str, int, str], defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    prompts: dict[tuple[str, int, str], tuple[Sequence[Message], str]] = {}
    for row in rows:
        before = hashlib.sha256()  # of the messages so far: a prompt's texts are read once, not again for each longer prompt
        for number, message in enumerate(row.messages):
            if message["role"] == "assistant" and row.labels[number] == said_in(message):
                key = (row.environment, row.seed, before.hexdigest())
                prompts[key] = row.messages[:number], row.tool
                found[key][said_in(message)].append(row.episode_return)
            before.update(json.dumps(message).encode())
    pairs = [pair for key, returns in found.items() if (pair := _pair(*prompts[key], returns, margin))]
    if not pairs:
        enough = f", with returns that differ by {margin:g} or more" if margin else ""
        raise UsageError(
            f"data: expected several episodes of a level that act and end differently{enough}; got none. Let gym-text collect draw "
            "actions and keep what is lost (--labels own --temperature 1 --threshold -1), twice, with another --seed and --folder."
        )
    return pairs


def action_pairs(states: Iterable[ValuedState], margin: float) -> list[dict[str, Any]]:
    """Return for each state the best and the worst of its valued actions, as a pair, if their mean returns differ enough.

    Args:
        states: The states; see `valued_states`.
        margin: Least difference of the mean returns.

    Raises:
        UsageError: If the mean returns differ enough in no state.
    """
    pairs = [pair for state in states if (pair := _pair(state.prompt, "", state.returns, margin))]
    if not pairs:
        raise UsageError(
            f"runs: expected states in which the returns of two actions differ by {margin:g} or more; got none. Try more actions "
            "(--alternatives 3), count soon rewards more (--discount 0.99), or take episodes of a player that errs more."
        )
    return pairs


def _pair(prompt: Sequence[Message], tool: str, returns: Returns, margin: float) -> dict[str, Any] | None:
    """Return the record of a prompt; None if all answers are worth the same, or differ by less than the margin."""
    worth = {answer: fmean(values) for answer, values in returns.items()}
    best, worst = max(worth, key=worth.__getitem__), min(worth, key=worth.__getitem__)
    if worth[best] - worth[worst] < max(margin, LEAST_DIFFERENCE):
        return None
    chosen, rejected = (as_template_reads([answer_message(answer, calls=bool(tool))], tool) for answer in (best, worst))
    record = {"prompt": as_template_reads(prompt, tool), "chosen": chosen, "rejected": rejected}
    return {**record, **template_tools(tool), "chosen_return": worth[best], "rejected_return": worth[worst]}
