"""`CallFormat`: what a chat template says of calls of a tool: where a call begins, how it is written, and what ends it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.chat_format import MARKER, PROBE, AnswerStart, ChatFormat, Think
from gym_text_policies.files.json_data import common
from gym_text_policies.records import Message

_QUESTION, _ANSWER = PROBE[:2], PROBE[2]
_RESULT: Message = {"role": "tool", "content": "Result53"}
_VALUE, _THOUGHT = "Value51", "Thought52"


def with_tool(arguments: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a chat template that describes a tool to the model; see `Request.tool`."""
    return {**arguments, "tools": [{"type": "function", "function": dict(tool)}]}


def call_parts(message: Message, name: str) -> dict[str, Any]:
    """Return the fields, as chat templates read them, of a message that is a call of a tool, or that is a tool's answer."""
    if "call" not in message:
        return {"name": name}
    return {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": json.loads(message["call"])}}]}


class CallFormat:
    """What a chat template says of calls of its one tool.

    Args:
        chats: What the template says of answers, with the tool among its arguments: see `with_tool`.
        think: Whether the model thinks before it calls.

    Raises:
        UsageError: If the template describes no tools, or does not write their calls and results.
    """

    def __init__(self, chats: ChatFormat, think: Think = None) -> None:
        self._chats, answers = chats, chats.answer_start(think)
        self._arguments = dict(answers.arguments)
        self.argument = str(next(iter(chats.arguments["tools"][0]["function"]["parameters"]["properties"])))
        """The name of the tool's argument."""
        self._prompt = self._written(_QUESTION, generation=True)
        shown, start = self._chat(_VALUE, result=True), self._start_of(answers)
        described = self._written(_QUESTION, tools=None) != self._written(_QUESTION)
        if not (described and _VALUE in shown and _RESULT["content"] in shown and start):
            raise UsageError(
                "mode 'tool': expected a model whose chat template describes tools to the model, and writes their calls and "
                "results; this one's does not. Take mode 'json' or 'choose', or a model that was trained to call tools. "
                "gym-text sft trains one with another template: --chat-template tools, or a file."
            )
        self.answer_start = start
        """Where a call begins, or the thought before it.

        A template may write something else before a call than before an answer in words, such as the name of another channel. Then
        what the two have in common is the place, and the rest is a part of the call."""

    def _start_of(self, answers: AnswerStart) -> AnswerStart | None:
        """Return where a call begins; None if the template does not show it."""
        plain, opening = self._chat(_VALUE), None
        if plain.startswith(self._prompt):
            opening = _common(answers.opening, plain.removeprefix(self._prompt))
        if not answers.thinks:
            return None if opening is None else dataclasses.replace(answers, opening=opening)
        close = _common(answers.thought_close, self._chat(_VALUE, thought=_THOUGHT).partition(_THOUGHT)[2])
        if not close.strip():
            return None
        return dataclasses.replace(answers, opening=close if opening is None else opening, thought_close=close)

    @functools.cached_property
    def end(self) -> str:
        """The marker that ends a call: the last one behind it, or the first of what follows where a template ends no last turn."""
        alone, followed = (self._chat(_VALUE, result=result).rpartition(_VALUE)[2] for result in (False, True))
        behind = _common(alone, followed)
        ends_turns = bool(self._written([*_QUESTION, _ANSWER]).rpartition(_ANSWER["content"])[2].strip())
        markers = MARKER.findall(behind if ends_turns else followed[len(behind) :])
        return str(markers[-1 if ends_turns else 0]) if markers else self._chats.end_marker

    def text(self, value: str) -> str:
        """Return what the model writes behind the place to call the tool with a value, the end included."""
        chat = self._chat(value, thought=_THOUGHT if self.answer_start.thinks else None)
        start = chat.index(_THOUGHT) + len(_THOUGHT + self.answer_start.thought_close) if self.answer_start.thinks else 0
        call = chat[start or len(self._prompt + self.answer_start.opening) :]
        head, ended, _ = call.rpartition(self.end)
        return (head if ended else call.rstrip()) + self.end

    @functools.cached_property
    def around(self) -> tuple[str, str]:
        """What the model writes before and behind a value."""
        before, _, behind = self.text(_VALUE).partition(_VALUE)
        return before, behind

    def _chat(self, value: str, *, thought: str | None = None, result: bool = False) -> str:
        """Return a chat with a call; an empty text if the template refuses it."""
        call: Message = {"role": "assistant", "content": "", "call": json.dumps({self.argument: value})}
        if thought is not None:
            call["reasoning"] = thought
        return self._written([*_QUESTION, call, *([_RESULT] if result else ())])

    def _written(self, messages: Sequence[Message], *, generation: bool = False, **arguments: Any) -> str:
        return self._chats.render(messages, generation, {**self._arguments, **arguments}) or ""


def _common(one: str, other: str) -> str:
    """Return the text with which two texts begin."""
    return one[: common(one, other)]
