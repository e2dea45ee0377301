"""The state of a game of Sokoban, in characters, in words or as a picture."""

from __future__ import annotations

import numpy as np

from gym_text.sokoban.rooms import MOVES, Room, bits, shifted

SIGNS = {"#": "wall", "-": "floor", ".": "goal", "$": "box", "*": "box on a goal", "@": "you", "+": "you on a goal"}
"""The characters of a room, which most programs for Sokoban use, and what each means."""
_CELL = 40
"""Size of a cell in pixels."""
_WALL, _FLOOR, _GOAL, _BOX, _HOME, _PLAYER = (
    *((88, 92, 100), (236, 232, 222), (200, 70, 60)),
    *((176, 124, 62), (84, 148, 84), (26, 82, 118)),
)


def grid(room: Room, boxes: int, player: int) -> str:
    """Return the room in characters, a line for each row, with spaces between the cells."""
    cells = [1 << place for place in range(room.width * room.height)]
    signs = [_sign(room, boxes, player, cell) for cell in cells]
    return "\n".join(" ".join(signs[start : start + room.width]) for start in range(0, len(signs), room.width))


def words(room: Room, boxes: int, player: int) -> str:
    """Return the whole state in words: where the player, the boxes, the goals and the floor are."""
    row, column = room.cell(player)
    lines = [f"You are in row {row}, column {column}{', on a goal' if player & room.goals else ''}."]
    for box in bits(boxes):
        lines.append(f"Box: {_where(room, box, player)}{', on a goal' if box & room.goals else ''}.")
    lines += [f"Goal: {_where(room, goal, player)}." for goal in bits(room.goals & ~boxes & ~player)]
    return "\n".join([*lines, f"Floor: {_floor(room)}. All else is wall."])


def around(room: Room, boxes: int, player: int) -> str:
    """Return what lies in each direction beside the player, and what lies beyond a box there."""
    parts = []
    for name, step in zip(MOVES, room.steps, strict=True):
        beside = shifted(player, step)
        text = SIGNS[_sign(room, boxes, 0, beside)]
        if beside & boxes:
            text += f", beyond it {SIGNS[_sign(room, boxes, 0, shifted(beside, step))]}"
        parts.append(f"{name.removeprefix('move ').capitalize()}: {text}.")
    return " ".join(parts)


def _sign(room: Room, boxes: int, player: int, cell: int) -> str:
    """Return the character of a cell."""
    if not cell & room.floor:
        return "#"
    plain, on_goal = "$*" if cell & boxes else "@+" if cell & player else "-."
    return on_goal if cell & room.goals else plain


def _where(room: Room, cell: int, player: int) -> str:
    """Return the place of a cell: its row and column, and its steps from the player."""
    (row, column), (own_row, own_column) = room.cell(cell), room.cell(player)
    steps = [
        f"{abs(number)} {'step' if abs(number) == 1 else 'steps'} {before if number < 0 else after}"
        for number, before, after in ((row - own_row, "up", "down"), (column - own_column, "left", "right"))
        if number
    ]
    return f"row {row}, column {column}, {' and '.join(steps)}"


def _floor(room: Room) -> str:
    """Return the columns of each row that have no wall."""
    parts = []
    for row in range(room.height):
        columns = [column for column in range(room.width) if room.floor >> row * room.width + column & 1]
        if columns:
            parts.append(f"row {row}, columns {' '.join(map(str, columns))}")
    return "; ".join(parts)


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
