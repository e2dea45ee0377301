"""Which of TextArena's games can be played here, by TextArena's ids; docs/worlds.md says why the others cannot."""

from __future__ import annotations

from functools import cache

from gym_text.errors import UsageError, unknown_choice
from gym_text.textarena.engine import base_name, known_ids
from gym_text.textarena.moves import MOVES

ONE_PLAYER = (
    *("2048", "Blackjack", "Countdown", "Cryptarithm", "FrozenLake", "GuessTheNumber", "LightsOut", "Mastermind", "Minesweeper"),
    *("PegJump", "RushHour", "Secretary", "Slitherlink", "Sokoban", "Sudoku", "ThreeCardMonte", "TowerOfHanoi"),
)
TWO_PLAYERS = (
    *("Breakthrough", "Chopsticks", "ColonelBlotto", "ConnectFour", "GameOfPureStrategy", "IteratedPrisonersDilemma"),
    *("IteratedRockPaperScissors", "IteratedTwoThirdsAverage", "KuhnPoker", "Nim", "Othello", "PigDice", "SimpleNegotiation"),
    *("SimpleTak", "TicTacToe", "TruthAndDeception", "WildTicTacToe"),
)
_SLOW = ("Sokoban-v0-medium", "Sudoku-v0-hard")
"""Variants of which a level takes 35 and 14 seconds to make."""


@cache
def games(players: int) -> tuple[str, ...]:
    """Return TextArena's ids of the games for one player or for two, variants included."""
    names = ONE_PLAYER if players == 1 else TWO_PLAYERS
    return tuple(sorted(name for name in known_ids() if base_name(name) in names and name not in _SLOW))


def check_game(game: str, players: int) -> None:
    """Raise `UsageError` unless a game can be played; the message suggests other names."""
    other, env_id = (2, "TextArenaTwoPlayers-v0") if players == 1 else (1, "TextArenaText-v0")
    if game in games(other):
        raise UsageError(f"game: {game} is for {'two players' if other == 2 else 'one player'}; make {env_id} with it.")
    if game not in games(players):
        error = unknown_choice("game", game, games(players), preferred=[name for name in games(players) if name.endswith("-v0")])
        raise UsageError(f"{error} docs/worlds.md says which games are left out, and why.")


def lists_moves(game: str) -> bool:
    """Return whether a game's legal moves can be listed."""
    return base_name(game) in MOVES
