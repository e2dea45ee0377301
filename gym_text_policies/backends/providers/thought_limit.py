"""`ThoughtLimit`: answers of a server whose model may think before it answers, though nothing but its answers shows that it does.

On a server of chats a thought and an answer share one limit of tokens. A request has room for a thought if the user asks for one,
or if the model has been seen to think: if an answer that was cut shows a thought, or contains nothing. After the first answer that
was cut without such a sign the model is once asked with room for a thought. If it does not think, that request belongs to the run,
as the check before it does, and to no answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from gym_text.errors import PolicyError, UsageError
from gym_text_policies.backends.base import Answer, Request, spent
from gym_text_policies.backends.chat_format import Think

_logger = logging.getLogger(__name__)
_THOUGHT_BEFORE = "{}\n\nYou have thought about this before:\n{}\n\nAnswer now, in the form that is asked for, and think no more."


class ThoughtLimit:
    """Asks a server so that its model has room for thoughts, and asks for the answer when a thought has reached its limit.

    Args:
        ask: Sends one request; with ``once``, it is not sent again if it fails.
    """

    def __init__(self, ask: Callable[..., Answer]) -> None:
        self._ask = ask
        self._thinks: dict[Think, bool] = {}  # by the request's setting, if it is known

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, with the tokens and the price of all calls that it took."""
        limit = self._limit_of(request)
        answer = self._ask(replace(request, think_tokens=limit))
        if limit is None and answer.finish == "length":
            limit = request.thought_tokens
            longer = self._longer(replace(request, think_tokens=limit), answer)
            if longer is None:
                return answer
            answer = replace(longer, **spent([answer, longer]))
        if answer.finish != "length":
            return answer
        if not _shows_thought(answer):  # a thought that was cut may stand in the text without a marker
            answer = replace(answer, text="", reasoning=answer.text, tokens_reasoning=answer.tokens_out)
        # a token has at least one byte: a shorter text that was cut has fewer tokens than max_tokens, and the thought had the rest
        is_short = len((answer.text or "").strip().encode()) < request.max_tokens
        in_thought = is_short or (limit is not None and answer.tokens_reasoning > limit)
        return self._closed(request, answer) if request.think is not False and in_thought else answer

    def _limit_of(self, request: Request) -> int | None:
        """Return the limit of tokens for a thought; None if no room for one is known to be needed."""
        asked_for = bool(request.think) or (request.think is None and request.think_tokens is not None)
        return request.thought_tokens if asked_for or self._thinks.get(request.think) else None

    def _longer(self, request: Request, cut: Answer) -> Answer | None:
        """Return the answer with room for a thought, after one that was cut; None if the model is not known to think."""
        shown = _shows_thought(cut) or self._thinks.get(request.think)
        if shown is False:
            return None
        try:
            longer = self._ask(request, once=not shown)
        except PolicyError:  # a model that talks on may take too long
            if shown:
                raise
            longer = cut
        thinks = self._thinks[request.think] = bool(shown or _shows_thought(longer) or self._thinks.get(request.think))
        return longer if thinks else None

    def _closed(self, request: Request, thinking: Answer) -> Answer:
        """Return the answer after a thought that was cut. The thought, if the server shows it, is shown to the model again."""
        *before, last = request.messages
        if thinking.reasoning:
            last = {**last, "content": _THOUGHT_BEFORE.format(last["content"], thinking.reasoning)}
        final = replace(request, messages=(*before, last), think=False, think_tokens=None)
        answer = self._ask(replace(final, think_tokens=self._limit_of(final)))
        return replace(answer, reasoning=thinking.reasoning or answer.reasoning, thought_cut=True, **spent([thinking, answer]))


def _shows_thought(answer: Answer) -> bool:
    """Return whether the model thought, as far as its answer shows. Some providers count the tokens of thoughts and hide them."""
    is_empty = answer.finish == "length" and not (answer.text or "").strip()
    return bool(answer.reasoning or answer.tokens_reasoning) or is_empty


def check_thought(model: str, request: Request, answer: Answer, *, hidden: bool) -> None:
    """Raise `UsageError` if the answer to a request before a run is empty, or the model thinks otherwise than it is asked to.

    With `hidden` the server may hide that the model thinks.
    """
    is_text = request.choices is None and request.tool is None
    thought = bool(answer.reasoning or answer.tokens_reasoning)
    cut = f"cut after {request.thought_tokens} tokens for its thought and {request.max_tokens} for its answer"
    error = ""
    if is_text and not (answer.text or "").strip():
        if thought or answer.finish == "length":
            error = (
                f"think_tokens: expected room for a thought and an answer; asked before the run, {model} was {cut}, and gave no "
                "answer. Set think_tokens or max_tokens higher, or think=False."
            )
        else:
            ended = f" (it ended by {answer.finish!r})" if answer.finish else ""
            error = f"model: expected an answer; asked before the run, {model} said nothing{ended}. Try another mode."
    elif request.think is False and answer.reasoning and not hidden:
        error = (
            f"think=False: expected a model that can answer without a thought; asked before the run, {model} thought all the same. "
            "Leave think out, or turn thoughts off where the server is started, or by its own field: extra={…}."
        )
    elif request.think and not thought and not hidden and request.choices is None:
        error = (
            f"think={request.think!r}: expected a model that thinks; asked before the run, {model} showed no thought. Leave think "
            "out, or take the strategy 'reasoning', which asks any model to think in words."
        )
    if error:
        raise UsageError(error)
    if answer.thought_cut or (request.choices is None and answer.finish == "length"):
        _logger.warning("%s: asked before the run, it was %s; think_tokens and max_tokens set more.", model, cut)
