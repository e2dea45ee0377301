"""Typed decisions: a question that names the choices, and a probability for each of them; in rounds if they are too many for one.

OpenAI's form is ``/v1/decisions``; that of TypeSafe's Jev, which most servers answer, is ``/v1/systemone``. See `in_rounds`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request, spent
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.chat_messages import with_field
from gym_text_policies.backends.providers.connection import CallError
from gym_text_policies.backends.typed_questions import MOST_QUESTIONS, NEXT_ACTION

FEWEST_CHOICES = 3
"""Fewest choices that a question must be able to have. So no group of a round is a single choice."""
_LIMIT = re.compile(r"(?:at most|up to|no more than|max\w*(?: of)?|\.\.|<=)\s*(\d+)", re.IGNORECASE)
"""Words before the number of choices that a server takes, as servers refuse more."""
Groups = Sequence[Sequence[str]]
Shares = Mapping[str, float]


def decision(model: str, request: Request, most: int, post: Callable[[str, Any], Any]) -> Answer:
    """Return the probabilities of a request's choices by ``/v1/decisions``, with at most so many choices in a question."""

    def ask(groups: Groups) -> tuple[list[Shares], Any, Any]:
        said = {name: {"description": meaning} for name, meaning in (request.meanings or {}).items()}
        questions = [_question(request, choices=[{"value": name, **said.get(name, {})} for name in group]) for group in groups]
        reply = post("/v1/decisions", {"model": model, "input": with_field(request.messages, None), "questions": questions})
        if any(answer["type"] == "refusal" for answer in reply["answers"]):
            raise CallError("the model refused to decide", billed=True)
        rows = [answer["probabilities"] for answer in reply["answers"]]
        return [{row["value"]: row["probability"] for row in each} for each in rows], reply["answers"][0], reply["usage"]

    return _answer(request, most, ask)


def systemone(request: Request, most: int, post: Callable[[Any, dict[str, Any]], Any]) -> Answer:
    """Return the probabilities of a request's choices by ``/v1/systemone``; `post` sends the state and the questions."""

    def ask(groups: Groups) -> tuple[list[Shares], Any, Any]:
        names = ["action", *(f"action {number}" for number in range(2, len(groups) + 1))]
        meanings = request.meanings or {}
        asked = [_question(request, criteria={name: meanings.get(name) for name in group}) for group in groups]
        reply = post(_state(request), dict(zip(names, asked, strict=True)))
        answers = [reply["answers"][name] for name in names]
        return [answer["probabilities"] for answer in answers], answers[0], reply["usage"]

    return _answer(request, most, ask)


def in_rounds(choices: Sequence[str], most: int, ask: Callable[[Groups], Sequence[Shares]]) -> dict[str, float]:
    """Return the probability of each choice, where a question can have at most so many choices, at least `FEWEST_CHOICES`.

    If there are more, they are cut, in their order, into the fewest groups that are small enough, of equal sizes up to one. A
    request asks a question about each of up to `MOST_QUESTIONS` groups. The most probable choice of each group goes on to the next
    round, and the last round is one question. A choice's weight is the probability of its group's winner in the next round, times
    its own probability in the group, divided by the winner's there; the weights are rescaled to sum to 1. So the winner of the last
    round is the most probable choice, and a choice that has half of its winner's probability in the group has half of it in the
    end. For a model whose choices have scores that do not depend on the other choices (Luce's axiom), these are the probabilities
    of one question about all.
    """
    if len(choices) <= most:
        return dict(ask([choices])[0])
    size, count = len(choices), -(-len(choices) // most)
    shares = ask([choices[size * i // count : size * (i + 1) // count] for i in range(count)])
    winners = [max(share, key=share.__getitem__) for share in shares]
    final = in_rounds(winners, most, ask)
    weights = {c: final[w] * share[c] / share[w] for w, share in zip(winners, shares, strict=True) for c in share}
    total = sum(weights.values())
    return {choice: weight / total for choice, weight in weights.items()}


def questions_of(choices: int, most: int) -> int:
    """Return the number of questions that `in_rounds` asks about so many choices."""
    count = -(-choices // most)
    return 1 if count <= 1 else count + questions_of(count, most)


def limit_in(refusal: str, below: int) -> int | None:
    """Return the number of choices that a server takes, as the words of its refusal say; None if they say no number below."""
    return next((number for number in map(int, _LIMIT.findall(refusal)) if FEWEST_CHOICES <= number < below), None)


def _answer(request: Request, most: int, ask: Callable[[Groups], tuple[list[Shares], Any, Any]]) -> Answer:
    """Return the answer to a request, with what all rounds took. `ask` returns all shares, the first answer, and the usage."""
    rounds: list[Answer] = []

    def shares(groups: Groups) -> list[dict[str, float]]:
        found: list[Shares] = []
        for start in range(0, len(groups), MOST_QUESTIONS):
            try:
                some, first, usage = ask(groups[start : start + MOST_QUESTIONS])
            except CallError as error:
                error.billed = error.billed or bool(rounds)  # the requests before it were answered
                raise
            found += some
            details = {side: usage.get(f"{side}_tokens_details") or {} for side in ("input", "output")}
            took = Answer(
                confidence=first.get("confidence"),
                tokens_in=count(usage["input_tokens"]),
                tokens_cached=count(details["input"].get("cached_tokens")),
                tokens_out=count(usage["output_tokens"]),
                tokens_reasoning=count(details["output"].get("reasoning_tokens")),
            )
            rounds.append(took)
        return [_normalised(group, share) for group, share in zip(groups, found, strict=True)]

    probabilities, kind = in_rounds(request.choices or (), most, shares), "decision"
    confidence = rounds[0].confidence if len(rounds) == 1 else None
    return Answer(probabilities=probabilities, probability_kind=kind, confidence=confidence, rounds=len(rounds), **spent(rounds))


def _state(request: Request) -> Any:
    """Return the state: a single message that is a JSON object as such, any other chat as one text."""
    messages = request.messages
    if len(messages) == 1 and messages[0]["content"].startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(messages[0]["content"])
    chat = any(message["role"] == "assistant" for message in messages)
    return "\n\n".join(f"{message['role']}: {message['content']}" if chat else message["content"] for message in messages)


def _normalised(choices: Sequence[str], probabilities: Shares) -> dict[str, float]:
    """Return a provider's probabilities of the choices, rescaled to sum to 1."""
    values = [float(probabilities[choice]) for choice in choices]
    total = sum(values)
    if min(values) < 0 or not 0.9 < total < 1.1:  # also true if the sum is not a number
        raise ValueError(f"probabilities that sum to {total}")
    return {choice: value / total for choice, value in zip(choices, values, strict=True)}


def _question(request: Request, **choices: Any) -> dict[str, Any]:
    """Return the question of a decision.

    Raises:
        UsageError: If it is to be made with a thought. No model thinks before a typed decision.
    """
    if request.think:
        raise UsageError(
            f"think={request.think!r}: expected another mode; a typed decision is made without a thought. Take mode 'json' or "
            "'text', or openai: with decide='logprobs'."
        )
    return {"type": "choice", "instructions": NEXT_ACTION, **choices}
