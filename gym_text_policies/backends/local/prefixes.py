"""`Prefixes`: a cache of the token sequences that a causal language model has read, so that a call computes only new tokens.

A subclass runs the model in one way: `PackedPrefixes`, `CachedPrefixes` or `RereadPrefixes`. Which sequences are
kept, copied and forgotten is decided here, the same for all of them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

_WORTH_SHARING = 32
"""If several prompts begin with at least so many common new tokens, these are read once, in a pass of their own, before the
prompts."""

_CUT_OFF = 4
"""Most tokens that may be cut off the end of a remembered sequence to use it for a prompt. If the prompt departs from it earlier,
the part that both have is copied, and the sequence stays."""

_LEAST_ROOM = 32_768
"""Most tokens that are remembered where the memory for them is not known, and the least that this is by default."""
_SHARE = 10
"""Tokens that are remembered take one part in so many of the memory."""


def usual_room(model: Any) -> int:
    """Return about how many tokens a model remembers by default: those whose keys and values take a tenth of the memory."""
    config = model.config.get_text_config()
    if model.device.type == "cuda":
        memory = torch.cuda.get_device_properties(model.device).total_memory
    elif hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        return _LEAST_ROOM
    try:
        queries = config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or queries
        size = getattr(config, "head_dim", None) or config.hidden_size // queries
    except (AttributeError, RuntimeError):  # no attention, as in Mamba; or layers of different sizes, as in Gemma 4
        return _LEAST_ROOM
    bytes_of_token: int = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    return max(_LEAST_ROOM, int(memory) // _SHARE // bytes_of_token)


class Prefix(ABC):
    """A token sequence with the model's keys, values or other states for it."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """The tokens that were read."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """About the number of tokens for which it holds memory."""

    def common(self, tokens: Sequence[int]) -> int:
        """Return how many tokens this sequence and `tokens` have in common at their start."""
        size = min(len(tokens), len(self.tokens))
        if list(tokens[:size]) == self.tokens[:size]:
            return size
        return next(i for i in range(size) if tokens[i] != self.tokens[i])

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens need not be read again: at most `common`, less where the cache cannot be cut there."""
        return self.common(tokens)

    @abstractmethod
    def copy(self, size: int) -> Prefix:
        """Return a copy of the first `size` tokens; `size` is a `match`."""

    def cut(self, size: int) -> None:
        """Forget all but the first `size` tokens; `size` is a `match`."""
        del self.tokens[size:]

    def keep(self, tokens: Sequence[int]) -> None:
        """Append the first tokens of the last pass to the sequence. The pass's other tokens are forgotten."""
        self.tokens += tokens


@dataclass
class Branch:
    """New tokens behind a prefix, as a tree. The tokens before the first fork can be kept."""

    prefix: Prefix
    tokens: list[int]
    parents: list[int]
    """For each token the index in `tokens` of its predecessor; -1 where that is the prefix's last token."""
    wanted: list[int]
    """Indices of the tokens after which the model has to predict the next one, in ascending order."""

    @classmethod
    def line(cls, prefix: Prefix, tokens: Sequence[int], wanted: Sequence[int]) -> Branch:
        """Return a branch without a fork: each token is the predecessor of the next."""
        return cls(prefix, list(tokens), list(range(-1, len(tokens) - 1)), list(wanted))

    def keep(self, size: int) -> None:
        """Append the first `size` tokens, which have no fork between them, to the prefix. Call this before the next pass."""
        self.prefix.keep(self.tokens[:size])


class Prefixes(ABC):
    """The token sequences that a model remembers. When there are too many, the least recently used is forgotten first.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        max_tokens: About the most tokens to remember. A sequence in use is never forgotten.
    """

    way: ClassVar[str]
    """Name of this way of reading, for users."""
    cuts_back: bool = True
    """Whether tokens can be removed again from the end of a sequence. If not, no drafts of an answer are read, as drafted tokens
    that the model does not confirm would have to be removed."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._known: list[Prefix] = []  # the most recently used last
        self.computed = 0
        """Number of tokens that went through the model so far."""

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

    def forget(self) -> None:
        """Forget all sequences."""
        self._known = []

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many first tokens are remembered. The last one never counts, as the prediction after it is needed."""
        return self._longest(tokens[:-1])[0]

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a prefix with all that is remembered of it, except the prompt's last token.

        If a prompt continues a remembered sequence, or a part of it that lacks at most the last `_CUT_OFF` tokens, the prefix is
        that sequence. Else the prefix is a copy of what both have in common. New tokens with which all prompts begin are read
        first, and once.
        """
        self._read_common_beginning(prompts)
        opened: list[Prefix] = []
        for tokens in prompts:
            common, _ = self._longest(tokens[:-1], "common")
            self._read(tokens[:common])  # a common part that cannot be copied is read once more, and kept
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
        """Return the greatest `match` (or `common`) of all remembered sequences, and the sequence; (0, None) if nothing matches."""
        greatest, longest = 0, None
        for prefix in self._known:
            known = prefix.tokens
            # a longer match needs the same token at index `greatest`; so few sequences are compared token by token
            if greatest < min(len(known), len(tokens)) and known[greatest] == tokens[greatest]:
                size: int = getattr(prefix, what)(tokens)
                if size > greatest:
                    greatest, longest = size, prefix
        return greatest, longest

    def _read_common_beginning(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Read the tokens with which all prompts begin, unless they are remembered or few."""
        if len(prompts) < 2:
            return
        first, last = min(prompts), max(prompts)  # all prompts lie between them in lexical order, and share their common start
        common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
        self._read(first[: min(common, *(len(prompt) - 1 for prompt in prompts))])

    def _read(self, tokens: tuple[int, ...]) -> None:
        """Read and remember tokens, unless nearly all of them are remembered."""
        known, best = self._longest(tokens)
        if len(tokens) - known < _WORTH_SHARING:
            return
        prefix = best.copy(known) if best else self._new()
        self._known.append(prefix)
        branch = Branch.line(prefix, tokens[known:], [])
        self.compute([branch])
        branch.keep(len(branch.tokens))
