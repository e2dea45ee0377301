"""A model's thought in this process, token by token: where it begins and ends, and what closes one that does not end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.chat_format import THOUGHT_TOKENS, AnswerStart, ChatFormat
from gym_text_policies.backends.local.rendering import special_tokens
from gym_text_policies.backends.local.tokens import template_tokens
from gym_text_policies.records import Tokens

_MORE = 4
"""Tokens that are looked at beside those of a marker: a marker of n characters has at most n tokens."""
_FIRST = 64
"""Tokens among which the marker that opens a thought must be."""


@dataclass(frozen=True)
class Thought:
    """A thought that is closed."""

    text: str
    """Without the markers around it."""
    tokens: tuple[int, ...] = ()
    """What the model generated of it, with the markers that the model wrote."""
    closing: tuple[int, ...] = ()
    """What was written behind it in the model's place: the closing marker, or the space behind that marker."""
    cut: bool = False
    """Whether the model had not closed it."""


@dataclass(kw_only=True)
class PromptAndThought:
    """A request as tokens, with what stands between its chat and the answer."""

    chat: tuple[int, ...]
    """The tokens of the chat, up to where the answer begins, or the thought before it."""
    turns_dropped: int
    """See `Answer.turns_dropped`."""
    thought: Thought | None = None
    """None if the model has not thought."""
    log_probs: Sequence[float] = ()
    """The log-probability of each token that the model generated first, the thought's before others, if they were asked for."""
    opening: tuple[int, ...] = ()
    """What was written between the chat and an answer, as the model could have thought and did not."""

    @property
    def thought_tokens(self) -> int:
        """Number of tokens of the thought that the model generated."""
        return len(self.thought.tokens) if self.thought else 0

    @property
    def behind(self) -> tuple[int, ...]:
        """The tokens between the chat and the answer."""
        return (*self.thought.tokens, *self.thought.closing) if self.thought else self.opening

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens before the answer."""
        return (*self.chat, *self.behind)

    @property
    def read(self) -> int:
        """Number of the tokens before the answer that the model did not generate."""
        return len(self.prompt) - self.thought_tokens

    def said(self, *, tokens_cached: int, tokens_in: int = 0, tokens_out: int = 0, **fields: Any) -> Answer:
        """Return an answer: `tokens_in` of the choices alone, `tokens_out` behind the thought, other fields as of `Answer`."""
        return Answer(
            reasoning=self.thought.text if self.thought else None,
            thought_cut=self.thought is not None and self.thought.cut,
            tokens_reasoning=self.thought_tokens,
            tokens_in=self.read + tokens_in,
            tokens_cached=tokens_cached,
            tokens_out=self.thought_tokens + tokens_out,
            turns_dropped=self.turns_dropped,
            **fields,
        )

    def tokens(self, answers: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> dict[str, Tokens]:
        """Return the tokens of a text, or of each choice, with those of the thought before it, and all their log-probabilities."""
        drawn = self.log_probs[: self.thought_tokens]
        before = (*drawn, *[0.0] * (len(self.behind) - len(drawn)))
        written = tuple(range(len(drawn), len(before)))
        return {
            text: Tokens(self.chat, (*self.behind, *tokens), (*before, *log_probs), written)
            for text, (tokens, log_probs) in answers.items()
        }


def thinking_start(chats: ChatFormat) -> AnswerStart | None:
    """Return a place at which the model can think; None if the template has none."""
    with contextlib.suppress(UsageError):
        return next((answer_start for answer_start in map(chats.answer_start, (None, True)) if answer_start.thinks), None)
    return None


def with_budget(answer_start: AnswerStart, request: Request, window: int) -> tuple[AnswerStart, int | None]:
    """Return where the answer or the thought begins, and most tokens of the thought; None if the model does not think.

    A thought of no tokens is written in the model's place: as part of the prompt.

    Args:
        answer_start: Where the answer begins, or the thought before it.
        request: A request; by default its thought has at most half of the model's window.
        window: Most tokens that the model reads.

    Raises:
        UsageError: If the thought would take the whole window.
    """
    if not answer_start.thinks:
        return answer_start, None
    budget = min(THOUGHT_TOKENS, window // 2) if request.think_tokens is None else request.think_tokens
    if budget >= window:
        raise UsageError(f"think_tokens: expected fewer than the model's window of {window} tokens; got {budget}.")
    if budget == 0:
        answer_start = replace(answer_start, opening=answer_start.thought_open + answer_start.thought_close, thinks=False)
    return answer_start, budget


def ends_with_beginning(text: str, marker: str) -> bool:
    """Return whether a text ends with the beginning of a marker."""
    return any(text.endswith(marker[:size]) for size in range(1, len(marker)))


class ThoughtMarkers:
    """How one model writes thoughts at one place.

    Args:
        tokenizer: One of transformers.
        answer_start: Where the thought begins.
        stops: The tokens that end a turn.
    """

    def __init__(self, tokenizer: Any, answer_start: AnswerStart, stops: Collection[int]) -> None:
        self._tokenizer, self._stops, self._answer_start = tokenizer, stops, answer_start
        self.opened, self.closed = answer_start.thought_open.strip(), answer_start.thought_close.strip()
        answer = answer_start.opening.strip()
        # channels: an answer has a marker of its own, and whatever does not begin with that is a thought
        self._answer_open = "" if not self.opened or answer.startswith((self.opened, self.closed)) else answer

    def raw(self, tokens: Sequence[int]) -> str:
        """Return tokens as text, the special ones included."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text of the template."""
        return tuple(template_tokens(self._tokenizer, text)) if text else ()

    def ends(self, tokens: Sequence[int]) -> bool:
        """Return whether a thought ends with the last of the generated tokens, or they begin with none."""
        if tokens[-1] in self._stops:
            return True
        begins = self._begins(tokens)
        return begins is False or (begins is True and self._closes(tokens))

    def _begins(self, tokens: Sequence[int]) -> bool | None:
        """Return whether generated tokens begin with a thought; None if they may become the marker of a thought or an answer."""
        if not self.opened:
            return True
        text = self.raw(tokens[:_FIRST]).lstrip()
        if text.startswith(self.opened):
            return True
        if self.opened.startswith(text) or (self._answer_open.startswith(text) and text != self._answer_open):
            return None
        return bool(self._answer_open) and not text.startswith(self._answer_open)

    def _closes(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of these tokens completes the marker that closes a thought."""
        return self.closed[-1] in self.raw(tokens[-1:]) and self.closed in self.raw(tokens[-len(self.closed) - _MORE :])

    def thought(self, tokens: Sequence[int]) -> Thought | None:
        """Return the thought, with what closes it; None if the model began an answer.

        Args:
            tokens: What the model generated, up to where it `ends`.
        """
        stopped = bool(tokens) and tokens[-1] in self._stops
        said = list(tokens[:-1] if stopped else tokens)
        begins, answer_start = self._begins(said), self._answer_start
        if begins is False or (begins is None and stopped):
            return None
        if begins is None:
            return Thought("", (), self.ids(answer_start.thought_open + answer_start.thought_close), cut=True)
        text, closed = self.raw(said), bool(said) and not stopped and self._closes(said)
        if not closed or not answer_start.is_closed(text):
            # taken back: the beginning of a closing marker, and a token that is the marker's end and the answer's beginning
            while said and (self.closed in text or ends_with_beginning(text, self.closed)):
                said.pop()
                text = self.raw(said)
        inner = text.lstrip().removeprefix(self.opened)
        inner = inner.rpartition(self.closed)[0] if self.closed in inner else inner
        return Thought(self._plain(inner), tuple(said), self.ids(answer_start.closing(text)), cut=not closed)

    def answer(self, tokens: Sequence[int], text: str) -> tuple[str, bool]:
        """Return the answer in generated tokens, and whether all thoughts in it ended.

        It stands behind the last thought among these tokens. If that does not end, there is no answer.

        Args:
            tokens: What the model generated behind its first thought.
            text: The same as text, without special tokens.
        """
        raw = self.raw(tokens)
        if not any(marker and marker in raw for marker in (self.opened, self.closed)):
            return text, True
        behind = raw.rpartition(self.closed)[2]
        return ("", False) if self.opened and self.opened in behind else (self._plain(behind), True)

    def _plain(self, text: str) -> str:
        """Return a text without special tokens and without space around it."""
        special = sorted(special_tokens(self._tokenizer), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, special)) or "(?!)", "", text).strip()
