"""What travels between OpenEnv's server and a client: actions, observations and states; `GymTextEnv` is the client."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core import env_server as openenv
from openenv.core.client_types import StepResult
from pydantic import Field


class TextAction(openenv.Action):
    """One action, by its name."""

    action: str = Field(description="The name of one of the observation's valid_actions, alone or among other words")


class TextObservation(openenv.Observation):
    """What a player perceives after a reset or a step, and how the game took the step."""

    text: str = Field(description="What the player perceives now, ready to read")
    goal: str = Field(description="The task of this episode")
    valid_actions: list[str] = Field(description="Names of the actions that can be chosen now")
    fields: dict[str, Any] = Field(description="The environment's other fields, as records store them; arrays are lists")
    score: float = Field(description="Sum of the rewards of this episode")
    success: bool = Field(description="Whether the task is done")
    failure: bool = Field(description="Whether the task can no longer be done")
    truncated: bool = Field(description="Whether a step limit has ended the episode")
    action_was_valid: bool = Field(description="Whether the game understood the last action; true after a reset")
    error: str = Field(description="Which actions are possible, where the last one could not be used; else empty")


class TextState(openenv.State):
    """The state of a session. `episode_id` and `step_count` are fields of OpenEnv's state."""

    seed: int | None = Field(default=None, description="Seed of the episode; None where the game drew one")
    split: str | None = Field(default=None, description="Split of the episode; None for the environment's own default")
    score: float = Field(default=0.0, description="Sum of the rewards of this episode")
    success: bool = Field(default=False, description="Whether the task is done")
    done: bool = Field(default=False, description="Whether there is no running episode")


class GymTextEnv(EnvClient[TextAction | str, TextObservation, TextState]):
    """A client with a session on a server. ``GymTextEnv(base_url=…).sync()`` is the same client without ``await``.

    `step` takes an action's name. If the server answers with an error, as after a step beyond the episode's end, the method raises
    `RuntimeError`.
    """

    def _step_payload(self, action: TextAction | str) -> dict[str, Any]:
        return {"action": action if isinstance(action, str) else action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TextObservation]:
        reward, done = payload["reward"], payload["done"]
        return StepResult(TextObservation(**payload["observation"], reward=reward, done=done), reward, done)

    def _parse_state(self, payload: dict[str, Any]) -> TextState:
        return TextState(**payload)
