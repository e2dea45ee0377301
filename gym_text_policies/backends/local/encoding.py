"""`encode`: the tokens of a text that a chat template writes. Of a chat that grows only what is new is tokenised.

A fast tokenizer of transformers cuts a text at its special tokens before it does anything else. So the tokens in front of a special
token do not depend on what stands behind it. Without this a conversation of n turns would be tokenised n times.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

_MOST_CHARACTERS = 4_000_000
"""Most characters of the starts of texts that are kept for a tokenizer. Their tokens take some 40 MB."""


class _Start(NamedTuple):
    """The start of a text that was tokenised, with a special token at its end."""

    text: str
    size: int
    """Number of characters before the special token."""
    tokens: list[int]
    """The tokens before it."""


class _Starts:
    """Starts of texts that a tokenizer has read, those that were used last at the end."""

    def __init__(self, added: dict[int, Any]) -> None:
        self.added = added
        texts = [str(token) for token in added.values()]
        self.markers = {
            number: str(token)
            for number, token in added.items()
            if token.special and not (token.normalized or token.single_word or any(str(token) in text[1:] for text in texts))
        }
        """Special tokens that are recognised wherever their text is. One that is an inner part of another is not."""
        self._known: dict[str, _Start] = {}

    def longest(self, text: str) -> _Start:
        """Return the longest known start of a text."""
        starts = [start for start in tuple(self._known.values()) if text.startswith(start.text)]
        found = max(starts, key=lambda start: start.size, default=_Start("", 0, []))
        if self._known.pop(found.text, None):
            self._known[found.text] = found
        return found

    def add(self, start: _Start) -> None:
        """Remember a start. If all together are too long, forget those that have not been used for the longest time."""
        self._known[start.text] = start
        while sum(map(len, tuple(self._known))) > _MOST_CHARACTERS:
            self._known.pop(next(iter(self._known)), None)


_read: WeakKeyDictionary[Any, _Starts] = WeakKeyDictionary()


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text. Special tokens that it spells are recognised.

    Args:
        tokenizer: One of transformers, or one that is called alike.
        text: The text.
    """

    def read(text: str) -> list[int]:
        tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokens

    if not hasattr(tokenizer, "backend_tokenizer"):
        return read(text)
    added = tokenizer.added_tokens_decoder
    starts = _read.get(tokenizer)
    if starts is None or starts.added != added:  # a tokenizer to which tokens were added begins anew
        starts = _read[tokenizer] = _Starts(added)
    start = starts.longest(text)
    behind = text[start.size :]
    tokens = [*start.tokens, *(later := read(behind))]
    if place := next((place for place in range(len(later) - 1, 0, -1) if later[place] in starts.markers), 0):
        marker = starts.markers[later[place]]
        cut = behind.rfind(marker)
        if cut > 0 and read(behind[cut:]) == later[place:]:
            size = start.size + cut
            starts.add(_Start(text[: size + len(marker)], size, tokens[: len(start.tokens) + place]))
    return tokens
