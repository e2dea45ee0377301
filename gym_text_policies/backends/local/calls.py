"""Calls of a tool by a model in this process: which tokens a call can have, and what was called."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.call_format import CallFormat, with_tool
from gym_text_policies.backends.local.grammars import Grammars
from gym_text_policies.backends.local.rendering import calls_of, format_of
from gym_text_policies.backends.local.tokens import template_tokens, tokens_around

_REMEMBERED = 4096
"""Most values whose calls' tokens are kept."""


def call_tokens(tokenizer: Any, form: CallFormat, value: str) -> tuple[int, ...]:
    """Return the tokens of a call with a value, from the place where a call begins, up to what ends it.

    Args:
        tokenizer: One of transformers with a chat template.
        form: How a call is written.
        value: The argument.
    """
    return tuple(tokens_around(tokenizer, [value], lambda hide: form.text(hide(value)), before_word=False))


class Calls:
    """Makes what limits the tokens of a call, and reads calls.

    Args:
        tokenizer: One of transformers with a chat template.
        grammars: Makes the matchers of free texts.
    """

    def __init__(self, tokenizer: Any, grammars: Grammars) -> None:
        self._tokenizer, self._grammars = tokenizer, grammars
        self._tokens: Callable[[CallFormat, str], tuple[int, ...]] = functools.lru_cache(_REMEMBERED)(
            functools.partial(call_tokens, tokenizer)
        )

    def form(self, request: Request) -> CallFormat:
        """Return what the chat template says of calls of a request's tool.

        Raises:
            UsageError: If the template has no tools.
        """
        assert request.tool is not None
        arguments = with_tool(format_of(self._tokenizer).arguments, request.tool)
        return calls_of(self._tokenizer, arguments, request.think)

    def matcher(self, form: CallFormat, schema: str) -> Any:
        """Return what allows the calls with valid arguments.

        Args:
            form: How a call is written.
            schema: The JSON schema of the arguments.
        """
        argument = json.loads(schema)["properties"][form.argument]
        if "enum" in argument:
            return self._grammars.of_sequences([self._tokens(form, value) for value in argument["enum"]])
        before, behind = form.around
        return self._grammars.of_text(before, behind, argument["maxLength"], escaped=form.is_json)

    def end(self, form: CallFormat) -> int:
        """Return the token that ends a call."""
        return template_tokens(self._tokenizer, form.end)[-1]

    def arguments(self, form: CallFormat, schema: str, tokens: Sequence[int]) -> str | None:
        """Return the arguments of a generated call, as JSON; None if the tokens are no whole call."""
        values = json.loads(schema)["properties"][form.argument].get("enum")
        if values is not None:
            called = next((value for value in values if self._tokens(form, value) == tuple(tokens)), None)
        else:
            before, behind = form.around
            text = self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            inner = text.removeprefix(before).removesuffix(behind)
            whole = text == before + inner + behind
            called = (json.loads(f'"{inner}"') if form.is_json else inner) if whole else None
        return None if called is None else json.dumps({form.argument: called}, ensure_ascii=False)
