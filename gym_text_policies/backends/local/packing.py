"""Token trees of unequal length as one row: for play (`prefixes`) and for training, which read the same way.

The linear layers see all tokens at once; an attention function of our own lets each part attend to itself, and to what it goes
on from, so that nothing is padded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
# oneDNN reads it before its first product. It keeps what it has compiled for each number of rows, if not told of 1,024 layers:
# gigabytes in a long run.

_NAME = "gym_text_packed"


class Part(Protocol):
    """What attends to itself alone."""

    @property
    def size(self) -> int:
        """Number of its tokens in the packed row, in which the parts follow each other."""

    @property
    def mask(self) -> torch.Tensor | None:
        """Who sees whom, as `attention_mask` gives it."""

    def extend(self, layer: int, layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values that the part sees.

        Args:
            layer: Number of the layer.
            layers: How many there are.
            keys: Of the part's own tokens; shape (heads, size, dimension).
            values: Likewise.
        """


class Parts:
    """The parts of a packed row, as one object: of a list torch.compile would compile each length anew."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.all = tuple(parts)


@dataclass
class Tree:
    """Tokens of which each follows an earlier one: texts that begin alike are in it once."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """For each token the node before it; -1 at the start."""
    _children: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def grow(self, node: int, tokens: Iterable[int]) -> list[int]:
        """Return the nodes of tokens that follow a node (-1: that stand at the start); those that this tree has are used again."""
        nodes = []
        for token in tokens:
            child = self._children.get((node, token))
            if child is None:
                child = self._children[node, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
            node = child
            nodes.append(node)
        return nodes


def depths(parents: Sequence[int], known: int) -> list[int]:
    """Return the position of each node of a tree that follows `known` tokens."""
    positions: list[int] = []
    for parent in parents:
        positions.append(known if parent < 0 else positions[parent] + 1)
    return positions


def visible(parents: Sequence[int], known: int) -> torch.Tensor:
    """Return who sees whom in a tree that follows `known` tokens, of shape (new, known + new)."""
    size = len(parents)
    new = torch.eye(size, dtype=torch.bool)
    if list(parents) == list(range(-1, size - 1)):
        new = new.new_ones(size, size).tril()
    else:
        for node, parent in enumerate(parents):
            if parent >= 0:
                new[node] |= new[parent]
    return torch.cat([new.new_ones(size, known), new], dim=1)


def attention_mask(seen: torch.Tensor, model: Any) -> torch.Tensor | None:
    """Return who sees whom as a model's attention takes it; None where a single token sees all.

    Args:
        seen: Rows of what `visible` returns, of shape (new, seen).
        model: The model.

    Returns:
        0 or minus infinity, of shape (shared * new, seen): once for each head of queries that shares a head of keys.
    """
    if len(seen) == 1 and seen.all():
        return None
    mask = torch.zeros(seen.shape, dtype=model.dtype).masked_fill_(~seen, float("-inf"))
    shared = model.config.num_attention_heads // model.config.num_key_value_heads
    return mask.repeat(shared, 1).to(model.device)


@contextlib.contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Let a model of transformers, without sliding windows, attend by the argument `packed_parts` while the block runs."""
    AttentionInterface.register(_NAME, _attend)
    usual = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = usual


@torch.compiler.disable  # type: ignore[untyped-decorator]  # parts come in any number; what is around it can be compiled
def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    packed_parts: Parts,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each part; an attention function of transformers' `AttentionInterface`.

    Heads that share keys stand as further queries of one head, so that keys and values need not be repeated.
    """
    outputs = []
    sizes = [part.size for part in packed_parts.all]  # one split: each slice's gradient would be as long as the row
    own = (torch.split(states[0], sizes, dim=1) for states in (query, key, value))
    for part, queries, keys, values in zip(packed_parts.all, *own, strict=True):
        keys, values = part.extend(module.layer_idx, module.config.num_hidden_layers, keys, values)
        queries = queries.reshape(keys.shape[0], -1, keys.shape[2])  # (key heads, shared * new, dimension)
        seen = scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=part.mask, scale=scaling)
        outputs.append(seen[0].reshape(query.shape[1], -1, keys.shape[2]))  # (heads, new, dimension)
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None
