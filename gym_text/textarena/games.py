"""Which of TextArena's games can be played here, by TextArena's ids, and why the others cannot."""

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
_NLTK = "it needs NLTK's word lists, which are downloaded at run time"
_JUDGE = "a language model of a provider takes part in it or judges it"
_PYTHON = "its module is not valid Python 3.11"
_SEVERAL = "several marks in one action have an effect that differs from process to process"
LEFT_OUT = {
    **dict.fromkeys(("DontSayIt", "Hangman", "LetterAuction", "SpellingBee", "WordChains", "WordLadder", "WordSearch"), _NLTK),
    **dict.fromkeys(("Wordle",), _NLTK),
    **dict.fromkeys(("Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions"), _JUDGE),
    **dict.fromkeys(("Checkers", "Chess", "ReverseTicTacToe"), _PYTHON),
    **dict.fromkeys(("Crosswords", "LogicPuzzle"), _SEVERAL),
    "BabyAiText": "BabyAIText-v0 is that game, on stock minigrid",
    "Bandit": "its reward for a wrong button is higher for a worse button",
    "FifteenPuzzle": "half of its boards cannot be solved, and it raises an error when a board is solved",
    "IteratedMatchingPennies": "it shows the first player's choice to the second",
    "Klondike": "its reward is a number of cards, up to 52",
    "Set": "its reward is a number of sets, up to 20",
    "UltimateTexasHoldem": "a game lasts 1,000 rounds",
    "UltimateTicTacToe": "it does not end when the board in which a player must move is full and undecided",
    "UsedCarNegotiation": "both players get a share instead of a win, and accepting an offer that nobody has made ends it",
}
"""The reason why a game is left out, by the game's name. Games in none of these lists are for more players, or were not tried."""
_SLOW = {"Sokoban-v0-medium": "35 seconds", "Sudoku-v0-hard": "14 seconds"}
"""Variants whose levels take too long to make, with the mean time for a level."""


@cache
def games(players: int) -> tuple[str, ...]:
    """Return TextArena's ids of the games for one player or for two, variants included."""
    names = ONE_PLAYER if players == 1 else TWO_PLAYERS
    return tuple(sorted(name for name in known_ids() if base_name(name) in names and name not in _SLOW))


def check_game(game: str, players: int) -> None:
    """Raise `UsageError` unless a game can be played; the message says why not, or suggests other names."""
    playable = games(players)
    if game in playable:
        return
    base = base_name(str(game))
    if game in _SLOW:
        raise UsageError(f"game: {game} is left out: one of its levels takes {_SLOW[game]} to make. Take {base}-v0.")
    if base in LEFT_OUT:
        raise UsageError(f"game: {base} is left out: {LEFT_OUT[base]}. docs/worlds.md lists the games.")
    other, env_id = (2, "TextArenaTwoPlayers-v0") if players == 1 else (1, "TextArenaText-v0")
    if game in games(other):
        raise UsageError(f"game: {game} is for {'two players' if other == 2 else 'one player'}; make {env_id} with it.")
    raise unknown_choice("game", game, playable, preferred=[name for name in playable if name.endswith("-v0")])


def lists_moves(game: str) -> bool:
    """Return whether a game's legal moves can be listed."""
    return base_name(game) in MOVES
