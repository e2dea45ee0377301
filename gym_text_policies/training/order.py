"""The order in which supervised fine-tuning reads rows of several environments."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence


class GroupedOrder:
    """A sampler for a data loader of torch: rows at random, rows of one group in one batch where there are enough.

    Prompts of one environment begin alike, and a packed row contains a common beginning once. So batches of one environment have
    fewer tokens. Each batch stands at a random place of the epoch. What is left over of the groups fills mixed batches.
    """

    def __init__(self, groups: Sequence[Hashable], batch_size: int, seed: int) -> None:
        """Remember the groups.

        Args:
            groups: The group of each row.
            batch_size: Number of rows in a batch.
            seed: Together with the epoch it fixes the order.
        """
        self._groups, self._batch_size, self._seed, self._epoch = groups, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0; accelerate's data loader calls this."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._groups)

    def __iter__(self) -> Iterator[int]:
        """Yield each row's index once."""
        generator = random.Random(f"{self._seed} {self._epoch}")
        members: dict[Hashable, list[int]] = {}  # group -> rows
        for index in generator.sample(range(len(self)), len(self)):
            members.setdefault(self._groups[index], []).append(index)
        batches, left = [], []
        for rows in members.values():
            whole, rest = self._split(rows)
            batches += whole
            left += rest
        generator.shuffle(left)
        whole, rest = self._split(left)
        batches += whole
        generator.shuffle(batches)
        for batch in [*batches, rest]:
            yield from batch

    def _split(self, rows: list[int]) -> tuple[list[list[int]], list[int]]:
        """Return the whole batches of some rows, and the rows that are left."""
        stop = len(rows) - len(rows) % self._batch_size
        return [rows[start : start + self._batch_size] for start in range(0, stop, self._batch_size)], rows[stop:]
