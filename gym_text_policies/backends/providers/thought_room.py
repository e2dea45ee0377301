"""`Thinking`: answers of a server whose model may think before it answers, though nothing but its answers shows that it does.

On a server of chats a thought and an answer share one limit of tokens. A request has room for a thought if the user asks for one,
or if the model has been seen to think: if an answer that was cut shows a thought, or contains nothing. After the first answer that
was cut without such a sign the model is once asked with some room. That belongs to the run, as the check before it does, and to no
answer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from gym_text.errors import PolicyError, UsageError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.chat_format import THOUGHT_TOKENS, Think

_logger = logging.getLogger(__name__)
_TRIED = 1_024
"""Tokens with which a model is asked to find out whether it thinks."""
_THOUGHT_BEFORE = "{}\n\nYou have thought about this before:\n{}\n\nAnswer now, in the form that is asked for, and think no more."


class Thinking:
    """Asks a server so that its model has room for thoughts, and asks for the answer when a thought has reached its limit.

    Args:
        ask: Sends one request; with ``once``, it is not sent again if it fails.
        is_limited: Whether a thought about a request is limited without `think_tokens`, by the model's window.
    """

    def __init__(self, ask: Callable[..., Answer], is_limited: Callable[[Request], bool] = lambda _: False) -> None:
        self._ask, self._is_limited = ask, is_limited
        self._thinks: dict[Think, bool] = {}  # by the request's setting, if it is known
        self._unmarked: set[Think] = set()  # settings with which thoughts that were cut stand in the text without a marker
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, with the tokens and the price of all calls that it took."""
        room = self._room(request)
        answer = self._ask(replace(request, think_tokens=room))
        if not _is_cut(request, answer):
            return answer
        whole = self._find_out(request, answer)
        if not self._thinks[request.think]:
            return answer
        if room is None:
            room = _limit(request)
            enough = whole is not None and room >= _TRIED and not _is_cut(request, whole)
            answer = _after(answer, whole if whole and enough else self._ask(replace(request, think_tokens=room)))
        answer = self._marked(request, answer)
        return self._closed(request, answer) if request.think is not False and _is_in_thought(request, answer, room) else answer

    def _room(self, request: Request) -> int | None:
        """Return the limit of tokens for a thought; None if no room for one is known to be needed."""
        if self._is_limited(request):
            return request.think_tokens
        asked_for = bool(request.think) or (request.think is None and request.think_tokens is not None)
        return _limit(request) if asked_for or self._thinks.get(request.think) else None

    def _find_out(self, request: Request, cut: Answer) -> Answer | None:
        """Find out by an answer that was cut whether the model thinks, if that is not known.

        Returns:
            The answer to the same request with room for a thought, if it was needed to find out and shows one.
        """
        if _shows_thought(cut):
            self._thinks[request.think] = True
        with self._lock:  # several threads may meet their first cut answers at once
            if request.think in self._thinks:
                return None
            whole = None
            if not request.think:
                with contextlib.suppress(PolicyError):  # a model that talks on may take too long
                    whole = self._ask(replace(request, think_tokens=_TRIED), once=True)
            shown = bool(request.think) or (whole is not None and _shows_thought(whole))
            self._thinks[request.think] = shown or self._thinks.get(request.think, False)  # another answer may have shown it
            if self._thinks[request.think]:
                self._unmarked.add(request.think)
            return whole

    def _marked(self, request: Request, answer: Answer) -> Answer:
        """Return an answer whose text is empty if it is a thought that was cut, though no marker says so."""
        if request.think not in self._unmarked or not _is_cut(request, answer) or _shows_thought(answer):
            return answer
        return replace(answer, text="", probabilities=None, reasoning=answer.text, tokens_reasoning=answer.tokens_out)

    def _closed(self, request: Request, thinking: Answer) -> Answer:
        """Return the answer after a thought that was cut. The thought, if the server shows it, is shown to the model again."""
        *before, last = request.messages
        if thinking.reasoning:
            last = {**last, "content": _THOUGHT_BEFORE.format(last["content"], thinking.reasoning)}
        asked = replace(request, messages=(*before, last), think=False, think_tokens=None)
        answer = _after(thinking, self._ask(replace(asked, think_tokens=self._room(asked))))
        return replace(answer, reasoning=thinking.reasoning or answer.reasoning, thought_cut=True)


def _limit(request: Request) -> int:
    return THOUGHT_TOKENS if request.think_tokens is None else request.think_tokens


def _is_cut(request: Request, answer: Answer) -> bool:
    """Return whether an answer may have been cut within a thought. If its tokens are kept, its backend knows thoughts itself."""
    missing = request.choices is not None and answer.probabilities is None
    return missing or (answer.finish == "length" and answer.tokens is None)


def _shows_thought(answer: Answer) -> bool:
    """Return whether the model thought, as far as its answer shows. Some providers count the tokens of thoughts and hide them."""
    is_empty = answer.finish == "length" and not (answer.text or "").strip()
    return bool(answer.reasoning or answer.tokens_reasoning) or is_empty


def _is_in_thought(request: Request, answer: Answer, room: int) -> bool:
    """Return whether a thought took more than its room, so that the answer behind it is missing or cut."""
    if not _is_cut(request, answer) or not _shows_thought(answer):
        return False
    if request.choices is not None:
        return answer.probabilities is None
    said = (answer.text or "").strip()
    # a token has at least one byte: a shorter text that was cut has fewer tokens than max_tokens, and the thought had the rest
    return answer.tokens_reasoning > room or len(said.encode()) < request.max_tokens


def _after(first: Answer, second: Answer) -> Answer:
    """Return the second of two answers, with the tokens and the price of both."""
    return replace(
        second,
        tokens_in=first.tokens_in + second.tokens_in,
        tokens_cached=first.tokens_cached + second.tokens_cached,
        tokens_out=first.tokens_out + second.tokens_out,
        tokens_reasoning=first.tokens_reasoning + second.tokens_reasoning,
        cost=first.cost + second.cost,
    )


def check_thought(model: str, request: Request, answer: Answer, *, hidden: bool) -> None:
    """Check the answer to a question that was asked before a run.

    Args:
        model: The model's name.
        request: The question.
        answer: The answer.
        hidden: Whether the server may hide that the model thinks.

    Raises:
        UsageError: If the answer is empty, or the model thinks otherwise than it is asked to.
    """
    is_empty = request.choices is None and request.tool is None and not (answer.text or "").strip()
    thought = bool(answer.reasoning or answer.tokens_reasoning)
    if is_empty and (thought or answer.finish == "length"):
        raise UsageError(
            f"think_tokens: expected room for a thought and an answer; asked before the run, {model} was cut after "
            f"{_limit(request)} tokens for its thought and {request.max_tokens} for its answer, and gave no answer. Set "
            "think_tokens or max_tokens higher, or think=False."
        )
    if is_empty:
        ended = f" (it ended by {answer.finish!r})" if answer.finish else ""
        raise UsageError(f"model: expected an answer; asked before the run, {model} said nothing{ended}. Try another mode.")
    if request.think is False and answer.reasoning and not hidden:
        raise UsageError(
            f"think=False: expected a model that can answer without a thought; asked before the run, {model} thought all the same. "
            "Leave think out, or turn thoughts off where the server is started, or by its own field: extra={…}."
        )
    if request.think and not thought and not hidden and request.choices is None:
        raise UsageError(
            f"think={request.think!r}: expected a model that thinks; asked before the run, {model} showed no thought. Leave think "
            "out, or take the strategy 'reasoning', which asks any model to think in words."
        )
    if answer.thought_cut:
        _logger.warning(
            "%s: asked before the run, its thought was cut after %d tokens; think_tokens sets more.", model, _limit(request)
        )
    elif request.choices is None and answer.finish == "length":
        _logger.warning(
            "%s: asked before the run, its answer was cut after %d tokens; max_tokens sets more.", model, request.max_tokens
        )
