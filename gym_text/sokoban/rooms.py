"""Rooms of Sokoban: where the player can walk, which moves there are, and which positions are lost.

A set of cells is an integer with a bit for each cell, the rows one after the other. A wall surrounds the room, so that no shift of
the bits of a floor leads to another row.

The deadlocks are facts about the game that Junghanns and Schaeffer describe (2001, "Sokoban: Enhancing general single-agent search
methods using domain knowledge", https://doi.org/10.1016/S0004-3702(01)00109-6): squares from which a box reaches no goal, boxes
that no assignment brings to different goals, and boxes that block each other for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

MOVES = ("move up", "move down", "move left", "move right")
"""Names of the moves, in the order of `Room.steps`."""


def shifted(cells: int, step: int) -> int:
    """Return the cells that lie `step` cells further."""
    return cells << step if step > 0 else cells >> -step


def bits(cells: int) -> Iterator[int]:
    """Yield each cell of a set as a set of its own, from the upper left to the lower right."""
    while cells:
        cell = cells & -cells
        yield cell
        cells ^= cell


@dataclass(frozen=True)
class Room:
    """A room with its goals. What is said of boxes holds wherever the player stands."""

    width: int
    """Cells of a row, with the walls at both ends."""
    height: int
    """Number of rows, with the walls at both ends."""
    floor: int
    """The cells without a wall."""
    goals: int
    """The cells that need a box each."""
    _bounds: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    _lost: dict[int, bool] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """How many cells further each of `MOVES` leads."""
        return -self.width, self.width, -1, 1

    @cached_property
    def walls(self) -> int:
        """The cells with a wall."""
        return ((1 << self.width * self.height) - 1) & ~self.floor

    def cell(self, position: int) -> tuple[int, int]:
        """Return the row and the column of a cell, from 0."""
        return divmod(position.bit_length() - 1, self.width)

    def reach(self, player: int, boxes: int) -> int:
        """Return the cells to which the player can walk without a push."""
        free, region, width = self.floor & ~boxes, player, self.width
        while True:
            more = (region | region << 1 | region >> 1 | region << width | region >> width) & free
            if more == region:
                return region
            region = more

    def moved(self, boxes: int, player: int, step: int) -> tuple[int, int] | None:
        """Return the boxes and the player after a move; None if the move has no effect."""
        target = shifted(player, step)
        if not target & self.floor:
            return None
        if target & boxes:
            beyond = shifted(target, step)
            if not beyond & self.floor & ~boxes:
                return None
            boxes ^= target | beyond
        return boxes, target

    def pushes(self, boxes: int, region: int) -> Iterator[tuple[int, int]]:
        """Yield each push that a player in `region` can make now: the box and the step."""
        free = self.floor & ~boxes
        for step in self.steps:
            for box in bits(boxes & shifted(region, step) & shifted(free, -step)):
                yield box, step

    def pulls(self, boxes: int, region: int) -> Iterator[tuple[int, int]]:
        """Yield each pull by which a push can have led here: the box and the step that it takes."""
        free = self.floor & ~boxes
        for step in self.steps:
            for box in bits(boxes & shifted(region, -step) & shifted(free, -2 * step)):
                yield box, step

    @cached_property
    def distances(self) -> tuple[dict[int, int], ...]:
        """For each goal: from each cell, the fewest pushes that bring a lone box to the goal, wherever the player is needed."""
        found = []
        for goal in bits(self.goals):
            pushes, queue = {goal: 0}, [goal]
            for box in queue:
                for _, step in self.pulls(box, self.floor & ~box):
                    before = shifted(box, step)
                    if before not in pushes:
                        pushes[before] = pushes[box] + 1
                        queue.append(before)
            found.append(pushes)
        return tuple(found)

    @cached_property
    def dead(self) -> int:
        """The floor from which no push or pushes bring a box to a goal."""
        return self.floor & ~sum(set().union(*self.distances))

    def bound(self, boxes: int) -> float:
        """Return a number of pushes with which no player can do better; infinite if the boxes cannot reach different goals.

        It is the least sum of distances over the assignments of boxes to goals.
        """
        if boxes not in self._bounds:
            cells = tuple(bits(boxes))
            self._bounds[boxes] = min(
                sum(pushes.get(cell, math.inf) for pushes, cell in zip(self.distances, order, strict=True))
                for order in permutations(cells)
            )
        return self._bounds[boxes]

    def frozen(self, boxes: int) -> int:
        """Return boxes of which none can move again, unless a move of one loses the game.

        They are the largest set in which each box is blocked in rows and in columns: beside it is a wall or a box of the set, or
        the cells on both sides are dead.
        """
        stuck = boxes
        while True:
            solid, still = self.walls | stuck, stuck
            for step in (1, self.width):
                still &= solid << step | solid >> step | (self.dead << step & self.dead >> step)
            if still == stuck:
                return stuck
            stuck = still

    def is_lost(self, boxes: int) -> bool:
        """Return whether it is plain that these boxes cannot all reach goals.

        False does not say that they can: other positions are lost, too.
        """
        if boxes not in self._lost:
            self._lost[boxes] = self.bound(boxes) == math.inf or bool(self.frozen(boxes) & ~self.goals)
        return self._lost[boxes]
