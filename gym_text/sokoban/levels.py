"""Levels of Sokoban, made from a number by reverse play.

A generator carves a room, draws the goals, and begins with a box on each goal. It then plays backwards: the player pulls boxes at
random. Whoever pushes the boxes along the same way solves the level, so that every level can be won. This way to make rooms is that
of Racanière et al. (2017, "Imagination-Augmented Agents for Deep Reinforcement Learning", https://arxiv.org/abs/1707.06203), which
Schrader's gym-sokoban (https://github.com/mpSchrader/gym-sokoban) made known.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from gym_text.folds import FOLD_SIZE, FOLDS
from gym_text.sokoban.rooms import Room, bits, shifted

Size = Literal["small", "medium", "large"]


@dataclass(frozen=True)
class Shape:
    """What the rooms of a size have in common."""

    width: int
    """Cells of a row and of a column, with the walls at both ends."""
    floor: tuple[int, int]
    """Bounds of the number of cells without a wall; the last step of the carver may add one or two."""
    boxes: int
    """Number of boxes, and of goals."""
    pushes: int
    """Least sum of the boxes' distances to goals."""


SIZES: dict[Size, Shape] = {
    "small": Shape(width=7, floor=(12, 20), boxes=1, pushes=3),
    "medium": Shape(width=8, floor=(18, 28), boxes=2, pushes=6),
    "large": Shape(width=10, floor=(28, 46), boxes=3, pushes=10),
}
_PULLS = 40
"""Pulls in reverse play for each box."""
_STRAIGHT = 0.6
"""Probability that the carver keeps its direction, and that the player pulls the same box again."""


@dataclass(frozen=True)
class Level:
    """A room, and where its boxes and the player are at the start."""

    room: Room
    boxes: int
    player: int


@lru_cache(8)
def make_level(size: Size, number: int) -> Level:
    """Return the level of a number.

    Each fold has the numbers of one million, and the levels of one third: `third` says which. So no level of one fold is a level of
    another, not even turned, mirrored or with the player elsewhere. Numbers outside the folds have any levels.
    """
    rng, fold = np.random.default_rng(number), number // FOLD_SIZE - 1
    while True:
        level = _draw(SIZES[size], rng)
        if level is not None and (not 0 <= fold < len(FOLDS) or third(level) == fold):
            return level


def third(level: Level) -> int:
    """Return to which third of all levels a level belongs, the same for a level that is turned or mirrored."""
    room = level.room
    rows = [
        [
            sum(
                bool(cells >> row * room.width + column & 1) << bit
                for bit, cells in enumerate((room.floor, room.goals, level.boxes))
            )
            for column in range(room.width)
        ]
        for row in range(room.height)
    ]
    views = []
    for _ in range(4):
        rows = [list(row) for row in zip(*rows[::-1], strict=True)]
        views += [b"".join(map(bytes, rows)), b"".join(bytes(row[::-1]) for row in rows)]
    return hashlib.sha256(min(views)).digest()[0] % len(FOLDS)


def _draw(shape: Shape, rng: np.random.Generator) -> Level | None:
    """Draw a room and play in it backwards; None if that leads to no level that is long enough."""
    floor = _carve(shape, rng)
    goals = sum(_chosen(floor, shape.boxes, rng))
    room = Room(shape.width, shape.width, floor, goals)
    boxes, (player,) = goals, _chosen(floor & ~goals, 1, rng)
    best, last = (0.0, boxes, player), 0
    for _ in range(_PULLS * shape.boxes):
        pulls = list(room.pulls(boxes, room.reach(player, boxes)))
        again = [pull for pull in pulls if pull[0] == last]
        if again and rng.random() < _STRAIGHT:
            pulls = again
        if not pulls:
            break
        box, step = pulls[rng.integers(len(pulls))]
        last, player = shifted(box, step), shifted(box, 2 * step)
        boxes ^= box | last
        if not boxes & goals and room.bound(boxes) > best[0]:
            best = room.bound(boxes), boxes, player
    bound, boxes, player = best
    if bound < shape.pushes:
        return None
    (player,) = _chosen(room.reach(player, boxes), 1, rng)
    return Level(room, boxes, player)


def _carve(shape: Shape, rng: np.random.Generator) -> int:
    """Return a connected floor: a walk at random carves two by two cells at each step."""
    width, last, floor = shape.width, shape.width - 3, 0
    row, column = (int(place) for place in rng.integers(1, last + 1, 2))
    down, right = 0, 1
    least = rng.integers(shape.floor[0], shape.floor[1] + 1)
    while floor.bit_count() < least:
        block = 0b11 << row * width + column
        floor |= block | block << width
        if rng.random() >= _STRAIGHT:
            down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[rng.integers(4)]
        row, column = min(max(row + down, 1), last), min(max(column + right, 1), last)
    return floor


def _chosen(cells: int, number: int, rng: np.random.Generator) -> list[int]:
    """Draw different cells of a set."""
    listed = list(bits(cells))
    return [listed[place] for place in rng.permutation(len(listed))[:number]]
