"""`Grammars`: JSON schemas as grammars over a model's tokens."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gym_text.errors import import_extra

_MARKS = 24
"""Tokens of an object's braces, quotation marks and keys, beside those of an enumerated value."""
_LEAST_MARKS = 40
_CHARACTERS_PER_TOKEN = 3


class Grammars:
    """Makes llguidance's matchers, which say token by token what may come next.

    Args:
        tokenizer: One of transformers.
        count: Returns the number of tokens of a text.
    """

    def __init__(self, tokenizer: Any, count: Callable[[str], int]) -> None:
        self._tokenizer, self._count = tokenizer, count
        self._tokens: Any = None

    def bounded(self, schema: Mapping[str, Any], max_tokens: int) -> str:
        """Return a schema as text. Its free strings get a greatest length, so that an object takes about `max_tokens` at most."""
        properties = dict(schema["properties"])
        free = [name for name, part in properties.items() if part.get("type") == "string" and "enum" not in part]
        longest = max((self._count(name) for part in properties.values() for name in part.get("enum", ())), default=0)
        for name in free:
            room = max_tokens - max(_LEAST_MARKS, longest + _MARKS)  # keys and action take the rest
            properties[name] = {"maxLength": max(1, _CHARACTERS_PER_TOKEN * room // len(free))} | properties[name]
        return json.dumps(dict(schema) | {"properties": properties})

    def of(self, schema: str) -> Any:
        """Return a new matcher of a JSON schema."""
        matchers = import_extra("llguidance", "local").LLMatcher
        return self._matcher(matchers.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False}))

    def of_sequences(self, sequences: Iterable[Sequence[int]]) -> Any:
        """Return a new matcher of one of several sequences of tokens."""
        return self._matcher("start: " + " | ".join(" ".join(f"<[{token}]>" for token in tokens) for tokens in sequences))

    def of_text(self, before: str, behind: str, longest: int, *, escaped: bool) -> Any:
        """Return a new matcher of a text of the user's between two texts of the chat template, whose markers are recognised.

        Args:
            before: The text before it.
            behind: The text behind it.
            longest: Most characters of the text.
            escaped: Whether the text is written as JSON writes it. Else it has no ``<`` and no line break.
        """
        character = r'([^"\\\x00-\x1f]|\\["\\\/bfnrt])' if escaped else r"[^<\n]"
        parts = [*self._written(before), f"/{character}{{1,{longest}}}/", *self._written(behind)]
        return self._matcher(f"start: {' '.join(parts)}")

    def _written(self, text: str) -> Iterator[str]:
        """Yield a text of the chat template as symbols of a grammar: its special tokens by their numbers."""
        special = {str(token): number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        pattern = "|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)"
        for part in filter(None, re.split(f"({pattern})", text)):
            yield f"<[{special[part]}]>" if part in special else json.dumps(part, ensure_ascii=False)

    def _matcher(self, grammar: str) -> Any:
        if self._tokens is None:
            self._tokens = importlib.import_module("llguidance.hf").from_tokenizer(self._tokenizer)
        return import_extra("llguidance", "local").LLMatcher(self._tokens, grammar)
