"""A request as tokens, and what the model has thought about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.call_format import CallFormat
from gym_text_policies.backends.chat_format import Place
from gym_text_policies.backends.local.decoding import Generation
from gym_text_policies.backends.local.prefixes import Prefix
from gym_text_policies.backends.local.thinking import BehindThought, Thought


@dataclass(frozen=True)
class Question:
    """A request as tokens. Equal questions have equal answers."""

    prompt: tuple[int, ...]
    turns_dropped: int
    schema: str | None
    request: Request
    """The request without its messages, schema, tool and episode. `prompt`, `schema` and `calls` replace the first three, and no
    answer depends on the episode."""
    calls: CallFormat | None
    """How a call of the request's tool is written; None if it has none."""
    place: Place = field(compare=False)
    """Where the prompt ends. `prompt` and the request's `think` determine it."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The candidates; empty if the request asks for a text."""
        return self.request.choices or ()


@dataclass
class Asked(BehindThought):
    """A question on its way to an answer."""

    question: Question
    cached: int = 0
    """Number of the prompt's tokens that were remembered."""
    generation: Generation | None = None
    """What generated the thought; None if the model does not think."""
    begun: tuple[int, ...] = ()
    """The tokens of an answer that the model began where it could have thought."""

    @classmethod
    def of(cls, question: Question) -> Asked:
        """Return a question to which there is no answer yet. A thought of no tokens is a part of the prompt."""
        thought = Thought("", cut=True) if question.request.think_tokens == 0 else None
        return cls(question, chat=question.prompt, turns_dropped=question.turns_dropped, thought=thought)

    @property
    def prefix(self) -> Prefix | None:
        """What the model read while it thought; None if it read nothing, or other tokens than those before and in the answer."""
        if self.generation is None:
            return None
        prefix, tokens = self.generation.prefix, (*self.prompt, *self.begun)
        return prefix if prefix.common(tokens[:-1]) == len(prefix.tokens) else None

    def answer(
        self,
        answers: Mapping[str, tuple[Sequence[int], Sequence[float]]],
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        **fields: Any,
    ) -> Answer:
        """Return an answer.

        Args:
            answers: For the text, or each choice, its tokens and their log-probabilities.
            tokens_in: Number of tokens of the choices.
            tokens_out: Number of tokens that were generated behind the thought.
            fields: The other fields of the answer.
        """
        tokens = self.tokens(answers) if self.question.request.tokens else None
        return self.said(tokens_cached=self.cached, tokens_in=tokens_in, tokens_out=tokens_out, tokens=tokens, **fields)
