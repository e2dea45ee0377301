"""Draws anew where the objects lie that the player of a minigrid game has not seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from minigrid.envs.babyai.core.verifier import PutNextInstr, SeqInstr

Cell = tuple[int, int]

_TRIES = 30
"""Most draws for one copy; a draw that would block the way to an object is repeated."""
_DESCRIPTIONS = ("desc", "desc_move", "desc_fixed")
"""Attributes in which minigrid's instructions keep the descriptions of their objects."""


def draw_unseen(game: Any, seen: Collection[Cell], rng: np.random.Generator) -> None:
    """Move the balls, keys and boxes in unseen cells to unseen cells at random, and change the game in place.

    What stays: all that lies in seen cells, walls, doors, the number, kinds and colours of all objects, and what is in the boxes.
    An object does not cross a locked door, so that no key comes to lie behind its own door. Objects of the kind and colour that the
    mission names with a place ("on your left") stay where they are. If every object could be reached without moving another one,
    that stays so; if not one of 30 draws keeps it, nothing moves.

    Args:
        game: A game of minigrid in an episode.
        seen: The cells that the player has seen in this episode.
        rng: Draws the places.
    """
    parts = [(cells, [thing for cell in cells if (thing := game.grid.get(*cell))]) for cells in _hidden_parts(game, seen)]
    before, was_fair = game.grid.grid, _fairness(game)
    for _ in range(_TRIES):
        game.grid.grid = before.copy()
        for cells, things in parts:
            _place(game, cells, things, rng)
        game.update_objs_poss()
        if all(now >= then for now, then in zip(_fairness(game), was_fair, strict=True)):
            return
    game.grid.grid = before
    for cells, _ in parts:
        for cell in cells:
            _note_place(game.grid.get(*cell), cell)
    game.update_objs_poss()


def _place(game: Any, cells: list[Cell], things: list[Any], rng: np.random.Generator) -> None:
    """Put things into some of the cells at random; the other cells become empty."""
    for cell in cells:
        game.grid.set(*cell, None)
    for thing, index in zip(things, rng.choice(len(cells), len(things), replace=False), strict=True):
        game.grid.set(*cells[index], thing)
        _note_place(thing, cells[index])


def _note_place(thing: Any, cell: Cell) -> None:
    if thing is not None:
        thing.init_pos = thing.cur_pos = cell


def _hidden_parts(game: Any, seen: Collection[Cell]) -> Iterator[list[Cell]]:
    """Yield the unseen cells without scenery, part by part of the level; locked doors and walls divide it."""
    fixed = {(wanted.type, wanted.color) for wanted in _descriptions(game.instrs) if wanted.loc}
    left = {(x, y) for x in range(game.grid.width) for y in range(game.grid.height) if _is_passable(game.grid.get(x, y))}
    while left:
        part, edge = [], [min(left)]
        left.discard(edge[0])
        while edge:
            x, y = edge.pop()
            part.append((x, y))
            neighbours = {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)} & left
            left -= neighbours
            edge += sorted(neighbours)
        hidden = [cell for cell in part if cell not in seen and cell != tuple(game.agent_pos)]
        yield [cell for cell in hidden if _is_movable(game.grid.get(*cell), fixed)]


def _is_passable(thing: Any) -> bool:
    return thing is None or not (thing.type == "wall" or (thing.type == "door" and thing.is_locked))


def _is_movable(thing: Any, fixed: Collection[tuple[Any, Any]]) -> bool:
    """Return whether a cell is empty, or has an object that no description of the mission ties to its place."""
    if thing is None:
        return True
    return thing.can_pickup() and not any(kind in (None, thing.type) and color in (None, thing.color) for kind, color in fixed)


def _descriptions(instruction: Any) -> Iterator[Any]:
    """Yield the descriptions of objects in an instruction."""
    if isinstance(instruction, SeqInstr):
        yield from _descriptions(instruction.instr_a)
        yield from _descriptions(instruction.instr_b)
    else:
        yield from (getattr(instruction, name) for name in _DESCRIPTIONS if hasattr(instruction, name))


def _fairness(game: Any) -> tuple[bool, bool]:
    """Return whether every object can be reached without moving another, and whether no objects lie as the mission wants them."""
    return bool(game.check_objs_reachable(raise_exc=False)), not any(part.objs_next() for part in _put_next(game.instrs))


def _put_next(instruction: Any) -> Iterator[PutNextInstr]:
    if isinstance(instruction, SeqInstr):
        yield from _put_next(instruction.instr_a)
        yield from _put_next(instruction.instr_b)
    elif isinstance(instruction, PutNextInstr):
        yield instruction
