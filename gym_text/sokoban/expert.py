"""The expert: A* over pushes."""

from __future__ import annotations

import heapq
from itertools import count

from gym_text.sokoban.rooms import MOVES, Room, shifted

_Position = tuple[int, int]
"""The boxes, and the cells to which the player can walk."""


def solve(room: Room, boxes: int, player: int) -> tuple[str, ...] | None:
    """Return the names of moves that bring all boxes to goals; None if no moves do.

    No other way needs fewer pushes. Between two pushes the player takes a shortest way. There may be a way with more pushes and
    fewer moves in all. The same position gives the same moves.
    """
    start = boxes, room.reach(player, boxes)
    pushes = {start: 0}
    came: dict[_Position, tuple[_Position, int, int]] = {}
    number = count()
    heap = [(room.bound(boxes), room.bound(boxes), next(number), start)]
    while heap:
        total, bound, _, position = heapq.heappop(heap)
        if not bound:
            return _moves(room, boxes, player, _way(came, position))
        if pushes[position] + bound < total:  # it was reached with fewer pushes since
            continue
        for box, step in room.pushes(*position):
            after = position[0] ^ (box | shifted(box, step))
            if room.is_lost(after):
                continue
            reached = after, room.reach(box, after)
            done = pushes[position] + 1
            if done < pushes.get(reached, done + 1):
                pushes[reached], came[reached] = done, (position, box, step)
                left = room.bound(after)
                heapq.heappush(heap, (done + left, left, next(number), reached))
    return None


def _way(came: dict[_Position, tuple[_Position, int, int]], position: _Position) -> list[tuple[int, int]]:
    """Return the pushes that led to a position."""
    way = []
    while position in came:
        position, box, step = came[position]
        way.append((box, step))
    return way[::-1]


def _moves(room: Room, boxes: int, player: int, pushes: list[tuple[int, int]]) -> tuple[str, ...]:
    """Return the names of the moves that make the pushes, with a shortest walk to each."""
    names: list[str] = []
    for box, step in pushes:
        names += [MOVES[move] for move in _walk(room, boxes, player, shifted(box, -step))]
        names.append(MOVES[room.steps.index(step)])
        boxes, player = boxes ^ (box | shifted(box, step)), box
    return tuple(names)


def _walk(room: Room, boxes: int, player: int, target: int) -> list[int]:
    """Return the indices of the moves of a shortest walk that pushes no box; the target can be reached."""
    rings, free = [player], room.floor & ~boxes
    while not rings[-1] & target:
        near = 0
        for step in room.steps:
            near |= shifted(rings[-1], step)
        rings.append(near & free)
    moves = []
    for ring in reversed(rings[:-1]):
        move = next(move for move, step in enumerate(room.steps) if shifted(target, -step) & ring)
        target = shifted(target, -room.steps[move])
        moves.append(move)
    return moves[::-1]
