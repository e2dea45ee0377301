"""Runs TextArena's games: each with a random generator of its own, without printing, and with texts in printable ASCII.

The games are those of TextArena (Guertler et al. 2025, https://arxiv.org/abs/2504.11442), package textarena 0.7.4. They seed
Python's global generator and draw from it, and some print. Therefore this module replaces the names ``random`` and ``print`` in the
modules of a game: games and other code no longer change each other's random numbers. A game that ``textarena.make`` makes
elsewhere draws from the global generator as before.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import logging
import random
import re
import sys
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any

from gym_text.errors import EngineError, import_extra
from gym_text.textarena.moves import MOVES

_logger = logging.getLogger(__name__)
_LONGEST_ACTION = 4000
"""Most characters of an action that a game gets, as Python refuses to read numbers of more than 4,300 digits."""
NO_MOVE = "[pass]"
"""The only valid action if no move is legal. Othello passes; Sokoban answers that the move is invalid."""
_SIGNS = str.maketrans(
    {
        **{"♠": "S", "♣": "C", "♥": "H", "♦": "D"},  # suits
        **{"●": "*", "○": "o", "•": "-", "·": ".", "√": "V", "×": "x", "±": "+/-"},
        **{"→": "->", "➜": "->", "←": "<-", "‑": "-", "–": "-", "—": "-", "─": "-", "│": "|"},
        **{"‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "🎉": "", "\ufe0f": ""},
    }
)
"""ASCII in place of the games' other signs; different signs of a board stay different."""
_OTHER = re.compile(r"[^\t\n -~]")
"""A character that is not printable ASCII."""

_playing = threading.local()
"""Its attribute ``random`` is the generator of the game that runs now in this thread."""


class _GameRandom:
    """Replaces the module ``random`` in the games: it draws from the generator of the game that runs."""

    def __getattr__(self, name: str) -> Any:
        generator = getattr(_playing, "random", None)
        return getattr(generator if hasattr(generator, name) else random, name)


def check_installed() -> None:
    """Import TextArena, and undo what the import does to the global generator.

    Raises:
        MissingDependencyError: If TextArena is not installed.
    """
    state = random.getstate()
    try:
        import_extra("textarena", "textarena")
    finally:
        random.setstate(state)


def known_ids() -> list[str]:
    """Return TextArena's ids, without ``-raw`` and ``-train``, whose games differ only in the form of the observation."""
    registration = importlib.import_module("textarena.envs.registration")
    return [name for name in registration.ENV_REGISTRY if "-raw" not in name and "-train" not in name]


class Arena:
    """Plays a game of TextArena, episode after episode.

    Args:
        game: TextArena's id, such as ``Nim-v0-large``.
        players: Number of players.
    """

    def __init__(self, game: str, players: int) -> None:
        self.game = game
        self._players = players
        self._random = random.Random()
        self._moves = MOVES.get(base_name(game))
        self._env: Any = None
        self._core: Any = None

    def start(self, seed: int) -> None:
        """Begin the game of a seed."""
        with self._running("start"):
            textarena = import_extra("textarena", "textarena")
            module, _, _ = textarena.envs.registration.ENV_REGISTRY[self.game].entry_point.partition(":")
            _adopt(module)
            self._random.seed(seed)
            self._env = self._core = textarena.make(self.game)  # a new object, so that nothing of the last episode is left
            while hasattr(self._core, "env"):
                self._core = self._core.env
            self._core.reset(num_players=self._players, seed=seed)

    def fork(self) -> Arena:
        """Return a copy of the running game, which changes apart from this one."""
        twin = copy.copy(self)
        twin._env, twin._core = copy.deepcopy((self._env, self._core))
        twin._random = random.Random()
        twin._random.setstate(self._random.getstate())  # deepcopy would copy each of the state's 625 numbers
        return twin

    @property
    def player(self) -> int:
        """The number of the player whose turn it is."""
        return int(self._core.state.current_player_id)

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return bool(self._core.state.done)

    def moves(self) -> tuple[str, ...]:
        """Return the moves that the game accepts now, sorted; `NO_MOVE` if there is none."""
        assert self._moves is not None
        with self._running("legal moves"):
            return tuple(sorted(self._moves(self._core))) or (NO_MOVE,)

    def play(self, action: str) -> bool:
        """Play an action of the player whose turn it is; return whether the game accepted it."""
        player = self.player
        with self._running("move"):
            self._env.step(action[:_LONGEST_ACTION])
        return self._core.state.error_count == 0 and not self._core.state.game_info[player]["invalid_move"]

    def messages(self, player: int) -> tuple[str, str]:
        """Return the messages to a player since the last call for this player.

        They are the rules and the task, which are empty except at the start, and all others without the player's own.
        """
        kinds = sys.modules["textarena"].ObservationType
        state = self._core.state
        observations, state.observations[player] = state.observations[player], []
        prompts = [message for _, message, kind in observations if kind is kinds.PROMPT]
        texts = []
        for sender, message, kind in observations:
            if not isinstance(kind, kinds):
                continue  # Countdown, Cryptarithm and Slitherlink store an action with message and kind in the wrong order
            if kind is kinds.PLAYER_ACTION and sender == 1 - player and self._players == 2:
                texts.append(f"[{state.role_mapping.get(sender, f'Player {sender}')}] {message}")
            elif kind not in (kinds.PROMPT, kinds.PLAYER_ACTION):
                texts.append(str(message))
        return printable("\n".join(prompts)).strip(), printable("\n".join(texts)).strip("\n")

    def ending(self, player: int) -> tuple[float, str]:
        """Return how the game has ended for a player: TextArena's reward, and its reason in words.

        The reward is up to 1 for one player, -1, 0 or 1 for two.
        After an invalid move Countdown, Cryptarithm, Slitherlink and ThreeCardMonte store the reason as the reward; the reward of
        such an ending is 0.
        """
        reward = (self._core.state.rewards or {}).get(player, 0)
        reason = self._core.state.game_info[player].get("reason") or ""
        if isinstance(reward, str):
            reward, reason = 0.0, f"Invalid Move: {reward}"
        return float(reward), printable(str(reason))

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Let the games of this thread draw from this game's generator, and raise their errors as `EngineError`."""
        before, _playing.random = getattr(_playing, "random", None), self._random
        try:
            yield
        except Exception as error:
            raise EngineError(
                f"TextArena's {self.game}: its {what} failed with {type(error).__name__}: {error}. Play another seed or game."
            ) from error
        finally:
            _playing.random = before


def base_name(game: str) -> str:
    """Return the name of a game without version and variant: ``Nim`` of ``Nim-v0-large``."""
    return game.partition("-v")[0]


def printable(text: str) -> str:
    """Return a text in printable ASCII: the games' signs by `_SIGNS`, letters without accents, else question marks."""
    if not _OTHER.search(text):
        return text
    plain = unicodedata.normalize("NFKD", text.translate(_SIGNS))
    return _OTHER.sub("?", "".join(sign for sign in plain if not unicodedata.combining(sign)))


@functools.cache
def _adopt(game: str) -> None:
    """Import a game's module, and replace ``random`` and ``print`` in all modules that came with it."""
    importlib.import_module(game)
    for name, module in list(sys.modules.items()):
        if name.startswith("textarena.") and not hasattr(module, "print"):
            if getattr(module, "random", None) is random:
                module.random = _GAME_RANDOM  # type: ignore[attr-defined]
            module.print = _log  # type: ignore[attr-defined]


def _log(*words: object, **options: object) -> None:
    _logger.debug("textarena: %s", " ".join(map(str, words)))


_GAME_RANDOM = _GameRandom()
