"""`rendered`: a chat as text, as a tokenizer's chat template writes it. Templates run in transformers' sandbox."""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from jinja2 import TemplateError

from gym_text.errors import PolicyError
from gym_text_policies.backends.call_format import CallFormat, call_parts
from gym_text_policies.backends.chat_format import PLAIN, PROBE, AnswerStart, ChatFormat, Think
from gym_text_policies.records import Message

_MOST_ADDED = 1_000_000
"""Most characters that a chat template may add. (transformers' sandbox bounds no loops: a template can hang, but do no more
harm.)"""
_OF_TEMPLATES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that a chat template can raise, as it is a program."""
_THOUGHTS = ("reasoning_content", "thinking")
"""Fields, beside ``reasoning``, in which templates look for the thought before an answer."""


def rendered(tokenizer: Any, messages: Sequence[Message], answer_start: AnswerStart = PLAIN) -> str:
    """Return a chat as text, up to where the model's answer begins, or the thought before it.

    If earlier messages have thoughts, the template writes them, as far as an argument of it says so.

    Raises:
        PolicyError: If the template cannot write this chat.
    """
    arguments = dict(answer_start.arguments)
    if any("reasoning" in message for message in messages):
        arguments = {**format_of(tokenizer, arguments).keeping, **arguments}
    try:
        return _applied(tokenizer, messages, arguments) + ("" if answer_start.thinks else answer_start.opening)
    except _OF_TEMPLATES as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise PolicyError(f"chat template: expected a text; got {message.rstrip('.')}.") from error


def format_of(tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> ChatFormat:
    """Return what the chat template says of answers; it is asked once for each tokenizer.

    Args:
        tokenizer: One of transformers with a chat template.
        arguments: The user's template arguments; None: those of `set_format`.
    """
    settled, end = _settings.get(tokenizer, ({}, ""))
    given = settled if arguments is None else dict(arguments)
    source = json.dumps(tokenizer.chat_template, ensure_ascii=False)
    key = source, json.dumps(given, sort_keys=True), end
    render = functools.partial(_tried, weakref.ref(tokenizer))
    chats: ChatFormat = _remembered(tokenizer, key, lambda: ChatFormat(render, source, given, end))
    return chats


def calls_of(tokenizer: Any, arguments: Mapping[str, Any], think: Think = None) -> CallFormat:
    """Return what the chat template says of calls of the tool in its arguments, see `with_tool`; it is asked once for each."""
    chats = format_of(tokenizer, arguments)
    calls: CallFormat = _remembered(tokenizer, (id(chats), think), lambda: CallFormat(chats, think))  # `chats` is kept, too
    return calls


def set_format(tokenizer: Any, arguments: Mapping[str, Any], end_of_turn: str = "") -> None:
    """Set the template arguments and the end of turn that `format_of` takes for a tokenizer, if it is not told others."""
    _settings[tokenizer] = dict(arguments), end_of_turn


_settings: WeakKeyDictionary[Any, tuple[dict[str, Any], str]] = WeakKeyDictionary()
_known: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()


def _remembered(tokenizer: Any, key: Hashable, find: Callable[[], Any]) -> Any:
    """Return what `find` returns; it is called once for each tokenizer and key, and its result must not refer to the tokenizer."""
    known = _known.setdefault(tokenizer, {})
    if key not in known:
        known[key] = find()
    return known[key]


def _tried(tokenizer: weakref.ref[Any], messages: Sequence[Message], generation: bool, arguments: Mapping[str, Any]) -> str | None:
    """Return a chat as text; None if the template refuses it."""
    try:
        return _applied(tokenizer(), messages, arguments, generation=generation)
    except _OF_TEMPLATES:
        return None


def _applied(tokenizer: Any, messages: Sequence[Message], arguments: Mapping[str, Any], *, generation: bool = True) -> str:
    parts, folds = _remembered(tokenizer, ("chats", str(tokenizer.chat_template)), lambda: _wanted(tokenizer))
    if folds and messages and messages[0]["role"] == "system":
        messages = _folded(messages)
    return _written(tokenizer, messages, arguments, parts=parts, generation=generation)


def _wanted(tokenizer: Any) -> tuple[bool, bool]:
    """Return how the template wants its chats.

    Returns:
        Whether a message's content has to be a list of parts, as for models that see pictures; and whether a system message has to
        become part of the first question: Gemma 2 refuses the role, and other templates leave its text out.
    """
    parts = not _writes(tokenizer, PROBE[1:2], parts=False) and _writes(tokenizer, PROBE[1:2], parts=True)
    return parts, not _writes(tokenizer, PROBE[:2], parts=parts)


def _writes(tokenizer: Any, messages: Sequence[Message], *, parts: bool) -> bool:
    """Return whether the template writes the texts of a chat."""
    try:
        text = _written(tokenizer, messages, {}, parts=parts)
    except _OF_TEMPLATES:
        return False
    return all(message["content"] in text for message in messages)


def _written(
    tokenizer: Any, messages: Sequence[Message], arguments: Mapping[str, Any], *, parts: bool, generation: bool = True
) -> str:
    chat: list[dict[str, Any]] = []
    for message in messages:
        fields: dict[str, Any] = {key: value for key, value in message.items() if key != "call"}
        if "reasoning" in message:
            fields |= dict.fromkeys(_THOUGHTS, message["reasoning"])
        if parts:
            fields["content"] = [{"type": "text", "text": message["content"]}]
        if "call" in message or message["role"] == "tool":
            fields |= call_parts(message, arguments["tools"][0]["function"]["name"])
        chat.append(fields)
    text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generation, **arguments)
    most = _MOST_ADDED + 2 * sum(len(text) for message in messages for text in message.values())
    if len(text) > most:
        raise ValueError(f"expected at most {most:,} characters for this chat; got {len(text):,}")
    return text


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Return a chat whose first question begins with the system's text."""
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{**system, "role": "user"}, *rest]
    return [{**rest[0], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]


def special_tokens(tokenizer: Any) -> set[str]:
    """Return the texts of the special tokens."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return {*added, *map(str, tokenizer.all_special_tokens)}


def written_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Return the markers that the chat template spells and that are single tokens, but not flagged as special."""
    template = json.dumps(tokenizer.chat_template or "", ensure_ascii=False)  # several named templates are a dictionary

    def find() -> tuple[str, ...]:
        added = [str(token) for token in tokenizer.added_tokens_decoder.values() if not token.special]
        return tuple(token for token in added if len(token.strip()) > 1 and token in template)

    markers: tuple[str, ...] = _remembered(tokenizer, ("markers", template), find)
    return markers
