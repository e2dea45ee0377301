"""Reads the agent's view from the grid, and describes it in sentences.

The wording of `describe` and its order are those of the text form of BabyAI that the language-model literature uses (Carta et
al. 2023, "Grounding Large Language Models in Interactive Environments with Online Reinforcement Learning"; BALROG).

The view has the cells of minigrid's ``gen_obs_grid``. For speed it is read directly from the grid, without slicing, copying or
turning it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

_SIZE = 7
_MIDDLE = _SIZE // 2
_CELLS = tuple((right, ahead) for right in range(-_MIDDLE, _MIDDLE + 1) for ahead in reversed(range(_SIZE)))
"""The cells of the view as steps (right, ahead) from the agent: columns from left to right, in each the far cells first."""
_ROWS = tuple(tuple(_CELLS.index((right, ahead)) for right in range(-_MIDDLE, _MIDDLE + 1)) for ahead in range(_SIZE))
"""The indices in `_CELLS` of each row's cells, from left to right; the near rows first."""
_LINES = {
    "forward": tuple(_CELLS.index((0, steps)) for steps in range(1, _SIZE)),
    "left": tuple(_CELLS.index((-steps, 0)) for steps in range(1, _MIDDLE + 1)),
    "right": tuple(_CELLS.index((steps, 0)) for steps in range(1, _MIDDLE + 1)),
}
"""The indices in `_CELLS` of the cells straight ahead of the agent and beside it, the near cells first."""
_OFFSETS = tuple(
    tuple((x * ahead - y * right, y * ahead + x * right) for right, ahead in _CELLS) for x, y in ((1, 0), (0, 1), (-1, 0), (0, -1))
)
"""For each direction that the agent can face: the cells of the view as offsets in the grid from the agent."""
SCENERY = ("wall", "floor", "goal", "lava")


class View(NamedTuple):
    """What the agent sees."""

    things: list[Any]
    """The object in each cell, in the order of `_CELLS`. None for a cell that is empty or unseen, and for the agent's own cell."""
    lit: list[int]
    """The visible columns of each row, one bit for each column; the near rows first."""
    position: tuple[int, int] = (0, 0)
    """Where the agent stands, and which way it faces."""
    direction: int = 0

    def cells(self) -> Iterator[tuple[int, int]]:
        """Yield the positions in the grid of the cells that the agent sees."""
        offsets = _OFFSETS[self.direction]
        for row, lit in zip(_ROWS, self.lit, strict=False):
            for column, index in enumerate(row):
                if lit >> column & 1:
                    yield self.position[0] + offsets[index][0], self.position[1] + offsets[index][1]


def look(game: Any) -> View:
    """Return the view of the agent in a minigrid game. The grid has a wall around it, so nothing beyond is visible."""
    cells, width, height = game.grid.grid, game.grid.width, game.grid.height
    x0, y0 = map(int, game.agent_pos)
    direction = int(game.agent_dir)
    offsets = _OFFSETS[direction]
    view, lit = View([None] * len(_CELLS), [], (x0, y0), direction), 1 << _MIDDLE
    for row in _ROWS:
        things, opaque = [], 0
        for column, index in enumerate(row):
            x, y = offsets[index]
            x, y = x0 + x, y0 + y
            if not (0 <= x < width and 0 <= y < height):
                opaque |= 1 << column
            elif (thing := cells[y * width + x]) is not None:
                things.append((column, index, thing))
                if not thing.see_behind():
                    opaque |= 1 << column
        lit, ahead = _spread(lit, opaque)
        view.lit.append(lit)
        for column, index, thing in things:
            if lit >> column & 1:
                view.things[index] = thing
        lit = ahead
        if not lit:
            break
    view.things[_ROWS[0][_MIDDLE]] = None
    return view


@cache
def _spread(lit: int, opaque: int) -> tuple[int, int]:
    """Spread a row's visible columns to both sides and to the row ahead, as minigrid's ``process_vis`` does; return both rows."""
    ahead = 0
    for columns, side in ((range(_SIZE - 1), 1), (range(_SIZE - 1, 0, -1), -1)):
        for column in columns:
            if lit >> column & 1 and not opaque >> column & 1:
                lit |= 1 << column + side
                ahead |= 1 << column + side | 1 << column
    return lit, ahead


def describe(view: View, carrying: Any) -> str:
    """Describe what the agent carries, the walls straight ahead and beside it, and every object in view.

    Returns:
        One sentence a line; empty if there is nothing to say.
    """
    lines = [f"You carry a {carrying.color} {carrying.type}"] if carrying else []
    for direction, line in _LINES.items():
        for steps, index in enumerate(line, 1):
            if (thing := view.things[index]) is not None:
                if thing.type == "wall":
                    lines.append(f"a wall {_steps(steps)} {direction}")
                break
    for index, thing in enumerate(view.things):
        if thing is not None and thing.type not in SCENERY:
            lines.append(f"a {name(thing)} {_POSITIONS[index]}")
    return "\n".join(lines)


def name(thing: Any) -> str:
    """Return the name of an object; a door's name has its state."""
    if thing.type != "door":
        return f"{thing.color} {thing.type}"
    state = "open" if thing.is_open else "locked" if thing.is_locked else "closed"
    return f"{state} {thing.color} door"


def _position(right: int, ahead: int) -> str:
    """Return the position of a cell in words; a negative `right` is to the left, `ahead` is never negative."""
    side = f"{_steps(abs(right))} {'right' if right > 0 else 'left'}" if right else ""
    forward = f"{_steps(ahead)} forward" if ahead else ""
    return " and ".join(part for part in (side, forward) if part)


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"


_POSITIONS = tuple(_position(*cell) for cell in _CELLS)
