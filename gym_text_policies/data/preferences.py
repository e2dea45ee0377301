"""Pairs of answers to one prompt, of which one is preferred: data for preference optimisation, as TRL's `DPOTrainer` reads it.

Two episodes of one level, with one step limit, see the same until the player acts differently. There the prompts are equal and the
answers differ. An answer is worth the mean return of the episodes that gave it there, after any thought.

A pair has ``prompt``, ``chosen`` and ``rejected`` (lists of messages), and ``chosen_return`` and ``rejected_return``, the mean
returns, in units of the reward. A thought is ``reasoning_content``: that of the best episode which gave the better answer, and that
of the worst which gave the other. If the answers are calls, the pair also has ``tools``.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.data.calls import as_template_reads, template_tools
from gym_text_policies.data.rows import Row, answer_message
from gym_text_policies.data.targets import LEAST_DIFFERENCE
from gym_text_policies.environments.stored import levels_config
from gym_text_policies.records import Message


def preference_pairs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each prompt to which episodes of a level gave different answers the best and the worst of them, as a pair.

    Args:
        rows: Conversations of several episodes of each level, of one step limit, with the player's own answers: of ``gym-text
            collect --labels own``.

    Raises:
        UsageError: If no prompt has answers whose mean returns differ enough.
    """
    found: defaultdict[tuple[str, int, str], defaultdict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    prompts: dict[tuple[str, int, str], tuple[Sequence[Message], str]] = {}
    for row in rows:
        level = json.dumps(levels_config(json.loads(row.environment)), sort_keys=True)
        thoughts = row.thoughts or ("",) * len(row.labels)
        before = hashlib.sha256()  # of the messages so far: a prompt's texts are read once, not again for each longer prompt
        for number, message in enumerate(row.messages):
            if row.own_labels and (said := row.labels[number]):
                key = (level, row.seed, before.hexdigest())
                prompts[key] = row.messages[:number], row.tool
                found[key][said].append((row.episode_return, thoughts[number]))
            before.update(json.dumps(message).encode())
    if not found:
        raise UsageError(
            "data: expected the player's own answers; these rows have the expert's. "
            "Collect them again with --labels own: that uses the stored episodes."
        )
    pairs = [pair for key, answers in found.items() if (pair := _pair(*prompts[key], answers))]
    if not pairs:
        raise UsageError(
            "data: expected several episodes of a level, with one step limit, that act and end differently; got none. Let "
            "gym-text collect draw actions and keep what is lost (--labels own --options temperature=1 --threshold -1), twice, "
            "with another seed and --folder."
        )
    return pairs


def _pair(prompt: Sequence[Message], tool: str, answers: Mapping[str, list[tuple[float, str]]]) -> dict[str, Any] | None:
    """Return the record of a prompt; None if all answers are worth the same.

    `answers` has for each answer the return of each episode that gave it, and the thought before it.
    """
    worth = {answer: fmean(value for value, _ in episodes) for answer, episodes in answers.items()}
    best, worst = max(worth, key=worth.__getitem__), min(worth, key=worth.__getitem__)
    if worth[best] - worth[worst] < LEAST_DIFFERENCE:
        return None
    record: dict[str, Any] = {"prompt": as_template_reads(prompt, tool)}
    for name, answer, (_, thought) in (("chosen", best, max(answers[best])), ("rejected", worst, min(answers[worst]))):
        (said,) = as_template_reads([answer_message(answer, calls=bool(tool))], tool)
        record[name] = [said | ({"reasoning_content": thought} if thought else {})]
    return {**record, **template_tools(tool), "chosen_return": worth[best], "rejected_return": worth[worst]}
