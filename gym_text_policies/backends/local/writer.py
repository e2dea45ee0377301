"""`Writer`: from the probabilities of the next token to an answer, token by token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch


class Writer:
    """Takes the tokens of one answer: the most probable or drawn ones, of those that a grammar allows.

    Args:
        temperature: 0: the most probable token. Else one is drawn, from the probabilities to the power of 1 / temperature.
        seed: Seed of what is drawn.
        grammar: An ``LLMatcher`` of llguidance, or None.
    """

    def __init__(self, temperature: float, seed: int, grammar: Any = None) -> None:
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)
        self._grammar = grammar

    def forced(self, most: int) -> list[int]:
        """Return at most `most` tokens that the grammar leaves no choice about, as it would write them; else none."""
        return list(self._grammar.compute_ff_tokens())[:most] if self._grammar and most > 0 else []

    def next(self, logs: torch.Tensor) -> int:
        """Return the next token.

        Args:
            logs: Log-probabilities of all tokens, float32 of shape (vocabulary,).
        """
        if self._grammar:
            bits = np.unpackbits(np.frombuffer(self._grammar.compute_bitmask(), np.uint8), bitorder="little")
            allowed = torch.zeros(len(logs), dtype=torch.bool)
            allowed[: len(bits)] = torch.from_numpy(bits[: len(logs)].astype(bool))
            logs = logs.masked_fill(~allowed, -math.inf)
        if self._temperature:
            token = int(torch.multinomial((logs / self._temperature).softmax(-1), 1, generator=self._generator))
        else:
            token = int(logs.argmax())
        if self._grammar:
            self._grammar.consume_token(token)
        return token
