"""Readers of chat completions in OpenAI's protocol. They are read as plain JSON, and the type of each part is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.connection import CallError, check_no_error

_ENDS = {
    **dict.fromkeys(("stop", "eos", "stop_sequence", "end_turn", "word", "tool_calls"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "limit"), "length"),
    **{"refusal": "refusal", "content_filter": "content_filter"},
}
"""From the names that servers give to the end of a text to those of `Answer.finish`."""
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message in which servers return the model's thought."""
_THOUGHT_PARTS = ("thinking", "reasoning", "thought")
"""Types of the parts of a content in which servers return the model's thought."""


def finish_of(reason: Any) -> str | None:
    """Return how a text ended, as a value of `Answer.finish`; None if the server does not say, or uses an unknown name."""
    if reason in ("error", "abort"):
        raise CallError(f"the server ended the answer by {reason!r}", retry=True, billed=True)
    return _ENDS.get(reason) if isinstance(reason, str) else None


def read_chat(completion: Any, tool: Mapping[str, Any] | None = None) -> Answer:
    """Return the text of a chat completion, the thought before it, how it ended, and its tokens. A refusal's words are its text.

    With a `tool`, see `Request.tool`, the arguments of its call are returned, too.

    Raises:
        CallError: If the answer ended in an error.
        LookupError, TypeError, ValueError: If the completion has another form.
    """
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError(f"no choices in {completion if isinstance(completion, str) else json.dumps(completion)}")
    choice = choices[0]
    check_no_error(choice)
    message, finish = choice["message"], finish_of(choice.get("finish_reason"))
    text, refusal = text_of(message.get("content")), text_of(message.get("refusal"))
    ended = "refusal" if refusal else finish
    answer = Answer(text or refusal, arguments=arguments_of(message, tool), finish=ended, **_tokens_of(completion))
    return with_thought(answer, _thought_of(message))


def text_of(content: Any) -> str:
    """Return a message's content as text. If the content is a list of parts, their texts are joined."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError(f"content that is neither a text nor a list of parts: {content!r}")
    return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))


def arguments_of(message: Mapping[str, Any], tool: Mapping[str, Any] | None) -> str | None:
    """Return the arguments of the tool's call in a model's message, as JSON; None if the message has no such call, or several."""
    calls = message.get("tool_calls") or []
    if len(calls) != 1 or calls[0]["function"]["name"] != (tool or {}).get("name"):
        return None
    arguments = calls[0]["function"]["arguments"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def with_thought(answer: Answer, thought: str | None) -> Answer:
    """Return an answer with the thought that its server returned apart from its text.

    If the server has not counted the thought's tokens, they are estimated by the thought's share of the characters.
    """
    if not thought:
        return answer
    said = f"{answer.text or ''}{answer.arguments or ''}"
    counted = answer.tokens_reasoning or round(answer.tokens_out * len(thought) / len(thought + said))
    finish = answer.finish if said.strip() else answer.finish or "length"
    return replace(answer, reasoning=thought, tokens_reasoning=counted, finish=finish)


def _thought_of(message: Mapping[str, Any]) -> str | None:
    """Return the thought in a message: of a field, or of parts of its content."""
    for name in _THOUGHT_FIELDS:
        if isinstance(message.get(name), str) and message[name].strip():
            return str(message[name]).strip()
    content = message.get("content")
    parts = [part for part in content if part.get("type") in _THOUGHT_PARTS] if isinstance(content, list) else []
    return "\n".join(text_of(part.get(part["type"]) or part.get("text")) for part in parts).strip() or None


def _tokens_of(completion: Any) -> dict[str, Any]:
    """Return the numbers of tokens of a completion, named as in `Answer`; 0 for a missing number.

    Some servers leave the tokens of thoughts out of those generated. The total then contains more than the prompt and the answer.
    """
    usage = completion.get("usage") or {}
    tokens_in, said, total = (count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    cached = count((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    thought = count((usage.get("completion_tokens_details") or {}).get("reasoning_tokens"))
    left_out = max(0, total - tokens_in - said) if tokens_in else 0
    return {
        "tokens_in": tokens_in,
        "tokens_cached": cached,
        "tokens_out": said + left_out,
        "tokens_reasoning": max(thought, left_out),
    }
