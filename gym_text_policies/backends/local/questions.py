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
from gym_text_policies.backends.local.thinking import Thought
from gym_text_policies.records import Tokens


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
class Asked:
    """A question on its way to an answer."""

    question: Question
    cached: int = 0
    """Number of the prompt's tokens that were remembered."""
    generation: Generation | None = None
    """What generated the thought; None if the model does not think."""
    thought: Thought | None = None
    """None if the model has not thought."""
    opening: tuple[int, ...] = ()
    """What was written between the prompt and an answer, as the model could have thought and did not."""
    begun: tuple[int, ...] = ()
    """The tokens of an answer that the model began where it could have thought."""

    @property
    def thought_tokens(self) -> int:
        """Number of tokens of the thought that the model generated."""
        return len(self.thought.tokens) if self.thought else 0

    @property
    def behind(self) -> tuple[int, ...]:
        """The tokens between the prompt and the answer."""
        return (*self.thought.tokens, *self.thought.closing) if self.thought else self.opening

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens before the answer."""
        return (*self.question.prompt, *self.behind)

    @property
    def prefix(self) -> Prefix | None:
        """What the model read while it thought; None if it read nothing, or other tokens than those before and in the answer."""
        if self.generation is None:
            return None
        prefix, tokens = self.generation.prefix, (*self.prompt, *self.begun)
        return prefix if prefix.common(tokens[:-1]) == len(prefix.tokens) else None

    def answer(self, *, tokens_in: int = 0, tokens_out: int = 0, **fields: Any) -> Answer:
        """Return an answer.

        Args:
            tokens_in: Number of tokens of the choices.
            tokens_out: Number of tokens that were generated behind the thought.
            fields: The other fields of the answer.
        """
        return Answer(
            reasoning=self.thought.text if self.thought else None,
            thought_cut=self.thought is not None and self.thought.cut,
            tokens_reasoning=self.thought_tokens,
            tokens_in=len(self.prompt) - self.thought_tokens + tokens_in,
            tokens_cached=self.cached,
            tokens_out=self.thought_tokens + tokens_out,
            turns_dropped=self.question.turns_dropped,
            **fields,
        )

    def tokens(self, answers: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> dict[str, Tokens] | None:
        """Return the tokens of a text, or of each choice, if the request asks for tokens.

        Args:
            answers: For each text the tokens of the answer, and their log-probabilities.
        """
        if not self.question.request.tokens:
            return None
        drawn = self.generation.sampler.log_probs[: self.thought_tokens] if self.generation else []
        before = [*drawn, *[0.0] * (len(self.behind) - len(drawn))]
        written = tuple(range(len(drawn), len(before)))
        return {
            text: Tokens(self.question.prompt, (*self.behind, *tokens), (*before, *log_probs), written)
            for text, (tokens, log_probs) in answers.items()
        }
