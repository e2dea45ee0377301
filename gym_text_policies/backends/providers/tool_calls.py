"""Calls of the one tool of a request, in the protocols of OpenAI and Ollama."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request


def tools_of(request: Request, **more: Any) -> list[dict[str, Any]]:
    """Return the tool of a request, whose argument can only be what is valid now, as a server takes it.

    Args:
        request: A request with a tool.
        more: More fields of the function.
    """
    tool = request.tool or {}
    parameters = dict(request.schema or tool["parameters"])
    function = {"name": tool["name"], "description": tool["description"], "parameters": parameters, **more}
    return [{"type": "function", "function": function}]


def with_calls(messages: Sequence[Mapping[str, str]], request: Request, *, numbered: bool) -> list[dict[str, Any]]:
    """Return a chat in which the model's earlier calls stand as a server takes them.

    Args:
        messages: The chat.
        request: The request, with the tool.
        numbered: As OpenAI: each call has a number, by which its result names it, and its arguments are a text. Else, as Ollama,
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


def arguments_of(message: Mapping[str, Any]) -> str | None:
    """Return the arguments of the call in a model's message, as JSON; None if there is no call, or more than one.

    Raises:
        LookupError, TypeError: If the calls have another form.
    """
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        return None
    arguments = calls[0]["function"]["arguments"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def check_call(model: str, request: Request, answer: Answer) -> None:
    """Check the answer to a question that was asked before a run.

    Raises:
        UsageError: If the model had to call the tool, and did not.
    """
    if request.tool is not None and answer.arguments is None:
        raise UsageError(
            f"mode 'tool': expected a model that calls tools; asked before the run, {model} said {(answer.text or '')[:80]!r}. "
            "Start its server so that it reads this model's calls (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice with a "
            "--tool-call-parser), or take mode 'json'."
        )
