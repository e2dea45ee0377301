"""`Asked`: a request as tokens, on its way to an answer from a server that takes tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.chat_format import Place
from gym_text_policies.backends.local.thinking import BehindThought
from gym_text_policies.backends.providers.paths import Writing


@dataclass
class Asked(BehindThought):
    """A request as tokens, with the thought of the model, if it thinks."""

    place: Place
    """Where the answer begins, or the thought before it."""
    paths: list[list[int]]
    """The tokens of each choice, with an end of turn."""
    begun: Writing = field(default_factory=lambda: Writing("", [], [], 0))
    """An answer that the model began where it could have thought."""
    computed: int | None = 0
    """Number of tokens that the server computed for the thought; None if it does not say."""

    def answer(self, *, computed: int | None, tokens_in: int = 0, tokens_out: int = 0, **fields: Any) -> Answer:
        """Return an answer.

        Args:
            computed: Number of tokens that the server computed for the answer; None if it does not say.
            tokens_in: Number of tokens of the choices.
            tokens_out: Number of tokens that were generated behind the thought.
            fields: The other fields of the answer.
        """
        unknown = computed is None or self.computed is None
        known = 0 if unknown else max(0, self.read + tokens_in - (self.computed or 0) - (computed or 0))
        return self.said(tokens_cached=known, tokens_in=tokens_in, tokens_out=tokens_out, **fields)
