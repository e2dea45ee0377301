"""The legal moves of TextArena's games, in the form of its actions.

TextArena tells players the form of a move, and in some games the moves, but has no function that lists them. These functions read
a game's state (textarena 0.7.4) and return every move that the game would accept now. They change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Moves = Callable[[Any], Iterable[str]]
"""Maps TextArena's environment, without its wrappers, to the moves that the game accepts now."""

_DIRECTIONS = ("up", "down", "left", "right")


def _always(*moves: str) -> Moves:
    return lambda game: moves


def _numbers(*numbers: object) -> str:
    return f"[{' '.join(map(str, numbers))}]"


# ---------------------------------------------------------------- one player


def _slides(game: Any) -> Iterator[str]:
    """2048: the directions in which something moves."""
    state = game.state.game_state
    board = state["board"]
    try:
        for number, direction in enumerate(_DIRECTIONS):
            state["board"] = [row[:] for row in board]
            if game._apply_move(number)[0]:
                yield f"[{direction}]"
    finally:
        state["board"] = board


def _sums(game: Any) -> Iterator[str]:
    """Countdown: two indices of the list of numbers, and an operation whose result is a whole number."""
    indices = range(len(game.numbers))
    for i, j in ((i, j) for i in indices for j in indices if i != j):
        yield from (_numbers(i, j, sign) for sign in game._OPS if game._execute_operation(i, j, sign) is not None)


def _assignments(game: Any) -> Iterator[str]:
    """Cryptarithm: a letter, and a digit that no other letter has."""
    for letter in game.letters:
        for digit in range(letter in game.first_letters, 10):
            if game.digit_used.get(digit, letter) == letter:
                yield _numbers(letter, digit)


def _walks(game: Any) -> Iterator[str]:
    """FrozenLake: steps that stay on the lake."""
    row, column = game.state.game_state["player_pos"]
    for name, (down, right) in game.actions.items():
        if 0 <= row + down < game.size and 0 <= column + right < game.size:
            yield f"[{name}]"


def _guesses(game: Any) -> Iterator[str]:
    """GuessTheNumber: the numbers that the player has not guessed."""
    return (_numbers(n) for n in range(game.min_number, game.max_number + 1) if n not in game.guessed_numbers)


def _lights(game: Any) -> Iterator[str]:
    return (_numbers(row, column) for row in range(game.size) for column in range(game.size))


def _covered(game: Any) -> Iterator[str]:
    """Minesweeper: the cells that are not revealed."""
    return (_numbers(r, c) for r, row in enumerate(game.revealed) for c, shown in enumerate(row) if not shown)


def _jumps(game: Any) -> Iterator[str]:
    """PegJump: a peg, and the hole that it jumps to."""
    board = game.state.game_state["board"]
    return (_numbers(start, end) for start, over, end in game.ALLOWED_MOVES if board[start] and board[over] and not board[end])


def _drives(game: Any) -> Iterator[str]:
    """RushHour: the cars that can move, forwards or backwards."""
    cars = game.state.game_state["vehicles"]
    for name, car in cars.items():
        yield from (f"[{name}{sign}]" for sign, forward in (("+", True), ("-", False)) if game._can_move(cars, car, forward))


def _edges(game: Any) -> Iterator[str]:
    """Slitherlink: every edge, to draw or to remove it."""
    for kind in "hv":
        for row in range(game.R + (kind == "h")):
            yield from (_numbers(kind, row, column) for column in range(game.C + (kind == "v")))


def _pushes(game: Any) -> Iterator[str]:
    """Sokoban: steps onto a free tile, or against a box that can move."""
    return (f"[{name}]" for name in game.action_space if not game._would_collide_with_wall(name))


def _cups(game: Any) -> Iterator[str]:
    return map(_numbers, range(game.num_cups))


def _disks(game: Any) -> Iterator[str]:
    """TowerOfHanoi: from a tower to another that is empty or has a larger disk on top."""
    towers = game.state.game_state["towers"]
    for source, target in ((a, b) for a in towers for b in towers if a != b and towers[a]):
        if not towers[target] or towers[target][-1] > towers[source][-1]:
            yield _numbers(source, target)


# ---------------------------------------------------------------- two players


def _empty_cells(game: Any) -> Iterator[str]:
    """A square board: the number of each empty cell, row by row."""
    cells = (cell for row in game.state.game_state["board"] for cell in row)
    return (_numbers(number) for number, cell in enumerate(cells) if not cell)


def _marks(game: Any) -> Iterator[str]:
    return (f"[{mark} {cell[1:]}" for cell in _empty_cells(game) for mark in "XO")


def _columns(game: Any) -> Iterator[str]:
    return (_numbers("col", c) for c, cell in enumerate(game.state.game_state["board"][0]) if cell == ".")


def _takes(game: Any) -> Iterator[str]:
    """Nim: a pile, and how many to take."""
    return (_numbers(i, n) for i, pile in enumerate(game.state.game_state["piles"]) for n in range(1, pile + 1))


def _stones(game: Any) -> Iterator[str]:
    """Othello: the cells where a new stone turns others. If there is no such cell, any action passes."""
    return (f"[{row}, {column}]" for row, column in game._valid_moves("WB"[game.state.current_player_id == 0]))


def _advances(game: Any) -> Iterator[str]:
    """Breakthrough: one step ahead, or a capture."""
    player, size = game.state.current_player_id, game.board_size
    step = 1 if player == 0 else -1
    for row, column in ((r, c) for r in range(size) for c in range(size) if 0 <= r + step < size):
        for aside in (column - 1, column, column + 1):
            if 0 <= aside < size and game._is_valid_move(player, row, column, row + step, aside):
                yield f"[{'abcdefghijklmnop'[column]}{row + 1}{'abcdefghijklmnop'[aside]}{row + 1 + step}]"


def _hands(game: Any) -> Iterator[str]:
    """Chopsticks: attacks between hands that are alive, and other divisions of the same fingers."""
    player, hands = game.state.current_player_id, game.state.game_state["hands"]
    for mine in (0, 1):
        yield from (_numbers("attack", mine, theirs) for theirs in (0, 1) if hands[player][mine] and hands[1 - player][theirs])
    fingers = sum(hands[player])
    yield from (_numbers("split", left, fingers - left) for left in range(fingers + 1) if left != hands[player][0])


def _bets(game: Any) -> Iterator[str]:
    return (f"[{name}]" for name in game.state.game_state["current_legal_action_tree"])


def _cards(game: Any) -> Iterator[str]:
    """GameOfPureStrategy: the cards in the player's hand."""
    return (f"[{game._val_to_face(card)}]" for card in game.state.game_state["player_hands"][game.state.current_player_id])


MOVES: dict[str, Moves] = {
    "2048": _slides,
    "Blackjack": _always("[Hit]", "[Stand]"),
    "Breakthrough": _advances,
    "Chopsticks": _hands,
    "ConnectFour": _columns,
    "Countdown": _sums,
    "Cryptarithm": _assignments,
    "FrozenLake": _walks,
    "GameOfPureStrategy": _cards,
    "GuessTheNumber": _guesses,
    "IteratedRockPaperScissors": _always("[paper]", "[rock]", "[scissors]"),
    "KuhnPoker": _bets,
    "LightsOut": _lights,
    "Minesweeper": _covered,
    "Nim": _takes,
    "Othello": _stones,
    "PegJump": _jumps,
    "PigDice": _always("[hold]", "[roll]"),
    "RushHour": _drives,
    "Secretary": _always("[accept]", "[continue]"),
    "SimpleTak": _empty_cells,
    "Slitherlink": _edges,
    "Sokoban": _pushes,
    "ThreeCardMonte": _cups,
    "TicTacToe": _empty_cells,
    "TowerOfHanoi": _disks,
    "WildTicTacToe": _marks,
}
"""The moves of each game, by the game's name. A game that is not here lists no moves."""
