"""The picture of a room: a square for each cell."""

from __future__ import annotations

import numpy as np

from gym_text.sokoban.rooms import Room, bits

_CELL = 40
"""Size of a cell in pixels."""
_WALL, _FLOOR, _GOAL, _BOX, _HOME, _PLAYER = (
    *((88, 92, 100), (236, 232, 222), (200, 70, 60)),
    *((176, 124, 62), (84, 148, 84), (26, 82, 118)),
)


def draw(room: Room, boxes: int, player: int) -> np.ndarray:
    """Return the picture, uint8 of shape (height, width, 3).

    Goals are red, boxes brown, boxes on a goal green; the player is blue.
    """
    picture = np.full((room.height * _CELL, room.width * _CELL, 3), _WALL, np.uint8)
    down, across = np.mgrid[:_CELL, :_CELL] - (_CELL - 1) / 2
    square, round_ = np.maximum(abs(down), abs(across)), np.hypot(down, across)
    for cell in bits(room.floor):
        row, column = room.cell(cell)
        tile = picture[row * _CELL : (row + 1) * _CELL, column * _CELL : (column + 1) * _CELL]
        tile[:] = _FLOOR
        tile[square > _CELL / 2 - 1] = [shade - 14 for shade in _FLOOR]
        if cell & room.goals:
            tile[round_ < 7] = _GOAL
        if cell & boxes:
            colour = _HOME if cell & room.goals else _BOX
            tile[square < 16] = [shade - 40 for shade in colour]
            tile[square < 13] = colour
        if cell & player:
            tile[(round_ < 14) & ((round_ > 7) | (not cell & room.goals))] = _PLAYER
    return picture
