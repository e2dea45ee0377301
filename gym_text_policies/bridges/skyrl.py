"""An environment of SkyRL (its package ``skyrl_gym`` 0.4): one level, for the rows of `gym_text_policies.bridges.levels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from gym_text_policies.bridges.levels import AGENT, begin
from gym_text_policies.records import Message


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc, unused-ignore]
    """One episode of a level, in which the model answers in words. `gym_text_policies.answers` has the rule for bad ones.

    Args:
        env_config: Is not used.
        extras: The other columns of the level's row.
        imports: See `register`.
    """

    def __init__(self, env_config: Any = None, extras: Any = None, imports: Sequence[str] = ()) -> None:
        super().__init__()
        self._game = begin(extras or {}, imports=imports)

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages, which are those of the row."""
        return self._game.chat(), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play the action that an answer names; the reward is that of the step."""
        text, done = self._game.play(action), self._game.end is not None
        observations = [] if done else [{"role": "user", "content": text}]
        return BaseTextEnvStepOutput(observations=observations, reward=self._game.reward, done=done, metadata=self.get_metrics())

    def get_metrics(self) -> dict[str, Any]:
        """Return success, number of steps and number of unusable answers."""
        return self._game.metrics

    def close(self) -> None:
        """Close the game."""
        self._game.close()


def register(imports: Sequence[str] = ()) -> None:
    """Let SkyRL find the environment. Call it in each process that plays, before the generator is made.

    Args:
        imports: Modules whose environments a row may name beside those that ship.
    """
    skyrl_gym.envs.registration.registry.pop(AGENT, None)
    skyrl_gym.register(id=AGENT, entry_point=f"{__name__}:SkyRLEnv", kwargs={"imports": list(imports)})
