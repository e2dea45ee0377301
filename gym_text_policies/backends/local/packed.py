"""`PackedPrefixes`: sequences of unequal length go through the model in one packed row, see `packed_attention`.

Nothing is padded, keys and values of earlier tokens are not copied, and candidates with a common start share it. The model may have
only layers that attend to all tokens or to a window. A layer with a state, such as a recurrent one, would carry the state from one
sequence of the row into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gym_text_policies.backends.local.attention import Mask, Segments, packed_attention
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
        keys, values = self.prefix.write(layer, num_layers, keys, values)
        return keys[:, : self.mask.width], values[:, : self.mask.width]


class PackedPrefixes(Prefixes):
    """Reads by packed rows. Arguments as of `Prefixes`."""

    way = "packed"

    def _new(self) -> Prefix:
        return PackedPrefix()

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches in one pass."""
        device, segments = self._model.device, []
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        for branch in branches:
            assert isinstance(branch.prefix, PackedPrefix)
            known, size = len(branch.prefix.tokens), len(branch.tokens)
            own_positions = depths(branch.parents, known)
            tree = torch.tensor([own_positions, *spans(branch.parents)], device=device)  # (3, size)
            mask = Mask(known, tree, size, 1 + max(own_positions), self._model.dtype)
            segments.append(BranchSegment(branch.prefix, size, mask))
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
