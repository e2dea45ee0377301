"""The picture of a request, as a part of its last message, in the protocols of OpenAI and Ollama."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Request

Detail = Literal["low", "high", "auto"]
_SIDE, _OF_PICTURE, _OF_SQUARE = 512, 3_000, 6_000
"""Pixels of a square's side; the most tokens of a picture beside its squares, and of each square. OpenAI's dearest published
formula, that of gpt-4o-mini, is below this."""


def most_tokens(picture: bytes | None) -> int:
    """Return the most tokens that are reserved for a PNG: some for the picture, and some for each square that it touches."""
    if picture is None:
        return 0
    width, height = (int.from_bytes(picture[start : start + 4]) for start in (16, 20))  # in the PNG's header
    return _OF_PICTURE + _OF_SQUARE * -(-width // _SIDE) * -(-height // _SIDE)


def as_parts(messages: Sequence[Mapping[str, Any]], picture: bytes | None, detail: Detail | None) -> list[dict[str, Any]]:
    """Return a chat whose last message has the picture, as OpenAI's protocol has it: as a list of parts."""
    if picture is None:
        return [*map(dict, messages)]
    url = {"url": f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}", **({"detail": detail} if detail else {})}
    *before, last = _ending_with_user(messages)
    text = [{"type": "text", "text": last["content"]}] if last["content"] else []
    return [*before, last | {"content": [*text, {"type": "image_url", "image_url": url}]}]


def with_images(messages: Sequence[Mapping[str, Any]], picture: bytes | None) -> list[dict[str, Any]]:
    """Return a chat whose last message has the picture, as Ollama's client takes it."""
    if picture is None:
        return [*map(dict, messages)]
    *before, last = _ending_with_user(messages)
    return [*before, last | {"images": [picture]}]


def _ending_with_user(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a chat whose last message is the user's: a tool's result can have no picture."""
    chat = [*map(dict, messages)]
    return chat if chat[-1]["role"] == "user" else [*chat, {"role": "user", "content": ""}]


def no_picture_in_a_decision(request: Request) -> None:
    """Raise `UsageError` if choices that no chat asks for are to be made with a picture."""
    if request.picture is not None:
        raise UsageError(
            "pictures: expected mode 'text', 'json' or 'tool', or openai: with decide='letter'; typed decisions, and "
            "log-probabilities of whole actions, are made without a picture."
        )
