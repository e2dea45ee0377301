"""`CachedPrefixes` uses the model's own cache, as transformers' `generate` does, for any layers; `RereadPrefixes` uses none.

A prompt is read once into the cache. Candidates follow as a batch, padded on the right, on a copy of the cache, in which the states
of recurrent layers are copied, too. Tokens can be removed only from a cache that holds the keys and values of all tokens and
nothing else. Any other cache is kept as it is at the end of a prompt. If a new prompt departs from a remembered one before its end,
the common start is read again, and kept as a sequence of its own from then on.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes

_BLOCK = 128
"""Least tokens that a sequence counts as: a recurrent layer's state is as large for a short sequence as for a long one."""


class CachedPrefix(Prefix):
    """A token sequence with the model's cache after it."""

    def __init__(self, cache: Any) -> None:
        super().__init__()
        self.cache = cache
        self.read = 0
        """Number of tokens in the cache: those of `tokens`, and later ones that were read and not kept yet."""

    @property
    def capacity(self) -> int:
        """About the number of tokens for which it holds memory."""
        return max(_BLOCK, len(self.tokens))

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens need not be read again. A cache that cannot be cut serves as a whole, or not at all."""
        size = self.common(tokens)
        return size if size == len(self.tokens) or cuts_back(self.cache) else 0

    def copy(self, size: int) -> CachedPrefix:
        """Return a copy of the first `size` tokens, with their cache."""
        other = CachedPrefix(copy.deepcopy(self.cache))
        other.tokens, other.read = list(self.tokens), self.read
        other.cut(size)
        return other

    def keep(self, tokens: Sequence[int]) -> None:
        """Append tokens that were read to the sequence, and forget the tokens that were read after them."""
        super().keep(tokens)
        self.cut(len(self.tokens))

    def cut(self, size: int) -> None:
        """Forget all but the first `size` tokens."""
        if size < self.read:
            self.cache.crop(size - self.read)
        self.tokens, self.read = self.tokens[:size], size


def cuts_back(cache: Any) -> bool:
    """Return whether tokens can be removed from the end of a cache, since it holds the keys and values of all tokens, no more."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def paths(parents: Sequence[int]) -> list[list[int]]:
    """Return for each leaf of a `Tree` the nodes from the start to it, the leaf included.

    >>> paths([-1, 0, 1, 0])
    [[0, 1, 2], [0, 3]]
    """
    inner = set(parents)
    all_paths = []
    for node in range(len(parents)):
        if node not in inner:
            path = [node]
            while parents[path[-1]] >= 0:
                path.append(parents[path[-1]])
            all_paths.append(path[::-1])
    return all_paths


def padded(rows: Sequence[list[int]]) -> list[list[int]]:
    """Return rows of tokens at equal length: each is filled up on the right with its last token.

    >>> padded([[1, 2], [3]])
    [[1, 2], [3, 3]]
    """
    longest = max(map(len, rows))
    return [row + row[-1:] * (longest - len(row)) for row in rows]


class CachedPrefixes(Prefixes):
    """Reads by the model's own cache. Arguments as of `Prefixes`."""

    way = "cached"

    def __init__(self, model: Any, max_tokens: int) -> None:
        super().__init__(model, max_tokens)
        self.cuts_back = cuts_back(self._new().cache)
        self._arguments = inspect.signature(model.forward).parameters

    def _new(self) -> CachedPrefix:
        return CachedPrefix(DynamicCache(config=self._model.config))

    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over the branches one by one, and over the candidates of each as a batch."""
        return [self._compute(branch) for branch in branches]

    @torch.inference_mode()
    def _compute(self, branch: Branch) -> torch.Tensor:
        prefix, wanted = branch.prefix, branch.wanted
        assert isinstance(prefix, CachedPrefix)
        is_line = branch.parents == list(range(-1, len(branch.tokens) - 1))
        first = wanted[0] if wanted else len(branch.tokens) - 1  # up to this token there is no fork
        if is_line and self.cuts_back:
            rows = self._run([branch.tokens], prefix, len(branch.tokens) - first)[0]
            prefix.read += len(branch.tokens)
            return rows[[node - first for node in wanted]]
        logits_of = {first: self._run([branch.tokens[: first + 1]], prefix, 1)[0, 0]}
        prefix.read += first + 1
        if not wanted:
            return torch.empty(0)
        lines = [path[first + 1 :] for path in paths(branch.parents) if path[-1] > first]
        together = max(1, self._max_tokens // prefix.read)
        for start in range(0, len(lines), together):
            group = lines[start : start + together]
            several = prefix.copy(prefix.read)
            several.cache.reorder_cache(torch.zeros(len(group), dtype=torch.long, device=self._model.device))
            longest = max(map(len, group))
            tokens = [[branch.tokens[node] for node in line] for line in group]
            logits = self._run(padded(tokens), several, longest)
            logits_of |= {
                node: row for line, rows in zip(group, logits, strict=True) for node, row in zip(line, rows, strict=False)
            }
        return torch.stack([logits_of[node] for node in wanted])

    def _run(self, rows: Sequence[Sequence[int]], prefix: CachedPrefix, last: int) -> torch.Tensor:
        """Read rows of equal length behind a prefix; return the last tokens' logits, float32 of shape (rows, last, vocabulary)."""
        self.computed += len(rows) * len(rows[0])
        tokens = torch.tensor(rows, device=self._model.device)
        positions = torch.arange(prefix.read, prefix.read + len(rows[0]), device=tokens.device).expand(len(rows), -1)
        # positions are given, as not every model continues those of its cache by itself
        options = {"logits_to_keep": last, "position_ids": positions}
        options = {name: value for name, value in options.items() if name in self._arguments}
        output = self._model(input_ids=tokens, past_key_values=prefix.cache, use_cache=True, **options)
        logits: torch.Tensor = output.logits[:, -last:].float()
        return logits


class RereadPrefixes(Prefixes):
    """Reads every sequence from its start, without a cache: for a model whose cache gives other probabilities."""

    way = "reread"

    def _new(self) -> Prefix:
        return Prefix()

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a prefix without tokens."""
        return [self._new() for _ in prompts]

    @torch.inference_mode()
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over each path of each branch."""
        results = []
        for branch in branches:
            known = branch.prefix.tokens
            logits_of: dict[int, torch.Tensor] = {}
            for path in paths(branch.parents):
                tokens = [*known, *(branch.tokens[node] for node in path)]
                self.computed += len(tokens)
                logits = self._model(input_ids=torch.tensor([tokens], device=self._model.device), use_cache=False).logits[0]
                logits_of |= dict(zip(path, logits[len(known) :].float(), strict=True))
            results.append(torch.stack([logits_of[node] for node in branch.wanted]))
        return results
