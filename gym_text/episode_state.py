"""What a `TextEnv` knows of its running episode: outcome, expert's path, state; and the picture of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import logger

from gym_text.screen import draw_page
from gym_text.spec import Observation, TextSpec

Expert = Literal["off", "path", "replan"]
EXPERTS = ("off", "path", "replan")


class Outcome(NamedTuple):
    """The result of one action in the game."""

    observation: Observation
    """The observation after the action."""
    reward: float
    """The reward of this step."""
    terminated: bool
    """Whether the game is over."""
    truncated: bool = False
    """Whether the game's own step limit has ended the episode. Gymnasium's ``TimeLimit`` is a wrapper and truncates by itself."""
    success: bool = False
    """Whether the task is done."""
    failure: bool = False
    """Whether the task can no longer be done."""
    action_was_valid: bool = True
    """Whether the game understood the action."""


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


@dataclass(slots=True)
class Episode:
    """The state of an episode."""

    level: int
    observation: Observation
    """The present observation. It is a copy: a player who changes the observation that `step` returned does not change this one."""
    path: ExpertPath
    actions: list[Any] = field(default_factory=list)
    score: float = 0.0
    outcome: Outcome | None = None
    """The outcome of the last action; None before the first action."""
    last_action: str | None = None
    """The name of the last action, for the picture."""
    is_over: bool = False
    """Whether the game, or its own step limit, has ended the episode."""

    def facts(self) -> str:
        """Return the line of facts in a picture: the step, the score, and whether the episode was won or lost."""
        parts = [f"step {len(self.actions)}", f"score {self.score:.4g}"]
        if self.outcome is not None and (self.outcome.success or self.outcome.failure):
            parts.append("won" if self.outcome.success else "lost")
        return "     ".join(parts)


def draw_state(episode: Episode, spec: TextSpec, titles: Mapping[str, str], facts: str, keys: str) -> np.ndarray:
    """Return a picture of the present state, uint8 of shape (height, width, 3): its texts and the valid actions.

    Args:
        episode: The episode.
        spec: The environment's spec.
        titles: Titles for those fields of the observation whose key is no good title.
        facts: The line at the top.
        keys: The keys that stand for the first valid actions.
    """
    obs, outcome = episode.observation, episode.outcome
    texts = [key for key, field in spec.fields.items() if not (field.is_list or field.quantities)]
    if "look" in texts and obs["look"] == obs["text"]:
        texts.remove("text")  # the answer to a move or to "look around" is the look of the room
    return draw_page(
        [(titles.get(key, key), obs[key]) for key in sorted(texts, key=lambda key: key != "goal")],
        facts=facts,
        actions=() if episode.is_over else obs.get("valid_actions", ()),
        taken=episode.last_action,
        refused=outcome is not None and not outcome.action_was_valid,
        keys=keys,
    )


def copied(obs: Observation) -> Observation:
    """Return a copy of an observation that shares no array with it."""
    copy = dict(obs)
    for key, value in obs.items():
        if isinstance(value, np.ndarray):
            copy[key] = value.copy()
    return copy


def warn_of_short_limit(env_id: str, needed: int, limit: int) -> None:
    """Warn if the expert needs more steps for an episode than the step limit allows."""
    if needed > limit:
        logger.warn(
            f"{env_id}: the expert needs {needed} steps here, the limit is {limit}. "
            f"Pass max_episode_steps={needed} or more to gym.make."
        )
