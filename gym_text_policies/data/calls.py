"""Rows whose answers are calls of a tool, as a model, OpenAI and TRL read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.call_format import CallFormat, call_parts, with_tool
from gym_text_policies.backends.local.rendering import calls_of, format_of
from gym_text_policies.backends.providers.chat_messages import tools_of, with_calls
from gym_text_policies.records import Message


def row_calls(tokenizer: Any, tool: str, *, think: bool) -> CallFormat:
    """Return how a model's chat template writes calls of a row's tool; see `Row.tool`."""
    return calls_of(tokenizer, with_tool(format_of(tokenizer).arguments, json.loads(tool)), think)


def said_in(message: Message) -> str:
    """Return the words of a message, or the arguments of its call."""
    return message.get("call", message["content"])


def as_template_reads(messages: Sequence[Message], tool: str) -> list[dict[str, Any]]:
    """Return messages as a chat template of transformers reads them, with ``tool_calls``.

    Args:
        messages: The messages.
        tool: The tool; see `Row.tool`.
    """
    if not tool:
        return [dict(message) for message in messages]
    name, chat = json.loads(tool)["name"], []
    for message in messages:
        parts = call_parts(message, name) if "call" in message or message["role"] == "tool" else {}
        chat.append({key: text for key, text in message.items() if key != "call"} | parts)
    return chat


def template_tools(tool: str) -> dict[str, str]:
    """Return TRL's column ``tools``, as JSON in one text so that datasets keep the order of its keys; empty if there is no tool."""
    return {"tools": json.dumps([{"type": "function", "function": json.loads(tool)}], ensure_ascii=False)} if tool else {}


def as_openai_reads(messages: Sequence[Message], tool: str) -> dict[str, Any]:
    """Return a chat in OpenAI's form, with numbered calls and the field ``tools`` if there is a tool."""
    if not tool:
        return {"messages": [dict(message) for message in messages]}
    request = Request((), tool=json.loads(tool))
    return {"messages": with_calls(messages, request, numbered=True), "tools": tools_of(request), "parallel_tool_calls": False}
