"""A request as tokens, and what the model has thought about it."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.call_format import CallFormat, with_tool
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.grammars import Grammars
from gym_text_policies.backends.local.prefixes import Prefix
from gym_text_policies.backends.local.rendering import calls_of, format_of
from gym_text_policies.backends.local.sampling import Sampler
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
    candidates: tuple[tuple[int, ...], ...] = field(compare=False)
    """The tokens of each choice, without an end of turn."""


@dataclass
class PendingAnswer(PromptAndThought):
    """A question on its way to an answer."""

    question: Question
    sampler: Sampler
    """Chooses the tokens of the thought and the answer."""
    cached: int = 0
    """Number of the prompt's tokens that were remembered."""
    thinking: Prefix | None = None
    """What the model read while it thought; None if it does not think."""
    begun: tuple[int, ...] = ()
    """The tokens of an answer that the model began where it could have thought."""

    @classmethod
    def of(cls, question: Question) -> PendingAnswer:
        """Return a question to which there is no answer yet. A thought of no tokens is a part of the prompt."""
        thought = Thought("", cut=True) if question.request.think_tokens == 0 else None
        return cls(question, Sampler(question.request), chat=question.prompt, turns_dropped=question.turns_dropped, thought=thought)

    @property
    def prefix(self) -> Prefix | None:
        """What the model read while it thought; None if it read nothing, or other tokens than those before and in the answer."""
        common = self.thinking.common((*self.prompt, *self.begun)[:-1]) if self.thinking else -1
        return self.thinking if self.thinking and common == len(self.thinking.tokens) else None

    def answer(self, answers: Mapping[str, tuple[Sequence[int], Sequence[float]]], **fields: Any) -> Answer:
        """Return an answer: `answers` has the tokens and log-probabilities of the text or each choice, for the rest see `said`."""
        tokens = self.tokens(answers) if self.question.request.tokens else None
        return self.said(tokens_cached=self.cached, tokens=tokens, **fields)


class Questions:
    """Turns the requests to one model into tokens.

    Args:
        tokenizer: One of transformers with a chat template.
        window: Most tokens that the model reads.
        name: The model's name, for errors.
        ends: ``generation_config.eos_token_id`` of the model.
    """

    def __init__(self, tokenizer: Any, window: int, name: str, ends: int | Sequence[int] | None) -> None:
        self._tokenizer, self._window, self._name, self._ends = tokenizer, window, name, ends
        self.end = end_of_turn(tokenizer)
        """The token that ends an answer."""
        self.stops = stops(tokenizer, ends)
        """The tokens at which the model has stopped answering."""
        # no function that this object keeps may know it: the model would not be released where it has to be
        self.tokens = tokens = functools.lru_cache(_REMEMBERED)(lambda text: tuple(text_tokens(tokenizer, text)))
        """Returns the tokens of a text by itself."""
        self.grammars = Grammars(tokenizer, lambda text: len(tokens(text)))

    def of(self, request: Request) -> Question:
        """Return a request as a question.

        Raises:
            PolicyError: If the prompt is longer than the window even without its earlier turns.
        """
        calls = None
        if request.tool:
            calls = calls_of(self._tokenizer, with_tool(format_of(self._tokenizer).arguments, request.tool), request.think)
        answer_start = calls.answer_start if calls else format_of(self._tokenizer).answer_start(request.think)
        answer_start, budget = with_budget(answer_start, request, self._window)
        candidates = tuple(self.tokens(choice) for choice in request.choices or ())
        room = 1 + max(map(len, candidates)) if candidates else request.max_tokens
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
        return Question(tuple(prompt), turns_dropped, schema, request, calls, answer_start, candidates)

    def end_behind(self, request: Request) -> int | None:
        """Return the token that ends each choice of a request; None if only the choice's text counts."""
        return self.end if request.end_of_turn else None

    def markers(self, answer_start: AnswerStart) -> ThoughtMarkers:
        """Return how the model writes thoughts at a place."""
        return ThoughtMarkers(self._tokenizer, answer_start, stops(self._tokenizer, self._ends, answer_start))
