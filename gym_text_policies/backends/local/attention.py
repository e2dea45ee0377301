"""Attention over a packed row: sequences and trees of unequal length stand one after the other, without padding.

Linear layers compute all tokens of the row at once. The attention function here lets each segment of the row attend to itself, and
to the keys and values of the sequence that it continues. Play and training use the same function.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
# oneDNN reads this before its first product. By default it keeps 1,024 compiled layers, one for each number of rows, which take
# gigabytes in a long run.

_NAME = "gym_text_packed"


class Options(NamedTuple):
    """What an attention layer asks for."""

    scaling: float | None
    """Factor of the scores; None: one over the root of the dimension."""
    window: int | None
    """The sliding window, in tokens; None: the layer attends to all tokens."""
    softcap: float | None
    """Greatest absolute value of a score (Gemma 2)."""
    sinks: torch.Tensor | None
    """For each query head the score of its attention sink, which takes a share of the attention and has no value (gpt-oss)."""


class Segments:
    """The segments of a packed row, in order: consecutive tokens that attend to each other, and to the sequence that they continue.

    They are one object: torch.compile would compile anew for each length of a list.

    Args:
        segments: Each has the number of its tokens as ``size``, and as ``mask`` to which tokens each of them attends.
    """

    def __init__(self, segments: Iterable[Any]) -> None:
        self.all = tuple(segments)
        self.sizes = [segment.size for segment in self.all]

    def visible(
        self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield for each segment the keys and values to which it may attend.

        Args:
            layer: Index of the layer.
            num_layers: Number of layers.
            keys: Of the whole row; shape (heads, tokens, dimension).
            values: Likewise.
        """
        states_by_segment = (torch.split(states, self.sizes, dim=1) for states in (keys, values))
        for segment, *states in zip(self.all, *states_by_segment, strict=True):
            yield segment.extend(layer, num_layers, *states)


class Mask:
    """The attention mask of a segment: to which tokens each new token attends. It is made on the model's device, when it is needed.

    Args:
        known: Number of tokens before the tree; every new token attends to all of them.
        tree: Positions and `spans` of the tree's tokens, of shape (3, tokens), on the model's device. The new tokens are the last;
            tokens before them are in it if a new token follows them.
        new: Number of new tokens.
        length: Most tokens to which a new token attends.
        dtype: The model's.
    """

    def __init__(self, known: int, tree: torch.Tensor, new: int, length: int, dtype: torch.dtype) -> None:
        self._known, self._tree, self._new, self._length, self._dtype = known, tree, new, length, dtype
        self._of: dict[int | None, torch.Tensor | None] = {}

    def within(self, window: int | None, repeats: int = 1) -> torch.Tensor | None:
        """Return the mask of a layer; None where a tree of one token attends to all.

        Args:
            window: The layer's sliding window, in tokens; None: the layer attends to all tokens.
            repeats: Query heads that share a key head, the same for all layers.

        Returns:
            0 or minus infinity, of shape (repeats * new, all).
        """
        if window is not None and window >= self._length:
            window = None  # it leaves out no token
        if window not in self._of:
            whole = window is None and self._tree.shape[1] == 1
            self._of[window] = None if whole else self._made(window).repeat(repeats, 1)
        return self._of[window]

    def _made(self, window: int | None) -> torch.Tensor:
        positions, first, behind = self._tree
        new_first = first[-self._new :, None]
        attended = pad((first <= new_first) & (new_first < behind), (self._known, 0), value=True)  # (new, all)
        if window is not None:
            all_positions = torch.cat([torch.arange(self._known, device=positions.device), positions])
            attended &= positions[-self._new :, None] - all_positions < window
        return torch.zeros(attended.shape, dtype=self._dtype, device=attended.device).masked_fill_(~attended, float("-inf"))


@contextlib.contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """While the block runs, let a model of transformers attend by the `Segments` that it gets as its argument ``segments``."""
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
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within each segment: an attention function for transformers' `AttentionInterface`, which names the arguments.

    Query heads that share a key head are treated as more queries of one head, so that keys and values need not be repeated.
    """
    options = Options(scaling, sliding_window, softcap, s_aux)
    own_queries = torch.split(query[0], segments.sizes, dim=1)  # one split: the gradient of each slice would be as long as the row
    visible = segments.visible(module.layer_idx, module.config.num_hidden_layers, key[0], value[0])
    outputs = [
        _attention(queries, keys, values, segment.mask, options)
        for segment, queries, (keys, values) in zip(segments.all, own_queries, visible, strict=True)
    ]
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None


def _attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: Mask, options: Options) -> torch.Tensor:
    """Return the output of a segment's attention, of shape (heads, new, dimension), by the fastest function for it."""
    own_mask = mask.within(options.window, len(queries) // len(keys))
    stacked = queries.reshape(keys.shape[0], -1, keys.shape[2])  # (key heads, queries per key head * new, dimension)
    # in bfloat16 on a CPU, product, softmax, product takes half the time of PyTorch's own attention, gradients included
    by_products = queries.dtype == torch.bfloat16 and queries.device.type == "cpu"
    if by_products or options.softcap is not None or options.sinks is not None:
        output = _attention_by_products(stacked, keys, values, own_mask, options)
    else:
        output = scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=own_mask, scale=options.scaling)
    return output.reshape(queries.shape)


def _attention_by_products(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: Options,
) -> torch.Tensor:
    """Attend by product, softmax, product; with the soft cap (Gemma 2) or the learnt sinks (gpt-oss) of a layer that has them.

    Args:
        queries: Shape (key heads, queries per key head * new, dimension).
        keys: Shape (key heads, all, dimension).
        values: Likewise.
        mask: Shape (queries per key head * new, all).
        options: The layer's.
    """
    scaling, _, cap, sinks = options
    scores = queries @ keys.transpose(1, 2) * (keys.shape[2] ** -0.5 if scaling is None else scaling)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        rows = sinks.reshape(len(keys), -1, 1).expand(-1, -1, scores.shape[1] * len(keys) // len(sinks)).reshape(len(keys), -1, 1)
        scores = torch.cat([scores, rows.to(scores.dtype)], dim=2)
    return scores.softmax(-1)[..., : keys.shape[1]] @ values  # in bfloat16, too, the softmax is summed in float32
