"""A chat as servers take it, in the protocols of OpenAI and Ollama: earlier thoughts, calls of the tool, the picture, settings."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.records import Message

Detail = Literal["low", "high", "auto"]
_SIDE, _OF_PICTURE, _OF_SQUARE = 512, 3_000, 6_000
"""Pixels of a square's side; the most tokens of a picture beside its squares, and of each square. OpenAI's dearest published
formula, that of gpt-4o-mini, is below this."""


def with_field(messages: Sequence[Message], field: str | None) -> list[dict[str, str]]:
    """Return a chat in which the model's earlier thoughts stand in a field of this name; without a name they are left out."""
    sent = []
    for message in messages:
        rest = {name: value for name, value in message.items() if name != "reasoning"}
        sent.append(rest | {field: message["reasoning"]} if field and message.get("reasoning") else rest)
    return sent


def tools_of(request: Request, **more: Any) -> list[dict[str, Any]]:
    """Return the tool of a request, whose argument can only be what is valid now; `more` are more fields of the function."""
    tool = request.tool or {}
    parameters = dict(request.schema or tool["parameters"])
    function = {"name": tool["name"], "description": tool["description"], "parameters": parameters, **more}
    return [{"type": "function", "function": function}]


def with_calls(messages: Sequence[Mapping[str, str]], request: Request, *, numbered: bool) -> list[dict[str, Any]]:
    """Return a chat in which the model's earlier calls of the request's tool stand as a server takes them.

    With `numbered`, as OpenAI: each call has a number, by which its result names it, and its arguments are a text. Else, as Ollama:
    the arguments are an object, and a result names the tool.
    """
    name, calls, sent = (request.tool or {}).get("name", ""), 0, []
    for message in messages:
        rest: dict[str, Any] = {key: value for key, value in message.items() if key != "call"}
        if "call" in message:
            calls += 1
            arguments = message["call"] if numbered else json.loads(message["call"])
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            rest["tool_calls"] = [({"id": f"call_{calls}"} if numbered else {}) | call]
        elif message["role"] == "tool":
            rest |= {"tool_call_id": f"call_{calls}"} if numbered else {"tool_name": name}
        sent.append(rest)
    return sent


def with_picture(
    messages: Sequence[Mapping[str, Any]], picture: bytes | None, detail: Detail | None = None, *, part: bool
) -> list[dict[str, Any]]:
    """Return a chat whose last message, the user's, has the picture: as a `part` of its content for OpenAI, else as for Ollama."""
    chat = [*map(dict, messages)]
    if picture is None:
        return chat
    if chat[-1]["role"] != "user":  # a tool's result can have no picture
        chat.append({"role": "user", "content": ""})
    if part:
        url = {
            "url": f"data:image/png;base64,{base64.b64encode(picture).decode('ascii')}",
            **({"detail": detail} if detail else {}),
        }
        text = [{"type": "text", "text": chat[-1]["content"]}] if chat[-1]["content"] else []
        chat[-1]["content"] = [*text, {"type": "image_url", "image_url": url}]
    else:
        chat[-1]["images"] = [picture]
    return chat


def picture_tokens(picture: bytes | None) -> int:
    """Return the most tokens that are reserved for a PNG: some for the picture, and some for each square that it touches."""
    if picture is None:
        return 0
    width, height = (int.from_bytes(picture[start : start + 4]) for start in (16, 20))  # in the PNG's header
    return _OF_PICTURE + _OF_SQUARE * -(-width // _SIDE) * -(-height // _SIDE)


def effort_of(think: Think) -> str | None:
    """Return the effort that stands for a setting of thoughts, for hosted models."""
    return think if isinstance(think, str) else {None: None, True: "medium", False: "none"}[think]


def refuse_settings(model: str, request: Request, names: Sequence[str]) -> None:
    """Raise `UsageError` if a request has one of these settings, which the model's provider does not have."""
    for name in names:
        if getattr(request, name) is not None:
            raise UsageError(f"{name}: expected none; {model} has no such setting. Leave it out, or take a server of your own.")
