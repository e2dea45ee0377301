"""Typed decisions: one request that names the choices, and returns a probability for each of them.

OpenAI's form is ``/v1/decisions``; that of `transformers serve` and Ollama is ``/v1/systemone``, which takes no chat but one text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.chat_messages import with_field
from gym_text_policies.backends.providers.connection import CallError, Connection
from gym_text_policies.backends.typed_questions import NEXT_ACTION


def decision(server: Connection, request: Request) -> Answer:
    """Return the probabilities of a request's choices by one decision of ``/v1/decisions``."""
    question = _question(request, choices=[{"value": choice} for choice in request.choices or ()])
    body = {"model": server.model, "input": with_field(request.messages, None), "questions": [question]}
    reply = server.post("/v1/decisions", body)
    answer, usage = reply["answers"][0], reply["usage"]
    if answer["type"] == "refusal":
        raise CallError("the model refused to decide", billed=True)
    return Answer(
        probabilities=_normalised(request.choices or (), {row["value"]: row["probability"] for row in answer["probabilities"]}),
        probability_kind="decision",
        tokens_in=count(usage["input_tokens"]),
        tokens_cached=count((usage.get("input_tokens_details") or {}).get("cached_tokens")),
        tokens_out=count(usage["output_tokens"]),
        tokens_reasoning=count((usage.get("output_tokens_details") or {}).get("reasoning_tokens")),
    )


def systemone(request: Request, kind: str, ask: Callable[[str, dict[str, Any]], Any]) -> Answer:
    """Return the probabilities of a request's choices by one decision of ``/v1/systemone``.

    Args:
        request: The request.
        kind: See `Answer.probability_kind`.
        ask: Sends the state and the questions; returns the reply as JSON.
    """
    messages = request.messages
    chat = any(message["role"] == "assistant" for message in messages)
    state = "\n\n".join(f"{message['role']}: {message['content']}" if chat else message["content"] for message in messages)
    reply = ask(state, {"action": _question(request, criteria=dict.fromkeys(request.choices or ()))})
    return Answer(
        probabilities=_normalised(request.choices or (), reply["answers"]["action"]["probabilities"]),
        probability_kind=kind,
        tokens_in=count(reply["usage"]["input_tokens"]),
        tokens_out=count(reply["usage"]["output_tokens"]),
    )


def _normalised(choices: Sequence[str], probabilities: Mapping[str, float]) -> dict[str, float]:
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
