"""`Prefixes`: a cache of the token sequences that a causal language model has read, so that a call computes only new tokens.

A subclass runs the model in one way: `PackedPrefixes`, `CachedPrefixes` or `RereadPrefixes`. Which sequences are kept, copied and
forgotten is decided here, the same for all of them. `candidate_log_probs` scores the candidates of mode ``choose``.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch

from gym_text_policies.files.json_data import common

_WORTH_SHARING = 32
"""If several prompts begin with at least so many common new tokens, these are read once, in a pass of their own, before the
prompts."""

_CUT_OFF = 4
"""Most tokens that may be cut off the end of a remembered sequence to use it for a prompt. If the prompt departs from it earlier,
the part that both have is copied, and the sequence stays."""


@dataclass
class Tree:
    """The tokens of texts, with their predecessors. A common start of texts is in it once. A node is the index of a token."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """For each token its predecessor's node; -1 at the start of a text."""
    _children: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def grow(self, node: int, tokens: Iterable[int]) -> list[int]:
        """Add tokens one after the other behind a node, or at the start (-1), and return their nodes. Existing nodes are reused."""
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

    def graft(self, other: Tree) -> list[int]:
        """Add all tokens of another tree, and return the node of each. Paths that both trees have are merged."""
        nodes: list[int] = []
        for token, parent in zip(other.tokens, other.parents, strict=True):
            nodes += self.grow(-1 if parent < 0 else nodes[parent], [token])
        return nodes


def depths(parents: Sequence[int], known: int) -> list[int]:
    """Return the position in its text of each node of a `Tree`, where `known` tokens stand before the tree."""
    positions: list[int] = []
    for parent in parents:
        positions.append(known if parent < 0 else positions[parent] + 1)
    return positions


def spans(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return for each node of a `Tree` its number in depth-first order, and the first number after those of its subtree.

    A node is in the subtree of `other`, which includes `other` itself, if ``first[other] <= first[node] < end[other]``.

    >>> spans([-1, 0, 1, 0])
    ([0, 1, 2, 3], [4, 3, 3, 4])
    """
    sizes = [1] * len(parents)
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            sizes[parents[node]] += sizes[node]
    first = [0] * len(parents)
    free = [0] * (len(parents) + 1)  # the next free number below each node; the last entry is for the start
    for node, parent in enumerate(parents):
        first[node] = free[parent]
        free[parent] += sizes[node]
        free[node] = first[node] + 1
    return first, [number + size for number, size in zip(first, sizes, strict=True)]


class Prefix:
    """A token sequence, in subclasses with the model's keys, values or other states for it."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """The tokens that were read."""

    @property
    def capacity(self) -> int:
        """About the number of tokens for which it holds memory."""
        return 0

    def common(self, tokens: Sequence[int]) -> int:
        """Return how many tokens this sequence and `tokens` have in common at their start."""
        return common(tokens, self.tokens)

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens need not be read again: at most `common`, less where the cache cannot be cut there."""
        return self.common(tokens)

    def copy(self, size: int) -> Prefix:
        """Return a copy of the first `size` tokens; `size` is a `match`."""
        raise NotImplementedError

    def cut(self, size: int) -> None:
        """Forget all but the first `size` tokens; `size` is a `match`."""
        del self.tokens[size:]

    def keep(self, tokens: Sequence[int]) -> None:
        """Append the first tokens of the last pass to the sequence. The pass's other tokens are forgotten."""
        self.tokens += tokens


@dataclass
class Branch:
    """New tokens behind a prefix, as a tree. The tokens before the first fork can be kept."""

    prefix: Prefix
    tokens: list[int]
    parents: list[int]
    """For each token the index in `tokens` of its predecessor; -1 where that is the prefix's last token."""
    wanted: list[int]
    """Indices of the tokens after which the model has to predict the next one, in ascending order."""

    @classmethod
    def line(cls, prefix: Prefix, tokens: Sequence[int], wanted: Iterable[int]) -> Branch:
        """Return a branch without a fork: each token is the predecessor of the next."""
        return cls(prefix, list(tokens), list(range(-1, len(tokens) - 1)), list(wanted))

    def keep(self, size: int) -> None:
        """Append the first `size` tokens, which have no fork between them, to the prefix. Call this before the next pass."""
        self.prefix.keep(self.tokens[:size])


class Prefixes(ABC):
    """The token sequences that a model remembers. When there are too many, the least recently used is forgotten first.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        max_tokens: About the most tokens to remember. A sequence in use is never forgotten.
    """

    way: ClassVar[str]
    """Name of this way of reading, for users."""
    cuts_back: bool = True
    """Whether tokens can be removed again from the end of a sequence. If not, no drafts of an answer are read, as drafted tokens
    that the model does not confirm would have to be removed."""

    def __init__(self, model: Any, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._known: list[Prefix] = []  # the most recently used last
        self.computed = 0
        """Number of tokens that went through the model so far."""

    def __len__(self) -> int:
        return sum(prefix.capacity for prefix in self._known)

    @abstractmethod
    def _new(self) -> Prefix:
        """Return a prefix without tokens."""

    @abstractmethod
    def compute(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Run the model over all branches.

        Returns:
            For each branch the logits after each of its wanted tokens on the model's device, float32 of shape (wanted, vocabulary).
        """

    def forget(self) -> None:
        """Forget all sequences."""
        self._known = []

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many first tokens are remembered. The last one never counts, as the prediction after it is needed."""
        return self._longest(tokens[:-1])[0]

    def open(self, prompts: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Return for each prompt a prefix with all that is remembered of it, except the prompt's last token.

        If a prompt continues a remembered sequence, or a part of it that lacks at most the last `_CUT_OFF` tokens, the prefix is
        that sequence. Else the prefix is a copy of what both have in common. New tokens with which all prompts begin are read
        first, and once.
        """
        if len(prompts) > 1:
            shared = common(min(prompts), max(prompts))  # all prompts lie between these two in lexical order
            self._read(prompts[0][: min(shared, *(len(prompt) - 1 for prompt in prompts))])
        opened: list[Prefix] = []
        for tokens in prompts:
            shared, _ = self._longest(tokens[:-1], "common")
            self._read(tokens[:shared])  # a common part that cannot be copied is read once more, and kept
            size, best = self._longest(tokens[:-1])
            if best is None or size < len(best.tokens) - _CUT_OFF or any(best is other for other in opened):
                best = best.copy(size) if best else self._new()
            else:
                best.cut(size)
                self._known = [prefix for prefix in self._known if prefix is not best]
            self._known.append(best)
            opened.append(best)
        while len(self) > self._max_tokens and len(self._known) > len(opened):
            del self._known[0]
        return opened

    def _longest(self, tokens: Sequence[int], what: Literal["common", "match"] = "match") -> tuple[int, Prefix | None]:
        """Return the greatest `match` (or `common`) of all remembered sequences, and the sequence; (0, None) if nothing matches."""
        greatest, longest = 0, None
        for prefix in self._known:
            known = prefix.tokens
            # a longer match needs the same token at index `greatest`; so few sequences are compared token by token
            if greatest < min(len(known), len(tokens)) and known[greatest] == tokens[greatest]:
                size: int = getattr(prefix, what)(tokens)
                if size > greatest:
                    greatest, longest = size, prefix
        return greatest, longest

    def _read(self, tokens: tuple[int, ...]) -> None:
        """Read and remember tokens, unless nearly all of them are remembered."""
        known, best = self._longest(tokens)
        if len(tokens) - known < _WORTH_SHARING:
            return
        prefix = best.copy(known) if best else self._new()
        self._known.append(prefix)
        branch = Branch.line(prefix, tokens[known:], [])
        self.compute([branch])
        branch.keep(len(branch.tokens))


@dataclass(frozen=True)
class Candidates:
    """The candidates of one request as a tree behind its prompt. A start that several candidates share is computed once."""

    branch: Branch
    """The new tokens of the prompt, then those of the candidates."""
    tokens: tuple[list[int], ...]
    """The tokens of each candidate, the end of turn included if it counts."""
    rows: tuple[list[int], ...]
    """For each token in `tokens` the row of the branch's logits that predicts it."""

    @classmethod
    def of(cls, prefix: Prefix, prompt: Sequence[int], candidates: Sequence[Sequence[int]], end: int | None) -> Candidates:
        """Return candidates behind a prompt, each followed by `end`, the end of turn, if that is not None.

        The prefix is the part of the prompt that is remembered, at most all but its last token.
        """
        branch = Branch.line(prefix, prompt[len(prefix.tokens) :], [])
        last = len(branch.tokens) - 1
        tree = Tree(branch.tokens, branch.parents)
        paths = tuple([*tokens, end] if end is not None else list(tokens) for tokens in candidates)
        nodes = [[last, *tree.grow(last, path[:-1])] for path in paths]
        branch.wanted += range(last, len(branch.tokens))
        return cls(branch, paths, tuple([node - last for node in each] for each in nodes))


@torch.inference_mode()
def candidate_log_probs(prefixes: Prefixes, requests: Sequence[Candidates]) -> list[list[tuple[float, ...]]]:
    """Return the log-probability of each token of each candidate, for several requests in one pass. The prompts are remembered."""
    log_probs = []
    for candidates, logits in zip(requests, prefixes.compute([candidates.branch for candidates in requests]), strict=True):
        candidates.branch.keep(candidates.branch.wanted[0] + 1)
        rows, tokens = (list(itertools.chain(*each)) for each in (candidates.rows, candidates.tokens))
        # in place: allocating a tensor of this size takes four times as long as computing its numbers
        predicted = iter(torch.log_softmax(logits, -1, out=logits)[rows, tokens].tolist())
        log_probs.append([tuple(itertools.islice(predicted, len(path))) for path in candidates.tokens])
    return log_probs
