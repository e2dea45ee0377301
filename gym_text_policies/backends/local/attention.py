"""Attention over a packed row: sequences and trees of unequal length one after the other, without padding.

The linear layers see all tokens of the row at once. The attention function here lets each segment attend to itself, and to the
keys and values of what it continues. Play (`prefixes`) and training read the same way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
# oneDNN reads it before its first product. By default it keeps 1,024 compiled layers, one for each number of rows: gigabytes in a
# long run.

_NAME = "gym_text_packed"


class Segment(Protocol):
    """Consecutive tokens of a packed row that attend to themselves, and to what they continue."""

    @property
    def size(self) -> int:
        """Number of its tokens."""

    @property
    def mask(self) -> torch.Tensor | None:
        """Which tokens each of its tokens attends to, as `attention_mask` returns it."""

    def extend(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values that the segment may attend to.

        Args:
            layer: Index of the layer.
            num_layers: Number of layers.
            keys: Of the segment's own tokens; shape (heads, size, dimension).
            values: Likewise.
        """


class Segments:
    """The segments of a packed row, in order, as one object: torch.compile would compile a list anew for each length."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.all = tuple(segments)


def attention_mask(attended: torch.Tensor, model: Any) -> torch.Tensor | None:
    """Return a mask as a model's attention takes it; None where a single token attends to all.

    Args:
        attended: Which tokens each new one attends to: rows of `visible`, of shape (new, all).
        model: The model.

    Returns:
        0 or minus infinity, of shape (queries per key head * new, all): the rows are repeated for each query head that shares a
        key head.
    """
    if len(attended) == 1 and attended.all():
        return None
    mask = torch.zeros(attended.shape, dtype=model.dtype).masked_fill_(~attended, float("-inf"))
    queries_per_key_head = model.config.num_attention_heads // model.config.num_key_value_heads
    return mask.repeat(queries_per_key_head, 1).to(model.device)


@contextlib.contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Let a model of transformers, without sliding windows, attend by the argument `segments` while the block runs."""
    AttentionInterface.register(_NAME, _attend)
    usual = model.config._attn_implementation
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = usual


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the number of segments varies; the layers around it can be compiled
def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    *,
    segments: Segments,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each segment; an attention function of transformers' `AttentionInterface`.

    Query heads that share a key head are stacked as further queries of one head, so that keys and values need not be repeated.
    """
    outputs = []
    sizes = [segment.size for segment in segments.all]  # one split: the gradient of each slice would be as long as the row
    own = (torch.split(states[0], sizes, dim=1) for states in (query, key, value))
    for segment, queries, keys, values in zip(segments.all, *own, strict=True):
        keys, values = segment.extend(module.layer_idx, module.config.num_hidden_layers, keys, values)
        queries = queries.reshape(keys.shape[0], -1, keys.shape[2])  # (key heads, queries per key head * new, dimension)
        output = scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=segment.mask, scale=scaling)
        outputs.append(output[0].reshape(query.shape[1], -1, keys.shape[2]))  # (heads, new, dimension)
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None
