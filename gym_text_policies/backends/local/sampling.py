"""`Sampler`: from the logits after a token to the next token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Draw:
    """How tokens are drawn. The limits hold for draws alone: the most probable token is always within them."""

    temperature: float = 0.0
    """0: the most probable token. Else one is drawn, from the probabilities to the power of 1 / temperature."""
    top_k: int | None = None
    """Among this many most probable tokens."""
    top_p: float | None = None
    """Among the most probable tokens whose probabilities sum to at least this."""
    min_p: float | None = None
    """Among the tokens with at least this share of the most probable one's probability."""

    def limited(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits with -inf for all tokens that may not be drawn: first `top_k`, then `top_p`, then `min_p`.

        transformers' `generate` has the same order; each limit is computed from what the limit before it left.

        Args:
            logits: Of all tokens, divided by the temperature; float32 of shape (vocabulary,).
        """
        if self.top_k:
            least = logits.topk(min(self.top_k, len(logits))).values[-1]
            logits = logits.masked_fill(logits < least, -math.inf)
        if self.top_p is not None and self.top_p < 1:
            ascending, tokens = logits.sort()
            outside = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
            outside[-1] = False
            logits = logits.index_fill(0, tokens[outside], -math.inf)
        if self.min_p:
            probabilities = logits.softmax(-1)
            logits = logits.masked_fill(probabilities < self.min_p * probabilities.max(), -math.inf)
        return logits


class Sampler:
    """Chooses the tokens of one answer, among those that a grammar allows.

    Args:
        draw: How tokens are drawn.
        seed: Seed of what is drawn.
        grammar: An ``LLMatcher`` of llguidance, or None.
        keeps: Whether to keep the log-probability of each token that is taken.
    """

    def __init__(self, draw: Draw, seed: int, grammar: Any = None, *, keeps: bool = False) -> None:
        self.log_probs: list[float] = []
        """The log-probability of each taken token: in the distribution that it was drawn from, or at temperature 1 if nothing is
        drawn."""
        self.grammar = grammar
        """What the next tokens may be; it can be set between a thought and an answer."""
        self._keeps = keeps
        self._draw = draw
        self._generator = torch.Generator().manual_seed(seed)

    def forced(self, max_tokens: int) -> list[int]:
        """Return the next tokens for which the grammar allows one choice alone, at most `max_tokens`."""
        return list(self.grammar.compute_ff_tokens())[:max_tokens] if self.grammar and max_tokens > 0 else []

    def take(self, logits: torch.Tensor) -> Iterator[int]:
        """Yield the next token after each row of logits, until the caller stops.

        Args:
            logits: Of all tokens, float32 of shape (rows, vocabulary).
        """
        if self.grammar or self._draw.temperature or self._keeps:
            yield from map(self._next, logits.cpu())  # on the CPU, so that draws do not depend on the device
        else:
            yield from logits.argmax(-1).tolist()

    def _next(self, logits: torch.Tensor) -> int:
        """Return the next token after one row of logits, on the CPU."""
        if self.grammar:
            bits = np.unpackbits(np.frombuffer(self.grammar.compute_bitmask(), np.uint8), bitorder="little")
            allowed = torch.zeros(len(logits), dtype=torch.bool)
            allowed[: len(bits)] = torch.from_numpy(bits[: len(logits)].astype(bool))
            logits = logits.masked_fill(~allowed, -math.inf)
        logits = logits / (self._draw.temperature or 1.0)
        if self._draw.temperature:
            logits = self._draw.limited(logits)
            token = int(torch.multinomial(logits.softmax(-1), 1, generator=self._generator))
        else:
            token = int(logits.argmax())
        if self._keeps:
            self.log_probs.append(float(logits.log_softmax(-1)[token]))
        if self.grammar:
            self.grammar.consume_token(token)
        return token
