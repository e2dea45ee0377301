"""`PooledPrefixes`: packed rows for a GPU, where all sequences attend in one product.

On a GPU, starting a small product takes longer than computing it, and `PackedPrefixes` starts one for each sequence in each layer.
Here the keys and values of all sequences are in one store. A pass writes those of its new tokens by index, and reads those of its
sequences by index, padded to the longest sequence. On a CPU the padding would cost more than it saves.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from gym_text_policies.backends.local.attention import Options, Segments
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch, Prefix

_BLOCK = 4096
"""Least tokens by which the store grows; a large store grows by half."""
_MASK_WIDTH = 16
"""The width of a mask is a multiple of this. PyTorch's attention on GPUs would copy any other mask in each layer."""
_NEVER, _ALWAYS = -1, 2**31 - 1
"""Ends of a span that contains no number, and of one that contains all."""


class _Store:
    """Keys and values of many tokens. Each token has a slot."""

    def __init__(self) -> None:
        self.states: torch.Tensor | None = None  # (layers, slots, 2, heads, dimension)
        self._free: list[int] = []
        self._slots = 0

    def take(self, count: int) -> list[int]:
        """Return free slots."""
        if count > len(self._free):
            more = -(-max(count - len(self._free), self._slots // 2) // _BLOCK) * _BLOCK
            self._free += range(self._slots, self._slots + more)
            self._slots += more
        taken = self._free[-count:] if count else []
        del self._free[len(self._free) - count :]
        return taken

    def give_back(self, slots: list[int]) -> None:
        """Free slots, and empty the list."""
        self._free += slots
        slots.clear()

    def write(self, layer: int, layers: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Write keys and values of a layer, each of shape (heads, tokens, dimension); return the layer's store."""
        if self.states is None or self.states.shape[1] < self._slots:
            # zeros, since masked slots are read, too, and must not be NaN
            grown = keys.new_zeros(layers, self._slots, 2, keys.shape[0], keys.shape[2])
            if self.states is not None:
                grown[:, : self.states.shape[1]] = self.states
            self.states = grown
        here = self.states[layer]
        return here.index_copy_(0, slots, torch.stack([keys, values]).permute(2, 0, 1, 3))


class PooledPrefix(Prefix):
    """A token sequence with the slots of its keys and values.

    Args:
        store: The store with these slots.
        device: The model's.
    """

    def __init__(self, store: _Store, device: torch.device) -> None:
        super().__init__()
        self.slots = torch.empty(0, dtype=torch.long, device=device)
        """Slot of each token."""
        self.new_slots = self.slots
        """Slots of the tokens of the last pass."""
        self._store = store
        self._owned: list[int] = []
        self._new: list[int] = []
        for owned in (self._owned, self._new):
            weakref.finalize(self, store.give_back, owned)

    @property
    def capacity(self) -> int:
        """Tokens for which memory is taken."""
        return len(self._owned)

    @torch.inference_mode()
    def copy(self, size: int) -> PooledPrefix:
        """Return a copy of the first `size` tokens, with their keys and values."""
        other = PooledPrefix(self._store, self.slots.device)
        other.tokens = self.tokens[:size]
        other._owned += self._store.take(size)
        other.slots = torch.tensor(other._owned, dtype=torch.long, device=self.slots.device)
        store = self._store
        if size and store.states is not None:
            for layer, states in enumerate(store.states):  # the whole at once would be in memory twice
                keys, values = states[self.slots[:size]].permute(1, 2, 0, 3)
                store.write(layer, len(store.states), other.slots, keys, values)
        return other

    def cut(self, size: int) -> None:
        """Forget all but the first `size` tokens; their slots are free."""
        super().cut(size)
        freed = self._owned[size:]
        del self._owned[size:]
        self.slots = self.slots[:size]
        self._store.give_back(freed)

    def read(self, slots: list[int], on_device: torch.Tensor) -> None:
        """Note the slots of the tokens that are read now, and free the slots of the last pass whose tokens were not kept."""
        self._store.give_back(self._new)
        self._new += slots
        self.new_slots = on_device

    def keep(self, tokens: Sequence[int]) -> None:
        """Append the first tokens of the last pass to the sequence, and free the slots of the others."""
        super().keep(tokens)
        self._owned += self._new[: len(tokens)]
        self.slots = torch.cat([self.slots, self.new_slots[: len(tokens)]])
        del self._new[: len(tokens)]
        self._store.give_back(self._new)


class _Together(Segments):
    """The sequences of a packed row as padded tables: B sequences with at most N new tokens, and at most A tokens in all.

    Args:
        store: Keys and values.
        prefixes: One of each sequence, after `PooledPrefix.read`.
        table: Positions, both `spans` and slots of the row's tokens, of shape (4, tokens).
        model: The model.
    """

    def __init__(self, store: _Store, prefixes: Sequence[PooledPrefix], table: torch.Tensor, model: Any) -> None:
        super().__init__(())
        sizes = [len(prefix.new_slots) for prefix in prefixes]
        self._store, self._dtype = store, model.dtype
        self._positions, self._first, self._behind, self._slots = table
        known, starts = [len(prefix.tokens) for prefix in prefixes], [0, *itertools.accumulate(sizes)]
        width, row = max(sizes), starts.pop()
        shifts = [number * width - start for number, start in enumerate(starts)]  # of indices, from the row to the queries' table
        numbers = torch.tensor([known, sizes, starts, shifts], device=table.device)
        self._known, self._sizes, self._starts = numbers[:3, :, None]  # (B, 1) each
        self._last = row - 1
        steps = torch.arange(row, device=table.device)
        self._queries = (self._starts + steps[:width]).clamp(max=self._last)  # (B, N): indices in the row; any token in padding
        self._back = steps[:row] + numbers[3].repeat_interleave(numbers[1], output_size=row)  # (tokens,): indices in that table
        read = pad_sequence([torch.cat([prefix.slots, prefix.new_slots]) for prefix in prefixes], batch_first=True)
        self._read = pad(read, (0, -read.shape[1] % _MASK_WIDTH))  # (B, A): slots
        self._masks: dict[int | None, torch.Tensor] = {}

    def attend(self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: Options) -> torch.Tensor:
        """Let all sequences attend at once. Arguments and result as of `Segments.attend`.

        Raises:
            NotImplementedError: If the layer bounds its scores or has sinks.
        """
        if options.softcap is not None or options.sinks is not None:
            raise NotImplementedError("soft caps and sinks are computed for one sequence after the other")
        store = self._store.write(module.layer_idx, module.config.num_hidden_layers, self._slots, key, value)
        (batch, width), (heads, _, size), key_heads = self._queries.shape, query.shape, len(key)
        states = store.index_select(0, self._read.flatten()).reshape(batch, -1, 2, key_heads, size)
        keys, values = states.permute(2, 0, 3, 1, 4)  # (B, key heads, A, dimension) each
        rows = query.transpose(0, 1).index_select(0, self._queries.flatten()).reshape(batch, width, key_heads, -1, size)
        queries = rows.permute(0, 2, 3, 1, 4).reshape(batch, key_heads, -1, size)  # (B, key heads, queries per key head * N, …)
        mask = self._mask(options.window, heads // key_heads)
        output = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=options.scaling)
        output = output.reshape(batch, heads, width, size).transpose(1, 2).reshape(-1, heads, size)  # (B * N, heads, dimension)
        return output.index_select(0, self._back)

    def _mask(self, window: int | None, repeats: int) -> torch.Tensor:
        """Return 0 or minus infinity, of shape (B, 1, repeats * N, A)."""
        if window not in self._masks:
            columns = torch.arange(self._read.shape[1], device=self._read.device)  # (A,)
            behind_known = columns - self._known  # (B, A)
            tokens = (self._starts + behind_known).clamp(0, self._last)
            is_known, is_new = behind_known < 0, (behind_known >= 0) & (behind_known < self._sizes)
            first = torch.where(is_new, self._first[tokens], _NEVER)[:, None]  # (B, 1, A)
            behind = torch.where(is_new, self._behind[tokens], torch.where(is_known, _ALWAYS, _NEVER))[:, None]
            new_first = self._first[self._queries][:, :, None]  # (B, N, 1)
            attended = (first <= new_first) & (new_first < behind)
            if window is not None:
                positions = torch.where(is_new, self._positions[tokens], columns)[:, None]
                attended &= self._positions[self._queries][:, :, None] - positions < window
            mask = torch.zeros(attended.shape, dtype=self._dtype, device=attended.device).masked_fill_(~attended, float("-inf"))
            self._masks[window] = mask.repeat(1, repeats, 1)[:, None]
        return self._masks[window]


class PooledPrefixes(PackedPrefixes):
    """Reads packed rows with one store for all sequences. Arguments as of `Prefixes`."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        self._store = _Store()

    def _new(self) -> Prefix:
        return PooledPrefix(self._store, self._model.device)

    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches. Branches much longer than the others go in a pass of their own."""
        sizes = [len(branch.tokens) for branch in branches]
        if len(sizes) * max(sizes) <= 2 * sum(sizes):  # at most half is padding
            return super().compute(branches)
        is_long = [2 * size > max(sizes) for size in sizes]
        results = {
            kind: iter(self.compute([branch for branch, is_its in zip(branches, is_long, strict=True) if is_its is kind]))
            for kind in (False, True)
        }
        return [next(results[kind]) for kind in is_long]

    def _segments(self, branches: Sequence[Branch], trees: torch.Tensor, positions: Sequence[int]) -> Segments:
        sizes = [len(branch.tokens) for branch in branches]
        slots = self._store.take(sum(sizes))
        on_device = torch.tensor(slots, device=trees.device)
        prefixes: list[PooledPrefix] = []
        start = 0
        for branch, branch_slots in zip(branches, torch.split(on_device, sizes), strict=True):
            assert isinstance(branch.prefix, PooledPrefix)
            branch.prefix.read(slots[start : start + len(branch_slots)], branch_slots)
            prefixes.append(branch.prefix)
            start += len(branch_slots)
        return _Together(self._store, prefixes, torch.cat([trees, on_device[None]]), self._model)
