"""Rows as typed questions with their answers, as trainers of decision models read them.

A record is a request to ``/v1/systemone`` with the right answer: ``state`` (a text, or a list of messages) and one question,
``action``, whose criteria are the actions that were possible. The right action is the question's ``label``, as any2jev 0.1.0 and
sysone 0.5.2 read it. Where a search or the expert's plans have compared the actions, the record has in its place ``gold``, a
probability for each of them, as the dataset typed-decisions has it and sysone reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.typed_questions import MOST_OPTIONS, NEXT_ACTION, TypedQuestion
from gym_text_policies.data.rows import Row, policy_of, training_prompt
from gym_text_policies.prompts import LABELS
from gym_text_policies.records import Message


def typed_questions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each answer of rows as a record. Answers that are no option, and questions of too many options, are left out.

    Raises:
        UsageError: If nothing is left.
    """
    by_label, records = training_prompt(policy_of(rows)).by_label, []
    for row in rows:
        for number, (options, label) in enumerate(zip(row.options, row.labels, strict=False)):
            right = dict(zip(LABELS, options, strict=False)).get(label) if by_label else label
            if right not in options or not 1 < len(options) <= MOST_OPTIONS:
                continue
            question: dict[str, Any] = {"type": "choice", "instructions": NEXT_ACTION, "criteria": dict.fromkeys(options)}
            words = TypedQuestion.of(*question.values()).asked("labels")[0] if by_label else ""
            record = {"state": _state(row.messages[:number], words), "questions": {"action": question}}
            if row.shares and row.shares[number]:
                record["gold"] = {"action": {"probabilities": dict(zip(options, row.shares[number], strict=True))}}
            else:
                question["label"] = right
            records.append(record)
    if not records:
        raise UsageError(
            f"data: expected names of actions as answers, each among 2 to {MOST_OPTIONS} possible actions; got none. Collect them "
            "in a game that lists its actions, with mode 'choose'."
        )
    return records


def _state(messages: Sequence[Message], words: str) -> str | list[Message]:
    """Return a prompt without the words of its question: a text if it is one message of the user, else its messages."""
    *before, last = messages
    last = {**last, "content": last["content"].removesuffix(f"\n\n{words}" if words else "")}
    return [*before, last] if before else last["content"]
