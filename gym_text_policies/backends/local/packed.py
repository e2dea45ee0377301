"""`PackedPrefixes`: sequences and trees of unequal length go through the model in one packed row, without padding.

Linear layers compute all tokens of the row at once. The attention function here lets each segment of the row attend to itself, and
to the keys and values of the sequence that it continues. Play and training use the same function. The model may have only layers
that attend to all tokens or to a window. A layer with a state, such as a recurrent one, would carry the state from one sequence of
the row into the next.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes, depths, spans

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
# oneDNN reads this before its first product. By default it keeps 1,024 compiled layers, one for each number of rows, which take
# gigabytes in a long run.

_NAME = "gym_text_packed"
_GROWTH = 128
"""Tokens by which the store of a prefix grows."""
_BLOCK, _MOST_BLOCKS = 256, 8
"""On a CPU, least new tokens of a branch whose attention is computed at once, and most such blocks of a branch. The scores of a
small block stay in the processor's cache, and no token attends to later blocks. Blocks are few, since oneDNN compiles a product for
each width."""


# ---------------------------------------------------------------- attention


class Segments:
    """The segments of a packed row, in order: consecutive tokens that attend to each other, and to the sequence that they continue.

    They are one object: torch.compile would compile anew for each length of a list.

    Args:
        segments: Each has the number of its tokens as ``size``, as ``mask`` to which tokens each of them attends, and a method
            ``visible`` that returns the keys and values of these tokens. Its arguments are the index of the layer, the number of
            layers, and the keys and values of the whole row, of shape (heads, tokens, dimension) each.
    """

    def __init__(self, segments: Iterable[Any]) -> None:
        self.all = tuple(segments)
        self.sizes = [segment.size for segment in self.all]


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
    queries_by_segment = torch.split(query[0], segments.sizes, dim=1)  # the gradient of each slice would be as long as the row
    # in bfloat16 on a CPU, product, softmax, product takes half the time of PyTorch's own attention, gradients included
    by_products = query.dtype == torch.bfloat16 and query.device.type == "cpu"
    outputs = []
    for segment, queries in zip(segments.all, queries_by_segment, strict=True):
        keys, values = segment.visible(module.layer_idx, module.config.num_hidden_layers, key[0], value[0])
        mask = segment.mask.within(sliding_window, len(queries) // len(keys))
        stacked = queries.reshape(keys.shape[0], -1, keys.shape[2])  # (key heads, queries per key head * new, dimension)
        if by_products or softcap is not None or s_aux is not None:
            output = _attention_by_products(stacked, keys, values, mask, scaling, softcap, s_aux)
        else:
            output = scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=mask, scale=scaling)
        outputs.append(output.reshape(queries.shape))
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None


def _attention_by_products(
    queries: torch.Tensor,  # (key heads, queries per key head * new, dimension)
    keys: torch.Tensor,  # (key heads, all, dimension)
    values: torch.Tensor,
    mask: torch.Tensor | None,  # (queries per key head * new, all)
    scaling: float | None,
    cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend by product, softmax, product.

    A cap limits the scores (Gemma 2). Sinks are for each query head the score of its attention sink, which takes a share of the
    attention and has no value (gpt-oss).
    """
    scores = queries @ keys.transpose(1, 2) * (keys.shape[2] ** -0.5 if scaling is None else scaling)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        rows = sinks.reshape(len(keys), -1, 1).expand(-1, -1, scores.shape[1] * len(keys) // len(sinks)).reshape(len(keys), -1, 1)
        scores = torch.cat([scores, rows.to(scores.dtype)], dim=2)
    return scores.softmax(-1)[..., : keys.shape[1]] @ values  # in bfloat16, too, the softmax is summed in float32


# ---------------------------------------------------------------- prefixes


class PackedPrefix(Prefix):
    """A token sequence with the model's keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self._store: torch.Tensor | None = None  # (layers, 2, heads, capacity, dimension)

    @property
    def capacity(self) -> int:
        """Tokens for which there is room."""
        return 0 if self._store is None else self._store.shape[3]

    def copy(self, size: int) -> PackedPrefix:
        """Return a copy of the first `size` tokens, with their keys and values."""
        other = PackedPrefix()
        other.tokens = self.tokens[:size]
        if self._store is not None:
            layers, two, heads, _, dimension = self._store.shape
            other._store = self._store.new_empty(layers, two, heads, -(-(size + 1) // _GROWTH) * _GROWTH, dimension)
            other._store[:, :, :, :size] = self._store[:, :, :, :size]
        return other

    def write(self, layer: int, num_layers: int, start: int, size: int, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Write a layer's keys and values, of shape (heads, new, dimension) each, behind the first `start` tokens.

        Returns:
            Those of the layer, with room for at least `size` tokens; shape (2, heads, capacity, dimension).
        """
        heads, new, dimension = states[0].shape
        if self._store is None or size > self.capacity:
            grown = states[0].new_empty(num_layers, 2, heads, -(-size // _GROWTH) * _GROWTH, dimension)
            if self._store is not None:
                grown[:, :, :, :start] = self._store[:, :, :, :start]
            self._store = grown
        for kind, new_states in enumerate(states):
            self._store[layer, kind, :, start : start + new] = new_states
        return self._store[layer]


@dataclass(frozen=True)
class BranchSegment:
    """Consecutive tokens of a branch in a packed row. They attend to its prefix, and to their predecessors in the branch."""

    prefix: PackedPrefix
    offset: int
    """Number of tokens before them in the row."""
    start: int
    """Number of tokens before them, of the prefix and of the branch."""
    size: int
    room: int
    """Number of tokens of the prefix and the whole branch."""
    mask: Mask

    def visible(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new keys and values to the prefix's; return all of them."""
        new = [states[:, self.offset : self.offset + self.size] for states in (keys, values)]
        keys, values = self.prefix.write(layer, num_layers, self.start, self.room, new)
        return keys[:, : self.start + self.size], values[:, : self.start + self.size]


class PackedPrefixes(Prefixes):
    """Reads by packed rows. Arguments as of `Prefixes`."""

    way = "packed"

    def _new(self) -> Prefix:
        return PackedPrefix()

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches in one pass."""
        device = self._model.device
        segments: list[BranchSegment] = []
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        for branch in branches:
            own_positions = depths(branch.parents, len(branch.prefix.tokens))
            segments += self._segments(branch, own_positions, len(tokens))
            wanted += [len(tokens) + node for node in branch.wanted]
            tokens += branch.tokens
            positions += own_positions
        self.computed += len(tokens)
        with packed_attention(self._model):
            output = self._model(
                input_ids=torch.tensor([tokens], device=device),
                position_ids=torch.tensor([positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor(wanted or [len(tokens) - 1], device=device),
                segments=Segments(segments),
            )
        return list(output.logits[0, : len(wanted)].float().split([len(branch.wanted) for branch in branches]))

    def _segments(self, branch: Branch, positions: Sequence[int], offset: int) -> Iterator[BranchSegment]:
        """Yield the segments of a branch: on a CPU blocks of it, elsewhere the whole branch."""
        assert isinstance(branch.prefix, PackedPrefix)
        known, size, device = len(branch.prefix.tokens), len(branch.tokens), self._model.device
        tree = torch.tensor([positions, *spans(branch.parents)], device=device)  # (3, size)
        block = max(_BLOCK, -(-size // _MOST_BLOCKS)) if device.type == "cpu" else size
        for start in range(0, size, block):
            stop = min(start + block, size)
            mask = Mask(known, tree[:, :stop], stop - start, 1 + max(positions[start:stop]), self._model.dtype)
            yield BranchSegment(branch.prefix, offset + start, known + start, stop - start, known + size, mask)
