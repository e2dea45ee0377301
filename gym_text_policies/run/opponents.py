"""Policies as opponents in games for two, by their names: ``TextArenaTwoPlayers-v0?game=Nim-v0&opponent=smollm2,choose``."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from gym_text.copies import fork
from gym_text.errors import UsageError
from gym_text.opponents import Player
from gym_text.spec import Observation, TextSpec
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import MODES
from gym_text_policies.policy import Policy, by_content, text_spec, turn_rngs
from gym_text_policies.records import Turn

_CONTENT = {"content", "commit", "adapter", "source"}
"""Keys of a policy's configuration that identify weights or code, which can change while the policy's name stays."""
_loaded: dict[tuple[str, str], Policy] = {}
"""The environments of a game share one policy."""
_one_at_a_time = threading.RLock()
"""A model in this process decides for one game at a time. This lock makes the other threads wait."""


def opponents(name: str, env: gym.Env[Any, Any]) -> Callable[[int], Player]:
    """Return a function that gives the opponent of an episode, by the seed of its level.

    Its attribute ``identity`` is the policy's configuration if that identifies weights or code.

    Args:
        name: A model as `load_policy` takes it, and after a comma its mode, if that is not the default.
        env: The game; a policy of the name is loaded for its spec, unless that was done before.

    Raises:
        UsageError: If there is no such model, or it cannot play the game.
        MissingDependencyError: If the model's package is not installed.
    """
    if name.startswith("sb3:"):
        raise UsageError(
            "opponent: expected a language model or module:Name; got a file of stable-baselines3, whose pickled objects are not "
            "loaded for an environment's name. Pass a function that asks it."
        )
    side = _Side(env)
    if name.startswith("scripted:"):  # a scripted policy counts its answers, so each episode has its own policy
        _load(name, side)
        return lambda seed: _Opponent(_load(name, side), side, seed, policy_counts=True)
    key = name, side.text_spec.to_json()
    with _one_at_a_time:
        if key not in _loaded:
            _loaded[key] = _load(name, side)
    opponent: Any = functools.partial(_Opponent, _loaded[key], side)
    config = _loaded[key].config
    opponent.identity = by_content(config) if config.keys() & _CONTENT else {}
    return opponent  # type: ignore[no-any-return]


def _load(name: str, side: _Side) -> Policy:
    model, _, mode = (part.strip() for part in name.rpartition(","))
    return load_policy(model, side, mode=mode) if model and mode in MODES else load_policy(name, side)


class _Side(gym.Env[Observation, Any]):
    """The game as the opponent sees it, for the policy's wrappers. `reset` and `step` return the observation in `seen`."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.text_spec: TextSpec = text_spec(env)
        self.seen: Observation = {}

    def fork(self) -> _Side:
        twin = _Side(self)
        twin.seen = self.seen
        return twin

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        return self.seen, {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        return self.seen, 0.0, False, False, {}


class _Opponent:
    """A policy in one episode; with `policy_counts` it counts its answers, as a scripted one does, and is of this episode alone."""

    def __init__(self, policy: Policy, side: _Side, seed: int, *, policy_counts: bool = False) -> None:
        self._policy = policy
        self._policy_counts = policy_counts
        self._side = _Side(side)
        self._env = policy.wrap(self._side)
        self._rngs = turn_rngs({"opponent": side.text_spec.to_json()}, policy.seed, seed)
        self._turn = Turn({}, self._rngs(0), f"opponent {id(self)}")

    def fork(self) -> _Opponent:
        """Return the opponent of a copy of the game. It answers as this one would, and is asked nothing again."""
        twin = copy.copy(self)
        if self._policy_counts:
            twin._policy = copy.deepcopy(self._policy)
        twin._env = fork(self._env)
        twin._side = twin._env.unwrapped  # type: ignore[assignment]
        twin._turn = dataclasses.replace(self._turn, episode=f"opponent {id(twin)}")
        return twin

    def __call__(self, obs: Observation) -> str:
        """Decide on what the opponent observes."""
        self._side.seen, last = obs, self._turn.last
        seen = self._env.reset()[0] if last is None else self._env.step(last.action)[0]
        turn = dataclasses.replace(self._turn, obs=seen, rng=self._rngs(self._turn.step))
        if self._policy.remote:
            (decision,) = self._policy.decide([turn])
        else:
            with _one_at_a_time:
                (decision,) = self._policy.decide([turn])
        self._turn = turn.after(decision)
        return decision.action
