"""`Tree`: the tokens of several texts. A common start of texts is in the tree once, and so is computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Tree:
    """Tokens with their predecessors. A node is the index of a token."""

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
    """Return each node's position in its text, where `known` tokens stand before the tree."""
    positions: list[int] = []
    for parent in parents:
        positions.append(known if parent < 0 else positions[parent] + 1)
    return positions


def spans(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return for each node its number in depth-first order, and the first number after those of its subtree.

    A node is in the subtree of `other`, which includes `other` itself, if ``first[other] <= first[node] < end[other]``.

    >>> spans([-1, 0, 1, 0])
    ([0, 1, 2, 3], [4, 3, 3, 4])
    """
    sizes = [1] * len(parents)
    for node in range(len(parents) - 1, -1, -1):
        if parents[node] >= 0:
            sizes[parents[node]] += sizes[node]
    first, free = (
        [0] * len(parents),
        [0] * (len(parents) + 1),
    )  # the next free number below each node; the last entry is for the start
    for node, parent in enumerate(parents):
        first[node] = free[parent]
        free[parent] += sizes[node]
        free[node] = first[node] + 1
    return first, [number + size for number, size in zip(first, sizes, strict=True)]


def paths(parents: Sequence[int]) -> list[list[int]]:
    """Return for each leaf the nodes from the start to it, the leaf included.

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
