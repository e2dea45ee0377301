"""`IndexActionsEnv`, the base class of games that list their valid actions: an action is its name or its index in the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import logger, spaces

from gym_text.errors import StepOrderError, UsageError, check_choice
from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, TextSpec
from gym_text.text_env import TextEnv

Actions = Literal["text", "index"]

_MAX_NAME = 256
"""Most characters of an action in the text space."""
_KEYS = "123456789abcdefghijklmnopqrstuvwxyz"
"""Keys for `gymnasium.utils.play`: one for each of the first valid actions."""
_NO_ACTION = ""
"""Played for an index beyond the valid actions: the game answers that it does not understand."""
GAME_FIELDS = {
    "text": Field("what the game answers to the last action"),
    "goal": Field("the task of this game"),
    "look": Field("what the present room looks like"),
    "inventory": Field("what you carry"),
    "valid_actions": Field("the actions that the game accepts now", is_list=True),
}
"""The fields of an observation in a game that lists its valid actions."""


def game_space(max_text: int, max_name: int = 128) -> spaces.Dict:
    """Return the space of observations with the keys of `GAME_FIELDS`.

    Args:
        max_text: Most characters of a text.
        max_name: Most characters of an action's name.
    """
    texts = {key: FreeText(max_text) for key, field in GAME_FIELDS.items() if not field.is_list}
    return spaces.Dict(texts | {"valid_actions": ActionNames(max_name)})


def listed_spec(goal: str, *actions: Action, reward: str, fields: Mapping[str, Field] = GAME_FIELDS) -> TextSpec:
    """Return the spec of a game that lists its valid actions; `actions` are their patterns."""
    return TextSpec(goal, fields, actions, "text", reward=reward)


class IndexActionsEnv(TextEnv):
    """A text game that lists its valid actions.

    A subclass calls `_set_actions` in its constructor. It keeps the sorted list of the valid actions in `_valid`, which is empty
    before the first episode. `_command` turns an action into the string that the engine gets.
    """

    metadata: ClassVar[dict[str, Any]] = TextEnv.metadata | {"render_fps": 2}  # type: ignore[misc]
    _frame_titles: ClassVar[dict[str, str]] = {"text": "the game's answer", "look": "room"}
    _by_index: bool = False
    _valid: tuple[str, ...] = ()
    """The actions that the game accepts now."""

    def _set_actions(self, spec: TextSpec, actions: Actions, size: int) -> None:
        """Set the action space, and `text_spec` with its encoding.

        Args:
            spec: The game's spec; its encoding is replaced.
            actions: ``text``: an action is its name. ``index``: an action is its index in ``obs["valid_actions"]``.
            size: Size of the index space.
        """
        check_choice("actions", actions, ("text", "index"))
        self.text_spec = dataclasses.replace(spec, encoding=actions)
        self.action_space = FreeText(_MAX_NAME) if actions == "text" else spaces.Discrete(size)
        self._by_index = actions == "index"
        self._frame_keys = _KEYS if self._by_index else ""

    def _command(self, action: Any) -> str:
        """Return the string that the engine gets for an action of either space."""
        if not self._by_index:
            return str(action)
        return self._valid[action] if action < len(self._valid) else _NO_ACTION

    def _more_info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8)} if self._by_index else {}

    def action_masks(self) -> np.ndarray:
        """Return for each index whether it is a valid action now: bool of shape (n,), for sb3-contrib's MaskablePPO.

        Raises:
            UsageError: If the environment was not made with ``actions="index"``.
            StepOrderError: Before `reset`.
        """
        if not isinstance(self.action_space, spaces.Discrete):
            raise UsageError("action_masks: expected an environment made with actions='index'; this one has actions='text'.")
        if not self._valid:
            raise StepOrderError("action_masks: expected an episode; there is none. Call reset() first.")
        if len(self._valid) > self.action_space.n:
            logger.warn(
                f"{type(self).__name__}: {len(self._valid)} actions are valid, the index space has {self.action_space.n}. "
                "Pass actions='text' to reach them all."
            )
        return np.arange(self.action_space.n) < len(self._valid)

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Return keys and their actions, for ``gymnasium.utils.play.play(env, wait_on_player=True)``.

        The keys 1 to 9 and a to z stand for the indices of ``obs["valid_actions"]``; a picture shows each key before its action.

        Raises:
            UsageError: If the environment was not made with ``actions="index"``.
        """
        if not isinstance(self.action_space, spaces.Discrete):
            raise UsageError("get_keys_to_action: expected an environment made with actions='index'; this one has actions='text'.")
        return {(ord(key),): index for index, key in enumerate(_KEYS[: self.action_space.n])}
