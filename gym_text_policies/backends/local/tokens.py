"""From messages to tokens, the same for play and for training; what a game says stays text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Any

from gym_text.errors import PolicyError
from gym_text_policies.records import Message

_DROPPED_TOGETHER = 8
"""Turns that go at once where a conversation is too long: if each step dropped one, each would read all the rest anew."""


def prompt_tokens(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens of a chat, up to where the model's answer begins.

    Roles are marked by the tokenizer's special tokens. Where a message spells one (a game says ``<|im_start|>``), it is encoded as
    the plain characters that it is: what a game says cannot begin or end a turn.

    Args:
        tokenizer: One of transformers with a chat template.
        messages: The chat.
    """
    marks = sorted(_special(tokenizer), key=len, reverse=True)
    spelt = re.compile("|".join(map(re.escape, marks)) or r"(?!)")
    if not any(spelt.search(message["content"]) for message in messages):
        tokens: list[int] = tokenizer(_rendered(tokenizer, messages), add_special_tokens=False)["input_ids"]
        return tokens
    # a stand-in for each mark that a message spells; in the rendered chat what is left of the marks is the template's
    sign = _unused("".join(message["content"] for message in messages))
    hidden = [
        {**message, "content": spelt.sub(lambda found: f"{sign}{marks.index(found[0])}{sign}", message["content"])}
        for message in messages
    ]
    parts = re.split(f"({spelt.pattern})", _rendered(tokenizer, hidden))
    tokens = []
    for place, part in enumerate(parts):
        if place % 2:
            tokens.append(tokenizer.convert_tokens_to_ids(part))
        elif part:
            tokens += text_tokens(tokenizer, re.sub(f"{sign}(\\d+){sign}", lambda found: marks[int(found[1])], part))
    return tokens


def text_tokens(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text that stands alone, such as an action's name; it has no special tokens."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return tokens


def fitting_tokens(tokenizer: Any, messages: Sequence[Message], room: int, name: str) -> tuple[list[int], int]:
    """Return the tokens of as much of a chat as there is room for, and how many of its turns had to go, the oldest first.

    The system message and the last question stay. A turn is a question with the answers to it.

    Args:
        tokenizer: One of transformers with a chat template.
        messages: The chat.
        room: Most tokens.
        name: The model's name, for the error.

    Raises:
        PolicyError: If there is no room for what has to stay.
    """
    tokens = prompt_tokens(tokenizer, messages)
    if len(tokens) <= room:
        return tokens, 0
    turns = [place for place, message in enumerate(messages) if message["role"] == "user"]

    def without(dropped: int) -> list[int]:
        return prompt_tokens(tokenizer, [*messages[: turns[0]], *messages[turns[dropped] :]])

    needed = bisect.bisect_left(range(len(turns)), True, key=lambda dropped: len(without(dropped)) <= room)
    if needed == len(turns):
        least = len(without(needed - 1)) if turns else len(tokens)
        raise PolicyError(
            f"{name}: expected a prompt of at most {room} tokens; got {least} without any earlier turn. "
            "Show fewer examples, or a shorter text."
        )
    together = -(-needed // _DROPPED_TOGETHER) * _DROPPED_TOGETHER
    dropped = max(needed, min(together, len(turns) - 3))
    return without(dropped), dropped


def _special(tokenizer: Any) -> set[str]:
    """Return the special tokens as texts."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return {*added, *map(str, tokenizer.all_special_tokens)}


def _rendered(tokenizer: Any, messages: Sequence[Message]) -> str:
    text: str = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    return text


def _unused(text: str) -> str:
    """Return a character for private use that is not in a text."""
    return next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
