"""Levels as files: a level is made from its seed at its first use, and kept in the user's cache folder.

TextWorld (https://github.com/microsoft/TextWorld) makes a game in three steps. Its generator draws a world and a quest; Inform 7
compiles the source to a story file (``.z8``); and a file beside it (``.json``) has the facts that the tracker needs to follow the
game's state. All of this runs offline, in 1 to 5 seconds of one core. The same seed gives the same game in every process. (Python's
hash seed changes the order in which the file of a cooking game checks the ways to lose. Players see no difference.)
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gym_text.errors import EngineError, UsageError, import_extra
from gym_text.user_folder import cache_folder

_logger = logging.getLogger(__name__)
EXTRA = "textworld-games"
"""The extra that installs TextWorld."""
FOLDER_VARIABLE = "GYM_TEXT_GAMES"
"""Environment variable with the folder of made levels; without it, they lie in the user's cache folder."""
_ATTEMPTS = 20
"""Number of seeds to try for one level, as some seeds have no quest of the wanted length."""
_ATTEMPT_STEP = 10_000_000
"""Difference of two such seeds: larger than all folds together, so that no seed is tried for the levels of two folds."""


def games_folder() -> Path:
    """Return the folder in which levels are kept: ``GYM_TEXT_GAMES``, or ``gym-text/games`` in the user's cache folder."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).expanduser()
    return cache_folder("games", EXTRA)


def import_textworld() -> Any:
    """Import TextWorld, and ignore its interpreter's warnings that it does not know the game.

    TextWorld ignores them itself when it is imported; but `warnings.catch_warnings`, which tests use, undoes that.

    Raises:
        MissingDependencyError: If TextWorld is not installed.
    """
    textworld = import_extra("textworld", EXTRA)
    import jericho

    for category in (jericho.UnsupportedGameWarning, jericho.TruncatedInputActionWarning):
        warnings.simplefilter("ignore", category)
    return textworld


@dataclass(frozen=True)
class Levels:
    """The levels of one of TextWorld's challenges at one setting."""

    challenge: str
    """TextWorld's name of the challenge, such as ``tw-cooking``."""
    settings: Mapping[str, int | bool | str]
    """The challenge's settings, under TextWorld's names."""

    @property
    def folder(self) -> Path:
        """The folder of these levels: in the folder of TextWorld's version, a folder for these settings."""
        import_extra("textworld", EXTRA)
        settings = [f"{name}={value}" for name, value in sorted(self.settings.items())]
        return games_folder() / f"textworld-{version('textworld')}" / "-".join([self.challenge, *settings])

    def file(self, seed: int) -> Path:
        """Return the story file of a level, and make it first if needed.

        Several processes may make the same level at once: each makes it in a temporary folder, and the first to finish renames its
        folder. Therefore no level is ever half written.

        Args:
            seed: Seed of the level, below 2^32.

        Raises:
            EngineError: If TextWorld cannot make the level.
            UsageError: If the folder cannot be written.
        """
        folder = self.folder / str(seed)
        file = folder / "game.z8"
        if file.exists():
            return file
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f"{seed}-", dir=self.folder))
        except OSError as error:
            raise UsageError(
                f"{self.folder}: expected a folder that can be written; got {error.strerror}. "
                f"The environment variable {FOLDER_VARIABLE} names another."
            ) from None
        try:
            self._make(seed, partial / file.name)
            partial.chmod(0o755)  # mkdtemp makes folders that only their owner can read
            with contextlib.suppress(OSError):  # another process was first
                os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return file

    def _make(self, seed: int, file: Path) -> None:
        """Make the two files of a level in an empty folder: ``file`` and its ``.json``."""
        textworld = import_textworld()
        from textworld.challenges import CHALLENGES
        from textworld.generator import compile_game
        from textworld.generator.inform7.world2inform7 import CouldNotCompileGameError

        _logger.info("TextWorld makes level %d of %s; this takes some seconds.", seed, self.folder.name)
        make = CHALLENGES[self.challenge][1]
        for attempt in range(_ATTEMPTS):
            options = textworld.GameOptions()
            options.seeds = (seed + attempt * _ATTEMPT_STEP) % 2**32
            options.path, options.file_ext = str(file), file.suffix
            options.grammar.only_last_action = True  # else the goal would describe each step, which is the solution
            try:
                game = make(dict(self.settings), options)
                compile_game(game, options)
            except textworld.generator.QuestGenerationError:
                continue  # this seed's map has no quest of that length
            except (CouldNotCompileGameError, OSError) as error:
                raise EngineError(f"{self.challenge}: TextWorld could not compile level {seed}. {error}") from error
            file.with_suffix(".ni").unlink(missing_ok=True)  # the source, which nothing reads
            return
        raise EngineError(f"{self.challenge}: TextWorld finds no quest for level {seed} in {_ATTEMPTS} tries. Try another seed.")
