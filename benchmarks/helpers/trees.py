"""A picture of a search: what a policy that looks ahead has tried before one decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import FancyBboxPatch

from gym_text_policies.policies.tree_search import Node

INK, FAINT, LINE = "#202124", "#686b70", "#b9bcc0"
ENDS = {"won": ("#dff0e3", "#1e7a46"), "lost": ("#f6e4da", "#9e3b00"), "": ("#ffffff", INK)}
"""How the last state of a box ends -> the colours of the box and of this word."""
WIDTH, HEIGHT, GAP = 3.8, 0.82, 0.6
"""Size of a box, and the gap to the next one, where a row is 1 high."""
MOST = 28
"""Most characters of an action."""


@dataclass(frozen=True)
class Box:
    """Actions of which each was the only one that was tried after the one before."""

    names: tuple[str, ...]
    prior: float
    """Probability of the first action."""
    first: Node
    """The state after the first action."""
    last: Node
    """The state after the last action."""
    column: int
    row: float
    parent_row: float

    @property
    def end(self) -> str:
        """How its last state ends: a key of `ENDS`."""
        return "won" if self.last.won else "" if self.last.names else "lost"

    @property
    def text(self) -> str:
        """The first action, the number of those between, and the last one."""
        between = len(self.names) - 2
        shown = [self.names[0], *[f"… {between} more …"] * (between > 0), *self.names[1:][-1:]]
        return "\n".join(name if len(name) <= MOST else f"{name[:MOST]}…" for name in shown)

    @property
    def figures(self) -> str:
        """Prior, visits and value of the first action."""
        return f"prior {self.prior:.2f}\nvisits {self.first.visits}\nvalue {self.first.value:.2f}"


def draw_tree(axis: Any, root: Node, taken: str) -> None:
    """Draw the tree of a search from left to right, the most tried actions on top.

    Args:
        axis: Axes of matplotlib.
        root: The present state, after the search.
        taken: The action that was taken.
    """
    boxes = list(_boxes(root, 0, 0.0))
    for box in boxes:
        _draw(axis, box, is_taken=not box.column and box.names[0] == taken)
    columns, rows = max(box.column for box in boxes) + 1, max(box.row for box in boxes) + 1
    axis.set(xlim=(-0.05, columns * (WIDTH + GAP) - GAP + 0.05), ylim=(rows, -0.05))
    axis.axis("off")


def _boxes(node: Node, column: int, row: float) -> Iterator[Box]:
    """Yield the boxes after a state, from a row down."""
    parent_row = row
    for name in sorted(_tried(node), key=lambda name: -node.children[name].visits):
        names, last = [name], node.children[name]
        while len(following := _tried(last)) == 1:
            names += following
            last = last.children[following[0]]
        yield Box(tuple(names), node.prior[name], node.children[name], last, column, row, parent_row)
        below = row
        for box in _boxes(last, column + 1, row):
            yield box
            below = max(below, box.row)
        row = below + 1


def _tried(node: Node) -> list[str]:
    return [name for name, child in node.children.items() if child.visits]


def _draw(axis: Any, box: Box, *, is_taken: bool) -> None:
    x, y = box.column * (WIDTH + GAP), box.row
    paper, colour = ENDS[box.end]
    edge = {"edgecolor": INK, "linewidth": 2.2} if is_taken else {"edgecolor": LINE, "linewidth": 1}
    shape = "round,pad=0,rounding_size=0.08"
    axis.add_patch(FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle=shape, facecolor=paper, **edge))
    if box.column:
        middle = (HEIGHT / 2 + box.parent_row, HEIGHT / 2 + y)
        axis.plot((x - GAP, x - GAP / 2, x - GAP / 2, x), (middle[0], *middle, middle[1]), color=LINE, linewidth=1)
    style = {"va": "top", "linespacing": 1.3, "fontsize": 7.5}
    axis.text(x + 0.1, y + 0.1, box.text, color=INK, **style)
    axis.text(x + WIDTH - 0.1, y + 0.1, box.figures, ha="right", color=FAINT, **style)
    axis.text(x + WIDTH * 0.66, y + 0.1, box.end, ha="right", color=colour, fontweight="bold", **style)
