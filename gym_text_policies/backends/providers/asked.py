"""`Asked`: a request as tokens, on its way to an answer from a server that takes tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.chat_format import Place
from gym_text_policies.backends.local.thinking import Thought
from gym_text_policies.backends.providers.paths import Writing
from gym_text_policies.records import Tokens


@dataclass
class Asked:
    """A request as tokens, with the thought of the model, if it thinks."""

    place: Place
    """Where the answer begins, or the thought before it."""
    question: tuple[int, ...]
    """The tokens of the chat, up to that place."""
    paths: list[list[int]]
    """The tokens of each choice, with an end of turn."""
    turns_dropped: int
    thought: Thought | None = None
    """None if the model has not thought."""
    log_probs: Sequence[float] = ()
    """The log-probability of each generated token of the thought, if they were asked for."""
    opening: tuple[int, ...] = ()
    """What was written between the prompt and an answer, as the model could have thought and did not."""
    begun: Writing = field(default_factory=lambda: Writing("", [], [], 0))
    """An answer that the model began where it could have thought."""
    computed: int | None = 0
    """Number of tokens that the server computed for the thought; None if it does not say."""

    @property
    def behind(self) -> tuple[int, ...]:
        """The tokens between the chat and the answer."""
        return (*self.thought.tokens, *self.thought.closing) if self.thought else self.opening

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens before the answer."""
        return (*self.question, *self.behind)

    def answer(self, *, computed: int | None, tokens_in: int = 0, tokens_out: int = 0, **fields: Any) -> Answer:
        """Return an answer.

        Args:
            computed: Number of tokens that the server computed for the answer; None if it does not say.
            tokens_in: Number of tokens of the choices.
            tokens_out: Number of tokens that were generated behind the thought.
            fields: The other fields of the answer.
        """
        thought = self.thought or Thought("")
        tokens_in += len(self.prompt) - len(thought.tokens)
        known = 0 if computed is None or self.computed is None else max(0, tokens_in - self.computed - computed)
        return Answer(
            reasoning=thought.text if self.thought else None,
            thought_cut=thought.cut,
            tokens_reasoning=len(thought.tokens),
            tokens_in=tokens_in,
            tokens_cached=known,
            tokens_out=len(thought.tokens) + tokens_out,
            turns_dropped=self.turns_dropped,
            **fields,
        )

    def tokens(self, answers: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> dict[str, Tokens]:
        """Return the tokens of a text, or of each choice, with those of the thought before it.

        Args:
            answers: For each text the tokens of the answer, and their log-probabilities.
        """
        drawn = list(self.log_probs[: len(self.thought.tokens)]) if self.thought else []
        before = [*drawn, *[0.0] * (len(self.behind) - len(drawn))]
        written = tuple(range(len(drawn), len(before)))
        return {
            text: Tokens(self.question, (*self.behind, *tokens), (*before, *log_probs), written)
            for text, (tokens, log_probs) in answers.items()
        }
