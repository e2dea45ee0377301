"""The tool by which a model plays in mode ``tool`` and with TRL: one function, ``act``, with the name of an action."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text import TextSpec
from gym_text_policies.records import Message

TOOL = "act"
"""Name of the function."""
_MOST_CHOICES = 50
"""Most names of actions that the function's description lists."""
_MEANING = "Take one action of the game."
_RETURNS = "The task, what you observe after the action, and which actions are possible then."


def tool_docstring(spec: TextSpec) -> str:
    """Return the docstring of the method ``act``. From it TRL, by transformers, makes what `tool_function` returns."""
    names = _listed(spec)
    choices = f" (choices: {json.dumps(names)})" if names else ""
    return f"""{_MEANING}

        Args:
            action: {_argument(spec)["description"]}{choices}

        Returns:
            {_RETURNS}
        """


def tool_function(spec: TextSpec) -> dict[str, Any]:
    """Return the function as a chat template reads it: its name, its description, and a JSON schema of its argument.

    It is the same at each step, so that the prompt's beginning is. `argument_schema` says what can be given now.
    """
    return {
        "name": TOOL,
        "description": _MEANING,
        "parameters": {"type": "object", "properties": {"action": _argument(spec)}, "required": ["action"]},
        "return": {"type": "string", "description": _RETURNS},
    }


def argument_schema(spec: TextSpec, names: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of the arguments that are valid now: one of `names`, or any text in a game that lists no actions."""
    action = {**_argument(spec), **({"enum": list(names)} if spec.lists_actions else {})}
    return {"type": "object", "properties": {"action": action}, "required": ["action"], "additionalProperties": False}


def as_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a chat in which the model's answers, JSON of arguments, are calls of the tool.

    What follows a call is the tool's answer.
    """
    chat: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            chat.append({**message, "content": "", "call": message["content"]})
        elif message["content"]:
            chat.append({**message, "role": "tool" if chat and "call" in chat[-1] else message["role"]})
    return tuple(chat)


def call_of(action: str) -> str:
    """Return the arguments of the call that plays an action, as JSON."""
    return json.dumps({"action": action}, ensure_ascii=False)


def called_action(arguments: str) -> str | None:
    """Return the action in a call's arguments; None if there is none."""
    try:
        parts = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    action = parts.get("action") if isinstance(parts, Mapping) else None
    return str(action) if isinstance(action, str | int | float) and not isinstance(action, bool) else None


def _argument(spec: TextSpec) -> dict[str, Any]:
    """Return the description of the argument, in the order of keys that transformers writes."""
    names = _listed(spec)
    if names:
        return {"type": "string", "enum": names, "description": "The name of the action."}
    return {"type": "string", "description": "The name of one of the possible actions."}


def _listed(spec: TextSpec) -> list[str]:
    """Return the names of the actions if they are always the same and not too many; else none."""
    names = [action.name for action in spec.actions]
    return names if spec.encoding == "discrete" and len(names) <= _MOST_CHOICES else []
