"""A request as tokens, and what the model has thought about it."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.call_format import CallFormat
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.calls import Calls
from gym_text_policies.backends.local.decoding import Generation
from gym_text_policies.backends.local.grammars import Grammars
from gym_text_policies.backends.local.prefixes import Prefix
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.thinking import PromptAndThought, Thought, ThoughtMarkers, with_budget
from gym_text_policies.backends.local.tokens import end_of_turn, fitting_tokens, stops, text_tokens

_REMEMBERED = 4096
"""Most texts whose tokens are kept."""


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
    answer_start: AnswerStart = field(compare=False)
    """Where the prompt ends. `prompt` and the request's `think` determine it."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The candidates; empty if the request asks for a text."""
        return self.request.choices or ()


@dataclass
class PendingAnswer(PromptAndThought):
    """A question on its way to an answer."""

    question: Question
    cached: int = 0
    """Number of the prompt's tokens that were remembered."""
    generation: Generation | None = None
    """What generated the thought; None if the model does not think."""
    begun: tuple[int, ...] = ()
    """The tokens of an answer that the model began where it could have thought."""

    @classmethod
    def of(cls, question: Question) -> PendingAnswer:
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


class Questions:
    """Turns the requests to one model into tokens.

    Args:
        tokenizer: One of transformers with a chat template.
        window: Most tokens that the model reads.
        name: The model's name, for errors.
        ends: ``generation_config.eos_token_id`` of the model.
    """

    def __init__(self, tokenizer: Any, window: int, name: str, ends: int | Sequence[int] | None) -> None:
        self._tokenizer, self._window, self._name = tokenizer, window, name
        self.end = end_of_turn(tokenizer)
        """The token that ends an answer."""
        self.stops = stops(tokenizer, ends)
        """The tokens at which the model has stopped answering."""
        # no function that this object keeps may know it: the model would not be released where it has to be
        self.tokens = tokens = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        """Returns the tokens of a text by itself."""
        self._markers_of = functools.lru_cache(
            lambda answer_start: ThoughtMarkers(tokenizer, answer_start, stops(tokenizer, ends, answer_start))
        )
        self.grammars = Grammars(tokenizer, lambda text: len(tokens(text)))
        self.calls = Calls(tokenizer, self.grammars)

    def of(self, request: Request) -> Question:
        """Return a request as a question.

        Raises:
            PolicyError: If the prompt is longer than the window even without its earlier turns.
        """
        calls = self.calls.form(request) if request.tool else None
        answer_start = calls.answer_start if calls else format_of(self._tokenizer).answer_start(request.think)
        answer_start, budget = with_budget(answer_start, request, self._window)
        room = 1 + max(len(self.tokens(choice)) for choice in request.choices) if request.choices else request.max_tokens
        if budget:
            room += budget + len(self.markers(answer_start).ids(answer_start.thought_open + answer_start.thought_close))
        prompt, turns_dropped = fitting_tokens(
            self._tokenizer, request.messages, self._window - room, self._name, read=request.read, answer_start=answer_start
        )
        schema = self.grammars.bounded(request.schema, request.max_tokens) if request.schema else None
        if request.choices is not None and not answer_start.thinks:  # nothing is drawn
            request = replace(request, temperature=0.0, seed=None, top_p=None, top_k=None, min_p=None)
        seed = secrets.randbits(31) if request.temperature and request.seed is None else request.seed
        request = replace(request, messages=(), schema=None, tool=None, episode="", seed=seed, read=(), think_tokens=budget)
        return Question(tuple(prompt), turns_dropped, schema, request, calls, answer_start)

    def markers(self, answer_start: AnswerStart) -> ThoughtMarkers:
        """Return how the model writes thoughts at a place."""
        return self._markers_of(replace(answer_start, arguments=()))  # arguments of a template may have no hash
