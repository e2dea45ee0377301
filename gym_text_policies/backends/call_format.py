"""`CallFormat`: what a chat template says of calls of a tool: where a call begins, how it is written, and what ends it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.chat_format import MARKER, PROBE, AnswerStart, ChatFormat, Think
from gym_text_policies.records import Message

_QUESTION, _ANSWER = PROBE[:2], PROBE[2]
_RESULT: Message = {"role": "tool", "content": "Result53"}
_VALUE, _THOUGHT = "Value51", "Thought52"
_UNUSUAL = 'a"b\\c\nd'
"""A value with characters that JSON writes in another way."""


def with_tool(arguments: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a chat template that describes a tool to the model.

    Args:
        arguments: The user's template arguments.
        tool: See `Request.tool`.
    """
    return {**arguments, "tools": [{"type": "function", "function": dict(tool)}]}


def call_parts(message: Message, name: str) -> dict[str, Any]:
    """Return the fields, as chat templates read them, of a message that is a call of a tool, or that is a tool's answer.

    Args:
        message: The message. A call has the arguments, as JSON, under ``call``.
        name: Name of the tool.
    """
    if "call" not in message:
        return {"name": name}
    return {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": json.loads(message["call"])}}]}


@dataclass(frozen=True, eq=False)
class CallFormat:
    """What a chat template says of calls of its one tool.

    Args:
        chats: What the template says of answers, with the tool among its arguments: see `with_tool`.
        think: Whether the model thinks before it calls.

    Raises:
        UsageError: If the template describes no tools, or does not write their calls and results.
    """

    chats: ChatFormat
    think: Think = None
    _texts: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        shown = self._chat(_VALUE, result=True)
        described = self._written(_QUESTION, tools=None) != self._written(_QUESTION)
        if not (described and _VALUE in shown and _RESULT["content"] in shown and self._answer_start):
            raise UsageError(
                "mode 'tool': expected a model whose chat template describes tools to the model, and writes their calls and "
                "results; this one's does not. Take mode 'json' or 'choose', or a model that was trained to call tools. "
                "gym-text sft trains one with another template: --chat-template tools, or a file."
            )

    @property
    def answer_start(self) -> AnswerStart:
        """Where a call begins, or the thought before it.

        A template may write something else before a call than before an answer in words, such as the name of another channel. Then
        what the two have in common is the place, and the rest is a part of the call.
        """
        assert self._answer_start is not None  # else `__post_init__` has raised
        return self._answer_start

    @functools.cached_property
    def _answer_start(self) -> AnswerStart | None:
        answers, plain = self._answers, self._chat(_VALUE)
        opening = _common(answers.opening, plain.removeprefix(self._prompt)) if plain.startswith(self._prompt) else None
        if not answers.thinks:
            return None if opening is None else dataclasses.replace(answers, opening=opening)
        close = _common(answers.thought_close, self._chat(_VALUE, thought=_THOUGHT).partition(_THOUGHT)[2])
        if not close.strip():
            return None
        return dataclasses.replace(answers, opening=close if opening is None else opening, thought_close=close)

    @functools.cached_property
    def _answers(self) -> AnswerStart:
        """Where an answer in words begins."""
        return self.chats.answer_start(self.think)

    @functools.cached_property
    def _prompt(self) -> str:
        return self._written(_QUESTION, generation=True)

    @functools.cached_property
    def end(self) -> str:
        """The marker that ends a call: the last one behind it, or the first of what follows where a template ends no last turn."""
        alone, followed = (self._chat(_VALUE, result=result).rpartition(_VALUE)[2] for result in (False, True))
        behind = _common(alone, followed)
        ends_turns = bool(self._written([*_QUESTION, _ANSWER]).rpartition(_ANSWER["content"])[2].strip())
        markers = MARKER.findall(behind if ends_turns else followed[len(behind) :])
        return str(markers[-1 if ends_turns else 0]) if markers else self.chats.end_marker

    def text(self, value: str) -> str:
        """Return what the model writes behind the place to call the tool with a value, the end included."""
        if value not in self._texts:
            chat = self._chat(value, thought=_THOUGHT if self.answer_start.thinks else None)
            start = chat.index(_THOUGHT) + len(_THOUGHT + self.answer_start.thought_close) if self.answer_start.thinks else 0
            call = chat[start or len(self._prompt + self.answer_start.opening) :]
            head, ended, _ = call.rpartition(self.end)
            self._texts[value] = (head if ended else call.rstrip()) + self.end
        return self._texts[value]

    @functools.cached_property
    def around(self) -> tuple[str, str]:
        """What the model writes before and behind a value, if the value can be any text.

        Raises:
            UsageError: If the template writes unusual values neither as JSON nor unchanged.
        """
        before, _, behind = self.text(_VALUE).partition(_VALUE)
        if self.text(_UNUSUAL) != before + self.written(_UNUSUAL) + behind:
            raise UsageError("mode 'tool': expected a chat template that writes texts as JSON or unchanged. Take mode 'json'.")
        return before, behind

    @functools.cached_property
    def is_json(self) -> bool:
        """Whether a value is written as JSON writes it, not unchanged."""
        return _UNUSUAL not in self.text(_UNUSUAL)

    def written(self, value: str) -> str:
        """Return a value as it stands in a call."""
        return json.dumps(value, ensure_ascii=False)[1:-1] if self.is_json else value

    @property
    def argument(self) -> str:
        """The name of the tool's argument."""
        return str(next(iter(self.chats.arguments["tools"][0]["function"]["parameters"]["properties"])))

    def continues(self, *, thought: bool = False) -> bool:
        """Return whether later prompts contain a call as it was generated, so that its tokens can be kept.

        Args:
            thought: Whether the model thought first, and the chat keeps the thought.
        """
        before = (
            f"{self.answer_start.thought_open}{_THOUGHT}{self.answer_start.thought_close}" if thought else self.answer_start.opening
        )
        later = self._chat(_VALUE, thought=_THOUGHT if thought else None, result=True)
        return later.startswith(f"{self._prompt}{before}{self.text(_VALUE)}")

    def _chat(self, value: str, *, thought: str | None = None, result: bool = False) -> str:
        """Return a chat with a call; an empty text if the template refuses it."""
        call: Message = {"role": "assistant", "content": "", "call": json.dumps({self.argument: value})}
        if thought is not None:
            call["reasoning"] = thought
        return self._written([*_QUESTION, call, *([_RESULT] if result else ())])

    def _written(self, messages: Sequence[Message], *, generation: bool = False, **arguments: Any) -> str:
        return self.chats.render(messages, generation, {**dict(self._answers.arguments), **arguments}) or ""


def _common(one: str, other: str) -> str:
    """Return the text with which two texts begin."""
    size = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:size]
