"""`rendered`: a chat as text, as a tokenizer's chat template writes it. Templates run in transformers' sandbox."""

from __future__ import annotations

import functools
import json
import re
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from jinja2 import TemplateError, meta, nodes

from gym_text.errors import PolicyError, UsageError, import_extra, unknown_choice
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


_Found = TypeVar("_Found")


class _Chats(NamedTuple):
    """How a template wants its chats."""

    parts: bool
    """Whether a message's content has to be a list of parts, as for models that see pictures."""
    folds: bool
    """Whether a system message has to become part of the first question, as the template refuses it or leaves it out."""


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


def format_of(tokenizer: Any, arguments: Mapping[str, Any] | None = None, end_of_turn: str = "") -> ChatFormat:
    """Return what the chat template says of answers; it is asked once for each tokenizer.

    Args:
        tokenizer: One of transformers with a chat template.
        arguments: The user's template arguments; None: those of `set_format`.
        end_of_turn: The text of the token that ends an answer; empty: that of `set_format`, or else what the template writes.
    """
    settled = _settings.get(tokenizer, ({}, ""))
    given, end = dict(settled[0] if arguments is None else arguments), end_of_turn or settled[1]
    source = json.dumps(tokenizer.chat_template, ensure_ascii=False)
    key = source, json.dumps(given, sort_keys=True), end
    return _remembered(tokenizer, key, lambda: ChatFormat(functools.partial(_tried, weakref.ref(tokenizer)), source, given, end))


def calls_of(tokenizer: Any, arguments: Mapping[str, Any], think: Think = None) -> CallFormat:
    """Return what the chat template says of calls of a tool; it is asked once for each tool.

    Args:
        tokenizer: One of transformers with a chat template.
        arguments: Template arguments, with the tool: see `with_tool`.
        think: Whether the model thinks before it calls.
    """
    chats = format_of(tokenizer, arguments)
    return _remembered(tokenizer, (id(chats), think), lambda: CallFormat(chats, think))  # `chats` is remembered, too


def set_format(tokenizer: Any, arguments: Mapping[str, Any], end_of_turn: str = "") -> None:
    """Set the template arguments and the end of turn that `format_of` takes for a tokenizer, if it is not told others."""
    _settings[tokenizer] = dict(arguments), end_of_turn


def check_arguments(tokenizer: Any, arguments: Mapping[str, Any]) -> None:
    """Check that a chat template names its arguments.

    Raises:
        UsageError: If there is an argument that the template does not name.
    """
    module = import_extra("transformers.utils.chat_template_utils", "local")
    template = tokenizer.get_chat_template()
    syntax = module._compile_jinja_template(template).environment.parse(template)
    own = {name.name for name in syntax.find_all(nodes.Name) if name.ctx != "load"}
    known = (meta.find_undeclared_variables(syntax) - own | set(_OPTIONAL.findall(template))) - _OF_CHATS
    for name in arguments:
        if not known:
            raise UsageError(f"template_kwargs: expected none, as this model's chat template takes no arguments; got {name!r}.")
        if name not in known:
            raise unknown_choice("template_kwargs", name, sorted(known))


_OF_CHATS = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now", "bos_token", "eos_token"}
"""What templates take that is no setting of the user."""
_OPTIONAL = re.compile(r"(?<![.\w])(\w+)\s*(?:\bis\s+(?:not\s+)?(?:un)?defined\b|\|\s*default\b)")
"""A variable that a template sets itself where it is not given."""
_settings: WeakKeyDictionary[Any, tuple[dict[str, Any], str]] = WeakKeyDictionary()
_known: WeakKeyDictionary[Any, dict[Hashable, Any]] = WeakKeyDictionary()


def _remembered(tokenizer: Any, key: Hashable, find: Callable[[], _Found]) -> _Found:
    """Return what `find` returns; it is called once for each tokenizer and key, and its result must not refer to the tokenizer."""
    known = _known.setdefault(tokenizer, {})
    if key not in known:
        known[key] = find()
    found: _Found = known[key]
    return found


def _tried(tokenizer: weakref.ref[Any], messages: Sequence[Message], generation: bool, arguments: Mapping[str, Any]) -> str | None:
    """Return a chat as text; None if the template refuses it."""
    alive = tokenizer()
    if alive is None:
        raise ReferenceError("ChatFormat: expected that its tokenizer is still in use; it is not. Keep the tokenizer.")
    try:
        return _applied(alive, messages, arguments, generation=generation)
    except _OF_TEMPLATES:
        return None


def _applied(tokenizer: Any, messages: Sequence[Message], arguments: Mapping[str, Any], *, generation: bool = True) -> str:
    chats = _chats(tokenizer)
    if chats.folds and messages and messages[0]["role"] == "system":
        messages = _folded(messages)
    return _written(tokenizer, messages, arguments, parts=chats.parts, generation=generation)


def _written(
    tokenizer: Any, messages: Sequence[Message], arguments: Mapping[str, Any], *, parts: bool, generation: bool = True
) -> str:
    chat: list[dict[str, Any]] = []
    for message in messages:
        thought = dict.fromkeys(_THOUGHTS, message["reasoning"]) if "reasoning" in message else {}
        content = {"content": [{"type": "text", "text": message["content"]}]} if parts else {}
        calls = _calls(message, arguments) if "call" in message or message["role"] == "tool" else {}
        chat.append({key: value for key, value in message.items() if key != "call"} | thought | content | calls)
    text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generation, **arguments)
    most = _MOST_ADDED + 2 * sum(len(text) for message in messages for text in message.values())
    if len(text) > most:
        raise ValueError(f"expected at most {most:,} characters for this chat; got {len(text):,}")
    return text


def _calls(message: Message, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a message that are a call of the tool, or that name the tool whose result the message is."""
    tools = arguments.get("tools")
    if not tools:
        raise ValueError("expected the description of the tool that the chat calls; got a chat with calls alone")
    return call_parts(message, tools[0]["function"]["name"])


def _chats(tokenizer: Any) -> _Chats:
    """Return how the template wants its chats; it is tried once for each template."""

    def find() -> _Chats:
        question = PROBE[1:2]
        parts = not _writes(tokenizer, question, parts=False) and _writes(tokenizer, question, parts=True)
        # Gemma 2 refuses the role of the system, Mistral a chat that does not begin with a question
        return _Chats(parts, folds=not _writes(tokenizer, PROBE[:2], parts=parts))

    return _remembered(tokenizer, ("chats", str(tokenizer.chat_template)), find)


def _writes(tokenizer: Any, messages: Sequence[Message], *, parts: bool) -> bool:
    """Return whether the template writes the texts of a chat."""
    try:
        text = _written(tokenizer, messages, {}, parts=parts)
    except _OF_TEMPLATES:
        return False
    return all(message["content"] in text for message in messages)


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

    return _remembered(tokenizer, ("markers", template), find)
