"""`PlanReward`: each step is paid for what it does to the expert's plan."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import UsageError


class PlanReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Pay each step, in place of the environment's reward, for what it does to the number of steps that the expert needs to win.

    With n steps to a win before an action and m after it (0 once it is won; infinite where there is no plan), the reward is
    discount^m - discount^(n - 1): 0 for a step of a plan, less for one that wastes, more for a shortcut, and what a win was still
    worth for one that spoils it. The discounted sum over an episode that ends is that of a reward of 1 for winning, but for a
    constant (one that is cut off keeps what its plan was worth, as a value would say): this is shaping by a potential, which
    changes no best policy (Ng, Harada and Russell 1999, "Policy invariance under reward transformations"). The potential is what
    the expert's plan is worth, so that a single step tells what it has done. The expert reads what is to be read, but knows where
    things are: whether it was right to look for one there depends on what turns up.

    >>> env = PlanReward(gym.make("gym_text:CookingWorldText-v0", expert="replan"), discount=0.95)
    >>> path = env.reset(seed=0)[1]["gold_path"]
    >>> env.step(path[0])[1], round(env.step("inventory")[1], 3)
    (0.0, -0.027)

    Args:
        env: One of TextWorldExpress's games, with ``expert="replan"``.
        discount: That of the learner, between 0 and 1.
    """

    def __init__(self, env: gym.Env[Any, Any], discount: float = 0.99) -> None:
        RecordConstructorArgs.__init__(self, discount=discount)
        super().__init__(env)
        if getattr(env.unwrapped, "expert", None) != "replan":
            raise UsageError(f"PlanReward: expected an environment made with expert='replan'; got {env}.")
        if not env.unwrapped.has_wrapper_attr("plan_steps"):
            raise UsageError(f"PlanReward: expected one of TextWorldExpress's games, whose expert counts its steps; got {env}.")
        if not 0 < discount < 1:
            raise UsageError(f"discount: expected a number above 0 and below 1; got {discount!r}.")
        self._discount = discount
        self._left = math.inf

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._left = info.get("gold_steps", math.inf)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        left = self._steps_left(action)
        reward, self._left = self._worth(left), left
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info

    def reward_of(self, action: Any) -> float:
        """Return the reward that an action would have now; it is not played."""
        return self._worth(self._steps_left(action))

    def _worth(self, left: float) -> float:
        return float(self._discount**left - self._discount ** (self._left - 1))

    def _steps_left(self, action: Any) -> float:
        return self.env.get_wrapper_attr("plan_steps")(action)  # type: ignore[no-any-return]
