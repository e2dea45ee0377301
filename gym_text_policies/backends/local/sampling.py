"""`Sampler`: from the logits after a token to the next token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.grammars import Matcher


class Sampler:
    """Chooses the tokens of one answer, among those that a grammar allows.

    Args:
        request: How tokens are drawn: temperature, seed, and the limits `top_k`, `top_p` and `min_p`, in this order, as in
            transformers' `generate`. The most probable token is always within the limits. If the request asks for tokens, the
            log-probability of each token that is taken is kept.
    """

    def __init__(self, request: Request) -> None:
        self.log_probs: list[float] = []
        """The log-probability of each taken token: in the distribution that it was drawn from, or at temperature 1 if nothing is
        drawn."""
        self.grammar: Matcher | None = None
        """What the next tokens may be; it can be set between a thought and an answer."""
        self._keeps, self._temperature = request.tokens, request.temperature
        self._limits: Any = LogitsProcessorList()
        if request.top_k:
            self._limits.append(TopKLogitsWarper(request.top_k))
        if request.top_p is not None and request.top_p < 1:
            self._limits.append(TopPLogitsWarper(request.top_p))
        if request.min_p:
            self._limits.append(MinPLogitsWarper(request.min_p))
        self._generator = torch.Generator().manual_seed(request.seed or 0)

    def forced(self, max_tokens: int) -> list[int]:
        """Return the next tokens for which the grammar allows one choice alone, at most `max_tokens`."""
        return self.grammar.forced()[:max_tokens] if self.grammar and max_tokens > 0 else []

    def take(self, logits: torch.Tensor) -> Iterator[int]:
        """Yield the next token after each row of logits, float32 of shape (rows, vocabulary), until the caller stops."""
        if self.grammar or self._temperature or self._keeps:
            yield from map(self._next, logits.cpu())  # on the CPU, so that draws do not depend on the device
        else:
            yield from logits.argmax(-1).tolist()

    def _next(self, logits: torch.Tensor) -> int:
        """Return the next token after one row of logits, on the CPU."""
        if self.grammar:
            logits = logits.masked_fill(~self.grammar.allowed(len(logits)), -math.inf)
        if self._temperature:
            logits = self._limits(None, logits[None] / self._temperature)[0]
            token = int(torch.multinomial(logits.softmax(-1), 1, generator=self._generator))
        else:
            token = int(logits.argmax())
        if self._keeps:
            self.log_probs.append(float(logits.log_softmax(-1)[token]))
        if self.grammar:
            self.grammar.take(token)
        return token
