"""Readers of chat completions in OpenAI's protocol. They are read as plain JSON, and the type of each part is checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.providers.checks import count
from gym_text_policies.backends.providers.connection import check_no_error
from gym_text_policies.backends.providers.errors import CallError
from gym_text_policies.records import Message

_ENDS = {
    **{"stop": "stop", "eos": "stop", "stop_sequence": "stop", "end_turn": "stop", "word": "stop"},
    **{"length": "length", "max_tokens": "length", "limit": "length"},
    **{"refusal": "refusal", "content_filter": "content_filter"},
}
"""From the names that servers give to the end of a text to those of `Answer.finish`."""


def finish_of(reason: Any) -> str | None:
    """Return how a text ended, as a value of `Answer.finish`; None if the server does not say, or uses an unknown name.

    Raises:
        CallError: If it ended in an error.
    """
    if reason in ("error", "abort"):
        raise CallError(f"the server ended the answer by {reason!r}", retry=True, billed=True)
    return _ENDS.get(reason) if isinstance(reason, str) else None


def read_chat(completion: Any) -> Answer:
    """Return the text of a chat completion, how it ended, and its tokens. A refusal's words are its text.

    Raises:
        CallError: If the answer ended in an error.
        LookupError, TypeError, ValueError: If the completion has another form.
    """
    choice = first_choice(completion)
    check_no_error(choice)
    message, finish = choice["message"], finish_of(choice.get("finish_reason"))
    text, refusal = text_of(message.get("content")), message.get("refusal")
    if refusal and not isinstance(refusal, str):
        raise TypeError(f"a refusal that is no text: {refusal!r}")
    tokens_in, cached, tokens_out = tokens_of(completion)
    return Answer(
        text or refusal or "",
        finish="refusal" if refusal else finish,
        tokens_in=tokens_in,
        tokens_cached=cached,
        tokens_out=tokens_out,
    )


def first_choice(completion: Any) -> dict[str, Any]:
    """Return the first choice of a completion; raise ValueError, which shows the completion, if it has none."""
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError(f"no choices in {completion if isinstance(completion, str) else json.dumps(completion)}")
    return choices[0]


def text_of(content: Any) -> str:
    """Return a message's content as text. If the content is a list of parts, their texts are joined.

    Raises:
        TypeError: If the content is neither a text nor such a list.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError(f"content that is neither a text nor a list of parts: {content!r}")
    texts = [part["text"] for part in content if part.get("type") in ("text", "output_text")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"a part of type text whose text is no string: {content!r}")
    return "".join(texts)


def tokens_of(completion: Any) -> tuple[int, int, int]:
    """Return the numbers of tokens read, of those among them that were cached, and of tokens generated; 0 for a missing number.

    Raises:
        TypeError, ValueError: If one of them is not a number of tokens.
    """
    usage = completion.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return count(usage.get("prompt_tokens")), count(details.get("cached_tokens")), count(usage.get("completion_tokens"))


def as_state(messages: Sequence[Message]) -> str:
    """Return a chat as one text, for typed decisions that take no chat."""
    chat = any(message["role"] == "assistant" for message in messages)
    return "\n\n".join(f"{message['role']}: {message['content']}" if chat else message["content"] for message in messages)
