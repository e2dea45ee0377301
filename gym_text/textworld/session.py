"""Plays one game file with TextWorld's own client."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gym_text.errors import EngineError, UsageError
from gym_text.textworld.level_files import import_textworld

_LONGEST = 198
"""Most characters of a command; the interpreter cuts longer ones and warns."""
_STATUS_LINE = re.compile(r"\s*>?\s*-= [^\n]* =-\d+/\d+\s*\Z")
"""The prompt and the status line, which the interpreter prints after each answer."""
_QUESTION_AT_THE_END = re.compile(r"\s*Would you like to RESTART, RESTORE a saved game, QUIT[^\n]*(\n>)?\s*\Z")
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")
_PARTS = re.compile(r"[.,;:]|\bthen\b", re.IGNORECASE)
_TO_THE_INTERPRETER = re.compile(
    r"\s*(restart|restore|save|quit|q|undo|script|transcript|noscript|unscript|recording|replay|verbose|brief|superbrief|long|short"
    r"|normal|full|notify|print_state|restrict|enable|disable|tw)\b",
    re.IGNORECASE,
)
"""Commands to the interpreter instead of the game: they would restart the game or change its output, and the tracker, which
follows the game's state, would not notice."""
_PUNCTUATION = str.maketrans("‘’“”–—…", "''\"\"--.")
_WON, _DONE = "*** The End ***", " - succeeded]"
"""Printed by the interpreter when the game is won, and, while it traces actions, after each action that had an effect."""


class SessionState(NamedTuple):
    """The game's answer to a command, and its state after it."""

    text: str
    """The game's answer."""
    look: str
    """The description of the present room."""
    inventory: str
    """The description of what the player carries."""
    valid_actions: tuple[str, ...]
    """TextWorld's admissible commands, sorted."""
    score: int
    """Points so far."""
    won: bool
    lost: bool
    moves: int
    """Number of commands so far that the tracker has understood."""
    policy: tuple[str, ...]
    """TextWorld's plan: commands that win from here. Empty if there is no such plan, or if the session makes no plans."""


class Session:
    """A game of TextWorld.

    Args:
        plans: Whether TextWorld makes a new plan at every step, which costs time.
    """

    def __init__(self, plans: bool) -> None:
        textworld = import_textworld()
        fields = ("feedback", "description", "inventory", "admissible_commands", "score", "max_score", "won", "lost", "moves")
        requested = dict.fromkeys((*fields, "objective", "game"), True)
        self._infos = textworld.EnvInfos(**requested, policy_commands=plans, extras=["walkthrough"])
        self._client: Any = None
        self._file: Path | None = None
        self.goal = ""
        self.most_points = 1
        """Points of a won game, at least 1."""
        self.walkthrough: tuple[str, ...] = ()
        """The maker's solution; empty if the file has none."""

    def start(self, file: Path) -> SessionState:
        """Begin the game of a story file whose ``.json`` lies beside it.

        Raises:
            EngineError: If TextWorld cannot read or play the file.
        """
        try:
            self._load(file)
            first = self._client.reset()
        except Exception as error:
            self.close()
            raise EngineError(f"{file}: expected a game of TextWorld's; it cannot be started: {error!r}.") from error
        self.goal = answer_of(first.objective or "")
        self.most_points = max(int(first.max_score or 0), 1)
        self.walkthrough = tuple(first.get("extra.walkthrough") or ())
        state = _state(first)
        # the first text begins with a title, drawn in letters, and the goal
        after_goal = state.text.rpartition(self.goal)[2].strip() if self.goal else ""
        return state._replace(text=after_goal or state.text)

    def step(self, command: str) -> SessionState:
        """Play a command that `command_of` has made.

        Raises:
            EngineError: If TextWorld fails.
        """
        try:
            return _state(self._client.step(command))
        except Exception as error:
            raise EngineError(f"TextWorld failed at the command {command!r}: {error!r}.") from error

    def policy(self) -> tuple[str, ...]:
        """Return TextWorld's plan for the loaded game from its start; empty if it has none."""
        from textworld.generator.game import GameProgression
        from textworld.generator.inform7 import Inform7Game

        assert self._client is not None
        game = self._client.state.game
        actions = GameProgression(game).winning_policy
        return tuple(Inform7Game(game).gen_commands_from_actions(actions)) if actions else ()

    def winning(self, commands: Sequence[str]) -> tuple[str, ...]:
        """Play commands from the start of the loaded game; return those that have an effect if they win, else nothing.

        This is fast, as the tracker does not follow the game. Call `start` before the next step.
        """
        game = self._client.unwrapped
        game.reset()
        game._send("tw-trace-actions")
        effective, won = [], False
        for command in commands:
            answer = game._send(command)
            effective += [command] * (_DONE in answer)  # a walkthrough may open an open door, which has no effect
            won = won or _WON in answer
        return tuple(effective) if won else ()

    def close(self) -> None:
        """Release the interpreter."""
        if self._client is not None:
            self._client.close()
        self._client = self._file = None

    def _load(self, file: Path) -> None:
        if file == self._file:
            return
        textworld = import_textworld()
        if self._client is None:
            self._client = textworld.start(str(file), self._infos)
        else:
            self._client.load(str(file))
        self._file = file


def check_game_file(file: str) -> Path:
    """Return the path of a game file that TextWorld has made, or raise `UsageError`."""
    path = Path(file).expanduser().resolve()
    if path.suffix != ".z8" or not path.is_file():
        raise UsageError(f"file: expected a story file that ends in .z8; got {file!r}. `tw-make` makes one.")
    if not path.with_suffix(".json").is_file():
        raise UsageError(
            f"file: expected {path.with_suffix('.json').name} beside {path.name}, as TextWorld writes both; it is not there."
        )
    return path


def command_of(command: str) -> str:
    """Return the line of ASCII that the interpreter gets for an action.

    It is empty, which the game does not understand, for several commands in one line, since the interpreter would play them all in
    one step, and for a command to the interpreter itself.
    """
    line = " ".join(plain(command).replace("\\", "/").split())[:_LONGEST]  # a backslash begins a command to the interpreter
    parts = [part for part in _PARTS.split(line) if part.strip()]
    return "" if len(parts) > 1 or any(map(_TO_THE_INTERPRETER.match, parts)) else line


def plain(text: str) -> str:
    """Return a text in printable ASCII: letters lose their accents, other characters become question marks."""
    text = unicodedata.normalize("NFKD", text.translate(_PUNCTUATION))
    text = "".join(c for c in text if not unicodedata.combining(c))
    return "".join(c if c in "\n\t" or 32 <= ord(c) < 127 else "?" for c in text)


def answer_of(feedback: str) -> str:
    """Return a game's answer without the interpreter's prompt and status line, with at most one blank line in a row."""
    text = _QUESTION_AT_THE_END.sub("", _STATUS_LINE.sub("", feedback))
    return _BLANK_LINES.sub("\n\n", plain(text).strip().removesuffix(">").strip())


def _state(answer: Any) -> SessionState:
    state = answer[0] if isinstance(answer, tuple) else answer
    return SessionState(
        text=answer_of(state.feedback),
        look=answer_of(state.description or ""),
        inventory=answer_of(state.inventory or ""),
        valid_actions=tuple(map(plain, state.admissible_commands or ())),
        score=int(state.score or 0),
        won=bool(state.won),
        lost=bool(state.lost),
        moves=int(state.moves or 0),
        policy=tuple(state.get("policy_commands") or ()),
    )
