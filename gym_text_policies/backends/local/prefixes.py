"""`Prefixes`: what a causal language model has read, kept by its tokens, so that each call computes only what is new.

Sequences of unequal length go through the model packed into one row (see `packing`), so that no past is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gym_text_policies.backends.local.packing import Parts, attention_mask, depths, packed_attention, visible

_BLOCK = 128
"""Tokens by which a sequence's store grows."""
_WORTH_SHARING = 32
"""Tokens that several new prompts must have in common for that beginning to be read once, before them."""


class Prefix:
    """A token sequence with the model's keys and values.

    Attributes:
        tokens: The tokens whose keys and values are known.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._store: torch.Tensor | None = None  # (layers, 2, heads, capacity, dimension)

    @property
    def capacity(self) -> int:
        """Tokens for which there is room."""
        return 0 if self._store is None else self._store.shape[3]

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many tokens the two have in common from the start."""
        size = min(len(tokens), len(self.tokens))
        if list(tokens[:size]) == self.tokens[:size]:
            return size
        return next(i for i in range(size) if tokens[i] != self.tokens[i])

    def copy(self, size: int) -> Prefix:
        """Return the first `size` tokens as a sequence of its own."""
        other = Prefix()
        other.tokens = self.tokens[:size]
        if self._store is not None:
            layers, two, heads, _, dimension = self._store.shape
            other._store = self._store.new_empty(layers, two, heads, -(-(size + 1) // _BLOCK) * _BLOCK, dimension)
            other._store[:, :, :, :size] = self._store[:, :, :, :size]
        return other

    def write(self, layer: int, layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Put a layer's new keys and values, each of shape (heads, new, dimension), behind the known ones; return all of them."""
        known, size = len(self.tokens), len(self.tokens) + keys.shape[1]
        if self._store is None or size > self.capacity:
            shape = (layers, 2, keys.shape[0], -(-size // _BLOCK) * _BLOCK, keys.shape[2])
            grown = keys.new_empty(shape)
            if self._store is not None:
                grown[:, :, :, :known] = self._store[:, :, :, :known]
            self._store = grown
        here = self._store[layer]
        here[0, :, known:size], here[1, :, known:size] = keys, values
        return here[0, :, :size], here[1, :, :size]


@dataclass
class Branch:
    """New tokens that go through the model behind a prefix: a tree, of which a first part can be kept."""

    prefix: Prefix
    tokens: list[int]
    parents: list[int]
    """For each token the one before it in `tokens`; -1 for the prefix's last."""
    wanted: list[int]
    """The tokens after which the model's prediction is asked for."""

    @classmethod
    def line(cls, prefix: Prefix, tokens: Sequence[int], wanted: Sequence[int]) -> Branch:
        """Return tokens one after the other."""
        return cls(prefix, list(tokens), list(range(-1, len(tokens) - 1)), list(wanted))

    def keep(self, size: int) -> None:
        """Make the first tokens, each the parent of the next, part of the prefix; do so before anything else is computed."""
        self.prefix.tokens += self.tokens[:size]


@dataclass(frozen=True)
class _NewTokens:
    """The new tokens of a prefix in a packed row."""

    prefix: Prefix
    size: int
    mask: torch.Tensor | None

    def extend(self, layer: int, layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values behind the known ones; return all of them."""
        return self.prefix.write(layer, layers, keys, values)


class Prefixes:
    """The sequences that a model remembers; the least recently used go first.

    Args:
        model: A causal language model of transformers, in evaluation mode, without sliding windows.
        max_tokens: Most tokens to remember, about; a sequence in use is never forgotten.
    """

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._known: list[Prefix] = []  # the most recently used last
        self.computed = 0
        """Tokens that went through the model."""

    def __len__(self) -> int:
        return sum(prefix.capacity for prefix in self._known)

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens, the last excepted, are remembered."""
        return max((prefix.match(tokens[:-1]) for prefix in self._known), default=0)

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a sequence that holds the longest remembered beginning of it, never its last token.

        A sequence that the prompt goes on from is used itself, another one is copied. What several prompts begin with is read once.
        """
        self._read_together(prompts)
        opened: list[Prefix] = []
        for tokens in prompts:
            best = max(self._known, key=lambda prefix: prefix.match(tokens[:-1]), default=None)
            size = best.match(tokens[:-1]) if best else 0
            if best is None or size < len(best.tokens) or any(best is other for other in opened):
                best = best.copy(size) if best else Prefix()
            else:
                self._known = [prefix for prefix in self._known if prefix is not best]
            self._known.append(best)
            opened.append(best)
        while len(self) > self._max_tokens and len(self._known) > len(opened):
            del self._known[0]
        return opened

    def _read_together(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Read what all prompts begin with, unless it is known."""
        if len(prompts) < 2:
            return
        first, last = min(prompts), max(prompts)  # in lexical order: what these two share, all share
        shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
        shared = min(shared, *(len(prompt) - 1 for prompt in prompts))
        (prefix,) = self.open([first[: shared + 1]]) if shared - self.match(first[: shared + 1]) >= _WORTH_SHARING else (None,)
        if prefix is not None:
            branch = Branch.line(prefix, first[len(prefix.tokens) : shared], [])
            self.compute([branch])
            branch.keep(len(branch.tokens))

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches in one pass.

        Returns:
            For each branch the logits of the token after each wanted one, float32 of shape (wanted, vocabulary).
        """
        device, row = self._model.device, 0
        tokens, positions, wanted, parts = [], [], [], []
        for branch in branches:
            known = len(branch.prefix.tokens)
            mask = attention_mask(visible(branch.parents, known), self._model)
            parts.append(_NewTokens(branch.prefix, len(branch.tokens), mask))
            wanted += [row + node for node in branch.wanted]
            tokens += branch.tokens
            positions += depths(branch.parents, known)
            row += len(branch.tokens)
        self.computed += row
        with packed_attention(self._model):
            output = self._model(
                input_ids=torch.tensor([tokens], device=device),
                position_ids=torch.tensor([positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor(wanted or [row - 1], device=device),
                packed_parts=Parts(parts),
            )
        return list(output.logits[0, : len(wanted)].float().cpu().split([len(branch.wanted) for branch in branches]))
