"""`ActionRate`: asks a policy at every k-th step only, and repeats its action in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import InvalidActionError, UsageError, check_int
from gym_text.spaces import FreeText
from gym_text.spec import TextSpec
from gym_text_policies.policy import STEP, Policy, PolicyWrapper
from gym_text_policies.records import Decision, Turn

_LONGEST_NAME = 4096
"""Most characters of an action's name in an observation."""


class LastAction(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Put the name of the last action into ``obs["last_action"]``, and the number of steps so far into ``obs["step_number"]``.

    The name is empty at the start of an episode. The number is for policies that are asked outside `rollout`.

    >>> env = LastAction(gym.make("gym_text:BabyAIText-v0"))
    >>> env.reset(seed=0)[0]["last_action"]
    ''
    >>> env.step(2)[0]["last_action"]
    'go forward'

    Args:
        env: An environment with a `text_spec` and Dict observations.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Dict)
        number = spaces.Box(0, np.inf, (), np.int64)
        self.observation_space = spaces.Dict({**space.spaces, "last_action": FreeText(_LONGEST_NAME), STEP: number})
        self._spec: TextSpec = env.get_wrapper_attr("text_spec")
        self._last: dict[str, Any] = {}
        self._number = 0

    def reset(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(**kwargs)
        self._last, self._number = dict(obs), 0
        return self._with(obs, ""), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Play an action, and show its name."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        try:
            name = self._spec.decode(action, self._last)[:_LONGEST_NAME]
        except InvalidActionError:  # an index beyond the valid actions has no name
            name = ""
        self._last, self._number = dict(obs), self._number + 1
        return self._with(obs, name), reward, terminated, truncated, info

    def _with(self, obs: dict[str, Any], name: str) -> dict[str, Any]:
        return obs | {"last_action": name, STEP: np.array(self._number, dtype=np.int64)}


class ActionRate(PolicyWrapper):
    """Asks a policy at steps 0, k, 2k …, and repeats the last action in between, or asks where it is no longer valid.

    Outside `rollout` and `Agent` the wrapper `LastAction` tells the step, so that each episode begins with a question.

    Args:
        policy: The policy that is asked.
        k: Number of steps from one question to the next; 1 asks at every step.
    """

    def __init__(self, policy: Policy, k: int) -> None:
        super().__init__(policy)
        self._k = check_int("action_rate", k, 1, 1_000_000)

    @property
    def config(self) -> dict[str, Any]:
        """The policy's configuration, and the rate."""
        return {**self.player.config, "action_rate": self._k}

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the policy's wrappers, and `LastAction`."""
        env = self.player.wrap(env)
        return env if self._k == 1 else LastAction(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Ask the policy about the turns at steps 0, k, 2k … in one batch, and repeat the action of the other turns."""
        played = [self._unasked(turn) for turn in turns]
        due = [turn for turn, name in zip(turns, played, strict=True) if name is None]
        decisions = iter(self.player.decide(due) if due else ())
        return [next(decisions) if name is None else Decision(name) for name in played]

    def _unasked(self, turn: Turn) -> str | None:
        """Return the action that is played without asking the policy; None if the policy has to be asked."""
        if turn.step % self._k == 0:
            return None
        if "last_action" not in turn.obs:
            raise UsageError("obs: expected the key 'last_action'; it is missing. Use policy.wrap(env).")
        name = str(turn.obs["last_action"])
        any_name = self.spec.encoding in ("box", "discrete") or not self.spec.lists_actions
        can_be_said = any_name or name in self.spec.names(dict(turn.obs))
        return name if name and can_be_said else None
