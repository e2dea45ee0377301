"""The expert's path in an episode, and how far the player has followed it."""

from __future__ import annotations

from typing import Literal

from gymnasium import logger

Expert = Literal["off", "path", "replan"]
EXPERTS = ("off", "path", "replan")


class ExpertPath:
    """The expert's path in one episode. It gives hints as long as the player follows it.

    Args:
        names: The names of the expert's actions from the start; None if there is no path.
    """

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.names = names
        self.is_followed = names is not None
        """Whether all actions so far were those of the path."""
        self._position = 0

    def __len__(self) -> int:
        """Return the number of actions from the start; 0 without a path."""
        return len(self.names or ())

    def follow(self, name: str | None) -> None:
        """Note the name of the player's action; None stands for an action without a name."""
        self.is_followed = name is not None and name == self.next_action
        self._position += 1

    @property
    def next_action(self) -> str | None:
        """The name of the next action on the path; None if the player has left the path or has reached its end."""
        if self.names is None or not self.is_followed or self._position == len(self.names):
            return None
        return self.names[self._position]

    @property
    def steps_left(self) -> int | None:
        """The number of actions from here to the path's end; None without a path."""
        return None if self.names is None else len(self.names) - self._position


def warn_of_short_limit(env_id: str, needed: int, limit: int) -> None:
    """Warn if the expert needs more steps for an episode than the step limit allows."""
    if needed > limit:
        logger.warn(
            f"{env_id}: the expert needs {needed} steps here, the limit is {limit}. "
            f"Pass max_episode_steps={needed} or more to gym.make."
        )
