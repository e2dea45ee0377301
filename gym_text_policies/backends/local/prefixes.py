"""`Prefixes`: keys and values of what a causal language model has read, kept by tokens, so that a call computes only what is new.

Sequences of unequal length go through the model in one packed row (see `attention`), so that no past is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gym_text_policies.backends.local.attention import Segments, attention_mask, packed_attention
from gym_text_policies.backends.local.tree import depths, visible

_BLOCK = 128
"""Tokens by which the store of a prefix grows."""
_WORTH_SHARING = 32
"""Least length, in tokens, of a new common beginning of several prompts that is read once, in a pass before theirs."""


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
        """Return the length of the common beginning, in tokens."""
        size = min(len(tokens), len(self.tokens))
        if list(tokens[:size]) == self.tokens[:size]:
            return size
        return next(i for i in range(size) if tokens[i] != self.tokens[i])

    def copy(self, size: int) -> Prefix:
        """Return a copy of the first `size` tokens, with their keys and values."""
        other = Prefix()
        other.tokens = self.tokens[:size]
        if self._store is not None:
            layers, two, heads, _, dimension = self._store.shape
            other._store = self._store.new_empty(layers, two, heads, -(-(size + 1) // _BLOCK) * _BLOCK, dimension)
            other._store[:, :, :, :size] = self._store[:, :, :, :size]
        return other

    def write(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append a layer's new keys and values, each of shape (heads, new, dimension); return all of them."""
        known, size = len(self.tokens), len(self.tokens) + keys.shape[1]
        if self._store is None or size > self.capacity:
            shape = (num_layers, 2, keys.shape[0], -(-size // _BLOCK) * _BLOCK, keys.shape[2])
            grown = keys.new_empty(shape)
            if self._store is not None:
                grown[:, :, :, :known] = self._store[:, :, :, :known]
            self._store = grown
        here = self._store[layer]
        here[0, :, known:size], here[1, :, known:size] = keys, values
        return here[0, :, :size], here[1, :, :size]


@dataclass
class Branch:
    """New tokens behind a prefix, as a tree; its unbranched beginning can be kept."""

    prefix: Prefix
    tokens: list[int]
    parents: list[int]
    """For each token the index in `tokens` of the one before it; -1: the prefix's last token."""
    wanted: list[int]
    """Indices of the tokens after which the model's prediction is asked for."""

    @classmethod
    def line(cls, prefix: Prefix, tokens: Sequence[int], wanted: Sequence[int]) -> Branch:
        """Return tokens that follow each other."""
        return cls(prefix, list(tokens), list(range(-1, len(tokens) - 1)), list(wanted))

    def keep(self, size: int) -> None:
        """Add the first `size` tokens, each the parent of the next, to the prefix. Call it before anything else is computed."""
        self.prefix.tokens += self.tokens[:size]


@dataclass(frozen=True)
class _BranchSegment:
    """A branch in a packed row: it attends to itself and to its prefix."""

    prefix: Prefix
    size: int
    mask: torch.Tensor | None

    def extend(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new keys and values to the prefix's; return all of them."""
        return self.prefix.write(layer, num_layers, keys, values)


class Prefixes:
    """The token sequences that a model remembers; the least recently used go first.

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
        """Return the length of the longest remembered beginning, in tokens; never the last token."""
        return max((prefix.match(tokens[:-1]) for prefix in self._known), default=0)

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a prefix with its longest remembered beginning, never its last token.

        A remembered sequence that the prompt continues as a whole is used itself, else its common part is copied. What all prompts
        begin with is read once.
        """
        self._read_common_beginning(prompts)
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

    def _read_common_beginning(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Read what all prompts begin with, unless it is remembered or short."""
        if len(prompts) < 2:
            return
        first, last = min(prompts), max(prompts)  # in lexical order: what these two have in common, all have
        common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
        common = min(common, *(len(prompt) - 1 for prompt in prompts))
        beginning = first[: common + 1]
        if common - self.match(beginning) >= _WORTH_SHARING:
            (prefix,) = self.open([beginning])
            branch = Branch.line(prefix, first[len(prefix.tokens) : common], [])
            self.compute([branch])
            branch.keep(len(branch.tokens))

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches in one pass.

        Returns:
            For each branch the logits after each of its wanted tokens, float32 of shape (wanted, vocabulary).
        """
        device, row = self._model.device, 0
        tokens, positions, wanted, segments = [], [], [], []
        for branch in branches:
            known = len(branch.prefix.tokens)
            mask = attention_mask(visible(branch.parents, known), self._model)
            segments.append(_BranchSegment(branch.prefix, len(branch.tokens), mask))
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
                segments=Segments(segments),
            )
        return list(output.logits[0, : len(wanted)].float().cpu().split([len(branch.wanted) for branch in branches]))
