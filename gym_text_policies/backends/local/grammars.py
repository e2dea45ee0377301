"""What limits the tokens of an answer: JSON schemas as grammars over a model's tokens, and calls of a tool."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gym_text.errors import PolicyError, import_extra
from gym_text_policies.backends.call_format import CallFormat
from gym_text_policies.backends.local.tokens import template_tokens, text_tokens, tokens_around

_MARKS = 24
"""Tokens of an object's braces, quotation marks and keys, beside those of an enumerated value."""
_LEAST_MARKS = 40
_CHARACTERS_PER_TOKEN = 3
_REMEMBERED = 4096
"""Most values whose calls' tokens are kept."""


def call_tokens(tokenizer: Any, form: CallFormat, value: str) -> tuple[int, ...]:
    """Return the tokens of a call with a value, from the place where a call begins, up to what ends it."""
    return tuple(tokens_around(tokenizer, [value], lambda hide: form.text(hide(value)), before_word=False))


class Matcher:
    """What may come next in one answer, by llguidance's matcher. A text that spells a special token stays text.

    Args:
        matcher: An ``LLMatcher``. It tokenises forced text as the tokenizer does, special tokens included, and then refuses these.
        tokenizer: One of transformers; None if the grammar itself names special tokens, as that of a call does.
    """

    def __init__(self, matcher: Any, tokenizer: Any) -> None:
        self._matcher, self._tokenizer = matcher, tokenizer

    def forced(self) -> list[int]:
        """Return the next tokens for which there is one choice alone."""
        tokens = list(self._matcher.compute_ff_tokens())
        right = self._matcher.validate_tokens(tokens)
        if self._tokenizer and right < len(tokens):
            tokens[right:] = text_tokens(self._tokenizer, self._tokenizer.convert_ids_to_tokens(tokens[right]))
        return tokens

    def allowed(self, size: int) -> torch.Tensor:
        """Return for each of `size` tokens whether it may come next."""
        allowed, forced = torch.zeros(size, dtype=torch.bool), self.forced()
        if forced:
            allowed[forced[0]] = True
            return allowed
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed[: len(bits)] = torch.from_numpy(bits[:size].astype(bool))
        return allowed

    def take(self, token: int) -> None:
        """Go on behind a token."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise PolicyError(f"mode 'json' or 'tool': expected a token that the grammar allows; {self._matcher.get_error()}")


class Grammars:
    """Makes matchers, which say token by token what may come next, and reads calls.

    Args:
        tokenizer: One of transformers.
        count: Returns the number of tokens of a text.
    """

    def __init__(self, tokenizer: Any, count: Callable[[str], int]) -> None:
        self._tokenizer, self._count = tokenizer, count
        self._tokens: Any = None
        self._call_tokens = functools.lru_cache(_REMEMBERED)(functools.partial(call_tokens, tokenizer))

    def bounded(self, schema: Mapping[str, Any], max_tokens: int) -> str:
        """Return a schema as text. Its free strings get a greatest length, so that an object takes about `max_tokens` at most."""
        properties = dict(schema["properties"])
        free = [name for name, part in properties.items() if part.get("type") == "string" and "enum" not in part]
        longest = max((self._count(name) for part in properties.values() for name in part.get("enum", ())), default=0)
        for name in free:
            room = max_tokens - max(_LEAST_MARKS, longest + _MARKS)  # keys and action take the rest
            properties[name] = {"maxLength": max(1, _CHARACTERS_PER_TOKEN * room // len(free))} | properties[name]
        return json.dumps(dict(schema) | {"properties": properties})

    def of(self, schema: str) -> Matcher:
        """Return a new matcher of a JSON schema."""
        matchers = import_extra("llguidance", "local").LLMatcher
        grammar = matchers.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
        return self._matcher(grammar, names_special=False)

    def of_call(self, form: CallFormat, schema: str) -> Matcher:
        """Return a new matcher of the calls with valid arguments, whose JSON schema is given."""
        argument = json.loads(schema)["properties"][form.argument]
        if "enum" in argument:
            calls = (self._call_tokens(form, value) for value in argument["enum"])
            return self._matcher("start: " + " | ".join(" ".join(f"<[{token}]>" for token in tokens) for tokens in calls))
        before, behind = form.around
        # these characters are written alike as JSON and unchanged, and no marker begins with them
        parts = [*self._written(before), f'/[^<"\\\\\\x00-\\x1f]{{1,{argument["maxLength"]}}}/', *self._written(behind)]
        return self._matcher(f"start: {' '.join(parts)}")

    def called(self, form: CallFormat, schema: str, tokens: Sequence[int]) -> str | None:
        """Return the arguments of a generated call, as JSON; None if the tokens are no whole call."""
        values = json.loads(schema)["properties"][form.argument].get("enum")
        if values is not None:
            called = next((value for value in values if self._call_tokens(form, value) == tuple(tokens)), None)
        else:
            before, behind = form.around
            text = self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            inner = text.removeprefix(before).removesuffix(behind)
            called = inner if text == before + inner + behind else None
        return None if called is None else json.dumps({form.argument: called}, ensure_ascii=False)

    def call_end(self, form: CallFormat) -> int:
        """Return the token that ends a call."""
        return template_tokens(self._tokenizer, form.end)[-1]

    def _written(self, text: str) -> Iterator[str]:
        """Yield a text of the chat template as symbols of a grammar: its special tokens by their numbers."""
        special = {str(token): number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        pattern = "|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)"
        for part in filter(None, re.split(f"({pattern})", text)):
            yield f"<[{special[part]}]>" if part in special else json.dumps(part, ensure_ascii=False)

    def _matcher(self, grammar: str, *, names_special: bool = True) -> Matcher:
        if self._tokens is None:
            self._tokens = importlib.import_module("llguidance.hf").from_tokenizer(self._tokenizer)
        return Matcher(
            import_extra("llguidance", "local").LLMatcher(self._tokens, grammar), None if names_special else self._tokenizer
        )
