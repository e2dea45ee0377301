"""`PackedPrefixes`: sequences of unequal length go through the model in one packed row, see `packed_attention`.

Nothing is padded, keys and values of earlier tokens are not copied, and candidates with a common start share it. The model may have
only layers that attend to all tokens or to a window. A layer with a state, such as a recurrent one, would carry the state from one
sequence of the row into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gym_text_policies.backends.local.attention import Mask, Segment, Segments, packed_attention
from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.tree import depths, spans

_BLOCK = 128
"""Tokens by which the store of a prefix grows."""


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
            other._store = self._store.new_empty(layers, two, heads, -(-(size + 1) // _BLOCK) * _BLOCK, dimension)
            other._store[:, :, :, :size] = self._store[:, :, :, :size]
            other._store[:, :, :, size:] = 0  # see `write`
        return other

    def write(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append a layer's new keys and values, each of shape (heads, new, dimension); return the layer's store, all finite."""
        known, size = len(self.tokens), len(self.tokens) + keys.shape[1]
        if self._store is None or size > self.capacity:
            shape = (num_layers, 2, keys.shape[0], -(-size // _BLOCK) * _BLOCK, keys.shape[2])
            grown = keys.new_empty(shape)
            if self._store is not None:
                grown[:, :, :, :known] = self._store[:, :, :, :known]
            grown[:, :, :, size:] = 0
            self._store = grown
        here = self._store[layer]
        here[0, :, known:size], here[1, :, known:size] = keys, values
        return here[0], here[1]


@dataclass(frozen=True)
class BranchSegment:
    """A branch in a packed row. Its tokens attend to its prefix, and to their predecessors in the branch."""

    prefix: PackedPrefix
    size: int
    mask: Mask

    def extend(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new keys and values to the prefix's; return all of them."""
        keys, values = self.append(layer, num_layers, keys, values)
        return keys[:, : self.mask.width], values[:, : self.mask.width]

    def append(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new keys and values to the prefix's; return the prefix's whole store: see `PackedPrefix.write`."""
        return self.prefix.write(layer, num_layers, keys, values)


class PackedPrefixes(Prefixes):
    """Reads by packed rows. Arguments as of `Prefixes`."""

    way = "packed"

    def _new(self) -> Prefix:
        return PackedPrefix()

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches in one pass."""
        device, row = self._model.device, 0
        numbers: tuple[list[int], ...] = ([], [], [], [])  # tokens, positions, spans
        wanted: list[int] = []
        for branch in branches:
            columns = (branch.tokens, depths(branch.parents, len(branch.prefix.tokens)), *spans(branch.parents))
            for column, more in zip(numbers, columns, strict=True):
                column += more
            wanted += [row + node for node in branch.wanted]
            row += len(branch.tokens)
        self.computed += row
        table = torch.tensor(numbers, device=device)  # (4, tokens); one tensor, as a GPU waits for each copy
        with packed_attention(self._model):
            output = self._model(
                input_ids=table[:1],
                position_ids=table[1:2],
                use_cache=False,
                logits_to_keep=torch.tensor(wanted or [row - 1], device=device),
                segments=self._segments(branches, table[1:], numbers[1]),
            )
        return list(output.logits[0, : len(wanted)].float().split([len(branch.wanted) for branch in branches]))

    def _segments(self, branches: Sequence[Branch], trees: torch.Tensor, positions: Sequence[int]) -> Segments:
        """Return the segment of each branch.

        Args:
            branches: In the order of the row.
            trees: Positions and `spans` of the row's tokens, of shape (3, tokens).
            positions: The same positions.
        """
        segments: list[Segment] = []
        start = 0
        for branch, tree in zip(branches, torch.split(trees, [len(branch.tokens) for branch in branches], dim=1), strict=True):
            assert isinstance(branch.prefix, PackedPrefix)
            size = len(branch.tokens)
            length = 1 + max(positions[start : start + size])
            segments.append(
                BranchSegment(branch.prefix, size, Mask(len(branch.prefix.tokens), tree, size, length, self._model.dtype))
            )
            start += size
        return Segments(segments)
