"""The expert's path in an episode, and how far the player has followed it."""

from __future__ import annotations

from typing import Literal

from gymnasium import logger

Expert = Literal["off", "path", "replan"]
EXPERTS = ("off", "path", "replan")


class ExpertPath:
    """The expert's path in one episode, and what is left of it. It gives hints as long as the player follows it.

    Args:
        names: The names of the expert's actions from the start; None if there is no path.
    """

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.names = names
        self.rest = names or ()
        """The rest of the path, or of a newer plan; empty if the player has left it or has reached its end."""

    def follow(self, name: str | None) -> None:
        """Note the name of the player's action; None stands for an action without a name."""
        self.rest = self.rest[1:] if name is not None and self.rest[:1] == (name,) else ()


def warn_of_short_limit(env_id: str, needed: int, limit: int) -> None:
    """Warn if the expert needs more steps for an episode than the step limit allows."""
    if needed > limit:
        logger.warn(
            f"{env_id}: the expert needs {needed} steps here, the limit is {limit}. "
            f"Pass max_episode_steps={needed} or more to gym.make."
        )
