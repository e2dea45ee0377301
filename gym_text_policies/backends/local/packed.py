"""`PackedPrefixes`: sequences of unequal length go through the model in one packed row, see `packed_attention`.

Nothing is padded, keys and values of earlier tokens are not copied, and candidates with a common start share it. The model may have
only layers that attend to all tokens or to a window. A layer with a state, such as a recurrent one, would carry the state from one
sequence of the row into the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gym_text_policies.backends.local.attention import Mask, Segments, packed_attention
from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.tree import depths, spans

_GROWTH = 128
"""Tokens by which the store of a prefix grows."""
_BLOCK, _MOST_BLOCKS = 256, 8
"""On a CPU, least new tokens of a branch whose attention is computed at once, and most such blocks of a branch. The scores of a
small block stay in the processor's cache, and no token attends to later blocks. Blocks are few, since oneDNN compiles a product for
each width."""


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
        """Write a layer's new keys and values, and return those of the layer, with room behind them.

        Args:
            layer: Index of the layer.
            num_layers: Number of layers.
            start: Number of tokens before the new ones.
            size: Number of tokens for which room is needed.
            states: Keys and values, each of shape (heads, new, dimension).

        Returns:
            Shape (2, heads, capacity, dimension).
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
    start: int
    """Number of tokens before them, of the prefix and of the branch."""
    size: int
    room: int
    """Number of tokens of the prefix and the whole branch."""
    mask: Mask

    def extend(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new keys and values to the prefix's; return all of them."""
        keys, values = self.prefix.write(layer, num_layers, self.start, self.room, (keys, values))
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
            segments += self._segments(branch, own_positions)
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

    def _segments(self, branch: Branch, positions: Sequence[int]) -> Iterator[BranchSegment]:
        """Yield the segments of a branch: on a CPU blocks of it, elsewhere the whole branch."""
        assert isinstance(branch.prefix, PackedPrefix)
        known, size, device = len(branch.prefix.tokens), len(branch.tokens), self._model.device
        tree = torch.tensor([positions, *spans(branch.parents)], device=device)  # (3, size)
        block = max(_BLOCK, -(-size // _MOST_BLOCKS)) if device.type == "cpu" else size
        for start in range(0, size, block):
            stop = min(start + block, size)
            mask = Mask(known, tree[:, :stop], stop - start, 1 + max(positions[start:stop]), self._model.dtype)
            yield BranchSegment(branch.prefix, known + start, stop - start, known + size, mask)
