"""`JavaGameEnv`, the base class of games whose engine runs in Java."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from gym_text.episode_state import Expert
from gym_text.errors import check_choice
from gym_text.folds import FOLDS, Fold
from gym_text.index_actions import IndexActionsEnv
from gym_text.java.jvm import detach_at_end, games_that_fit


class JavaGameEnv(IndexActionsEnv):
    """A text game whose engine runs in Java and determines the levels of each fold.

    A subclass sets `game_size` and implements `_levels`.

    Args:
        fold: The set of levels.
        expert: The hints in ``info``.
        render_mode: ``ansi``, ``rgb_array`` or None.
    """

    game_size: ClassVar[int]
    """Bytes of Java's heap that a game takes."""

    def __init__(self, *, fold: Fold, expert: Expert, render_mode: str | None) -> None:
        check_choice("fold", fold, FOLDS)
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self._fold: Fold = fold

    @cached_property
    @abstractmethod
    def _levels(self) -> tuple[int, ...]:
        """The engine's numbers of all levels in the environment's fold."""

    @property
    def most_at_once(self) -> int:
        """How many games Java's heap has room for; with ``expert="replan"`` each environment has two games."""
        return games_that_fit(self.game_size * (2 if self.expert == "replan" else 1))

    @property
    def fold_size(self) -> int:
        """Levels in the engine's fold."""
        return len(self._levels)

    def _level_seed(self, seed: int) -> int:
        return self._levels[seed % len(self._levels)]

    def close(self) -> None:
        """End the episode; a subclass has released its games before, which calls Java."""
        super().close()
        detach_at_end()
