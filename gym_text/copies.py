"""Copies of environments: a copy is made with the same arguments and replays the running episode's actions."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

from gym_text.errors import UsageError
from gym_text.spec import Observation, TextSpec


class Replayable(gym.Env[Observation, Any]):
    """An environment that `copy.deepcopy` and `pickle` can copy in the middle of an episode.

    A copy is made with the same arguments and replays the episode's actions. It does not share the game.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an environment and keep its arguments for its copies."""
        env = super().__new__(cls)
        env.__arguments = args, kwargs
        return env

    @abstractmethod
    def _episode_so_far(self) -> tuple[int, Sequence[Any]] | None:
        """Return the running episode's level and the actions played in it, or None without a running episode."""

    @abstractmethod
    def _replay_episode(self, level: int, actions: Sequence[Any]) -> None:
        """Begin the episode of a level and play actions in it."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: the constructor's arguments, the spec, the generator, and the running episode's actions."""
        return {
            "arguments": self.__arguments,
            "spec": self.spec,
            "generator": (self._np_random, self._np_random_seed),
            "episode": self._episode_so_far(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the copy that `__getstate__` describes."""
        args, kwargs = self.__arguments = state["arguments"]
        type(self).__init__(self, *args, **kwargs)
        self.spec = state["spec"]
        if state["episode"] is not None:
            self._replay_episode(*state["episode"])
        self._np_random, self._np_random_seed = state["generator"]

    def _anew(self) -> Self:
        """Return an environment with the same arguments and spec, and the same generator's state, without an episode."""
        args, kwargs = self.__arguments
        twin = type(self)(*args, **kwargs)
        twin.spec = self.spec
        twin._np_random, twin._np_random_seed = copy.deepcopy(self._np_random), self._np_random_seed
        return twin


def fork(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return a copy of an environment with its wrappers, which goes on as this one would; this one stays as it is.

    The environment itself is copied by its method ``fork``, see `TextEnv.fork`, or by `copy.deepcopy` if it has none. What a
    wrapper holds is copied by `copy.deepcopy`, except spaces and specs. If a wrapper holds something large that all copies may
    share, such as a model, give its class a method ``__deepcopy__`` that returns the object itself.

    >>> env = gym.make("gym_text:BabyAIText-v0")
    >>> obs, info = env.reset(seed=0)
    >>> copied = fork(env)
    >>> copied.step(2)[0] == env.step(2)[0]
    True

    Args:
        env: The environment, with a running episode or without one.

    Raises:
        UsageError: If the environment, or what a wrapper holds, cannot be copied.
    """
    base = env.unwrapped
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    shared: dict[int, Any] = {}
    twin: gym.Env[Any, Any]
    if hasattr(base, "fork"):
        twin = base.fork()
    elif isinstance(base, EzPickle):
        raise UsageError(
            f"fork: expected an environment with a method fork, or one that copy.deepcopy copies with its episode; got {base}, "
            "whose copies begin anew, as it is a gymnasium.utils.EzPickle. Give its class a method fork."
        )
    else:
        twin = deep_copy(base, shared, str(base))
    if hasattr(base, "text_spec"):
        shared[id(base.text_spec)] = base.text_spec
    for layer in reversed(layers):
        twin = _with_layer(layer, twin, shared)
    return twin


def _with_layer(layer: gym.Wrapper[Any, Any, Any, Any], env: gym.Env[Any, Any], shared: dict[int, Any]) -> gym.Env[Any, Any]:
    """Return a copy of a wrapper around another environment. What never changes is shared."""
    twin: gym.Wrapper[Any, Any, Any, Any] = object.__new__(type(layer))
    shared[id(layer)], shared[id(layer.env)] = twin, env
    for name, value in vars(layer).items():
        if name == "_saved_kwargs" or isinstance(value, gym.Space | EnvSpec | TextSpec):
            shared[id(value)] = value
        twin.__dict__[name] = deep_copy(value, shared, f"{type(layer).__name__}.{name}")
    return twin


def deep_copy(value: Any, copies: dict[int, Any], what: str) -> Any:
    """Return `copy.deepcopy` of a value; raise `UsageError` if that fails, whatever the value's own methods raise."""
    try:
        return copy.deepcopy(value, copies)
    except Exception as error:
        raise UsageError(
            f"fork: expected an environment and wrappers that copy.deepcopy can copy; {what} cannot be copied: {error!r}. "
            "Give its class a method __deepcopy__, or an environment's class a method fork."
        ) from error
