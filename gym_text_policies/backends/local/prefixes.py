"""`Prefixes`: what a causal language model has read, kept by tokens, so that a call computes only what is new.

There are several ways to read, each in a file of its own: `packed`, `cached`, `reread`. All keep what they read by the rules here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

_WORTH_SHARING = 32
"""Least length, in tokens, of a new common beginning of several prompts that is read once, in a pass before theirs."""

_CUT_OFF = 4
"""Most tokens that a remembered sequence loses where a prompt goes on before its end; with more, its beginning is copied."""


class Prefix(ABC):
    """A token sequence with what the model keeps of it."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """The tokens that were read."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Tokens for which memory is taken, about."""

    def common(self, tokens: Sequence[int]) -> int:
        """Return the length of the common beginning, in tokens."""
        size = min(len(tokens), len(self.tokens))
        if list(tokens[:size]) == self.tokens[:size]:
            return size
        return next(i for i in range(size) if tokens[i] != self.tokens[i])

    def match(self, tokens: Sequence[int]) -> int:
        """Return the length of the common beginning from which reading can go on."""
        return self.common(tokens)

    @abstractmethod
    def copy(self, size: int) -> Prefix:
        """Return a copy of the first `size` tokens; `size` is a `match`."""

    def cut(self, size: int) -> None:
        """Forget all but the first `size` tokens; `size` is a `match`."""
        del self.tokens[size:]

    def keep(self, tokens: Sequence[int]) -> None:
        """Add those of the tokens read last that follow the sequence in one line; the others are forgotten."""
        self.tokens += tokens


@dataclass
class Branch:
    """New tokens behind a prefix, as a tree; its unbranched beginning can be kept."""

    prefix: Prefix
    tokens: list[int]
    parents: list[int]
    """For each token the index in `tokens` of the one before it; -1: the prefix's last token."""
    wanted: list[int]
    """Indices of the tokens after which the model's prediction is asked for, in order."""

    @classmethod
    def line(cls, prefix: Prefix, tokens: Sequence[int], wanted: Sequence[int]) -> Branch:
        """Return tokens that follow each other."""
        return cls(prefix, list(tokens), list(range(-1, len(tokens) - 1)), list(wanted))

    def keep(self, size: int) -> None:
        """Add the first `size` tokens, each the parent of the next, to the prefix. Call it before anything else is computed."""
        self.prefix.keep(self.tokens[:size])


class Prefixes(ABC):
    """The token sequences that a model remembers; the least recently used go first.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        max_tokens: Most tokens to remember, about; a sequence in use is never forgotten.
    """

    way: ClassVar[str]
    """Name of the way in which it reads."""
    cuts_back: bool = True
    """Whether a part of what was read can be forgotten; else nothing is read that may have to be."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._known: list[Prefix] = []  # the most recently used last
        self.computed = 0
        """Tokens that went through the model."""

    def __len__(self) -> int:
        return sum(prefix.capacity for prefix in self._known)

    @abstractmethod
    def _new(self) -> Prefix:
        """Return a prefix without tokens."""

    @abstractmethod
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches.

        Returns:
            For each branch the logits after each of its wanted tokens on the model's device, float32 of shape (wanted, vocabulary).
        """

    def match(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest remembered beginning from which reading can go on; never the last token."""
        return self._longest(tokens[:-1])[0]

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a prefix with its longest remembered beginning, never its last token.

        A remembered sequence that the prompt continues as a whole, or all but its last few tokens, is used itself, else its common
        part is copied. What all prompts begin with is read once.
        """
        self._read_common_beginning(prompts)
        opened: list[Prefix] = []
        for tokens in prompts:
            common, _ = self._longest(tokens[:-1], "common")
            self._read(tokens[:common])  # where a common part cannot be copied, it is read once more, and kept
            size, best = self._longest(tokens[:-1])
            if best is None or size < len(best.tokens) - _CUT_OFF or any(best is other for other in opened):
                best = best.copy(size) if best else self._new()
            else:
                best.cut(size)
                self._known = [prefix for prefix in self._known if prefix is not best]
            self._known.append(best)
            opened.append(best)
        while len(self) > self._max_tokens and len(self._known) > len(opened):
            del self._known[0]
        return opened

    def _longest(self, tokens: Sequence[int], what: Literal["common", "match"] = "match") -> tuple[int, Prefix | None]:
        """Return the greatest `match`, or `common`, of a remembered sequence, and the first with it; (0, None) where all are 0."""
        greatest, found = 0, None
        for prefix in self._known:
            own = prefix.tokens
            # a greater one goes on alike behind the greatest so far: with many sequences, few are compared as a whole
            if greatest < min(len(own), len(tokens)) and own[greatest] == tokens[greatest]:
                size: int = getattr(prefix, what)(tokens)
                if size > greatest:
                    greatest, found = size, prefix
        return greatest, found

    def _read_common_beginning(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Read what all prompts begin with, unless it is remembered or short."""
        if len(prompts) < 2:
            return
        first, last = min(prompts), max(prompts)  # in lexical order: what these two have in common, all have
        common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
        self._read(first[: min(common, *(len(prompt) - 1 for prompt in prompts))])

    def _read(self, tokens: tuple[int, ...]) -> None:
        """Read and keep tokens, unless they are remembered, or what is missing is short."""
        known, best = self._longest(tokens)
        if len(tokens) - known < _WORTH_SHARING:
            return
        prefix = best.copy(known) if best else self._new()
        self._known.append(prefix)
        branch = Branch.line(prefix, tokens[known:], [])
        self.compute([branch])
        branch.keep(len(branch.tokens))
