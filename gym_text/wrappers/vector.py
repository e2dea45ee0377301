"""`EncodeText` and `History` for vector environments, in the way of `gymnasium.wrappers.vector`.

Gymnasium refuses ``gym.make_vec("CookingWorldText-v0", wrappers=[EncodeText])``: it applies ``wrappers`` to single environments,
which it cannot reach in a custom vector environment. Wrap the vector environment that `gymnasium.make_vec` returns::

    envs = gym_text.wrappers.vector.EncodeText(gym.make_vec("CookingWorldText-v0", num_envs=64))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate

from gym_text.errors import UsageError
from gym_text.spec import TextSpec
from gym_text.wrappers.encode_text import TextEncoder, Unit
from gym_text.wrappers.history import Pairs, history_space

__all__ = ["EncodeText", "History"]

Observations = dict[str, Any]
"""The observations of all environments: for each key an array or a tuple, with an entry for each environment."""


class _TextWrapper(VectorWrapper):
    """A wrapper that changes the space of the observations.

    Args:
        env: A vector environment.
        space: Space of one environment's observations after the change.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], space: gym.Space[Any]) -> None:
        super().__init__(env)
        self.single_observation_space = space
        self.observation_space = batch_space(space, self.num_envs)

    @property
    def text_spec(self) -> TextSpec:
        """The spec of the environments."""
        return _text_spec(self.env)


class EncodeText(_TextWrapper):
    """Turn texts in the observations into arrays, as `gym_text.wrappers.EncodeText` does around each single environment.

    The observations, including ``infos["final_obs"]``, equal those of `SyncVectorEnv` around environments with `EncodeText`. All
    autoreset modes are allowed.

    >>> envs = EncodeText(gym.make_vec("gym_text:CookingWorldText-v0", num_envs=64, expert="off"))
    >>> obs, infos = envs.reset(seed=0)
    >>> obs["text"].shape, obs["text"].dtype
    ((64, 256), dtype('int32'))
    >>> envs.close()

    Args:
        env: A vector environment whose single environments have a `Dict` observation space.
        unit: What an id stands for: ``word`` or ``byte``.
        length: Ids of each text; longer texts are cut at the end, with one warning. By default 256 words or 1,024 bytes.
        name_length: Ids of each action's name. By default 10 words or 48 bytes.
        vocabulary: Number of ids of words, including 0.
        names: False drops the lists of action names.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        unit: Unit = "word",
        length: int | None = None,
        name_length: int | None = None,
        vocabulary: int = 4096,
        names: bool = True,
    ) -> None:
        self._encoder = TextEncoder(
            env.single_observation_space, env.single_action_space, unit, length, name_length, vocabulary, names
        )
        super().__init__(env, self._encoder.space)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in every environment, or in those of ``options["reset_mask"]``."""
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self.observations(obs), infos

    def step(self, actions: Any) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every environment."""
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        infos = _with_final_obs(infos, lambda _, final: self._encoder.encode(final))
        return self.observations(obs), rewards, terminations, truncations, infos

    def observations(self, observations: Observations) -> Observations:
        """Return the arrays of the observations of all environments."""
        return self._encoder.encode_batch(observations)


class History(_TextWrapper):
    """Put each episode's last n steps into ``obs["history"]``, as `gym_text.wrappers.History` does for a single environment.

    All autoreset modes are allowed. An episode's first observation has an empty history. Its last observation, which is in
    ``infos["final_obs"]`` if the mode is ``SameStep``, has the history of the whole episode.

    >>> envs = History(gym.make_vec("gym_text:CookingWorldText-v0", num_envs=2, expert="off"), 5)
    >>> obs, infos = envs.reset(seed=0)
    >>> before = obs["text"]
    >>> obs, *_ = envs.step(("look around", "inventory"))
    >>> obs["history"] == (((before[0], "look around"),), ((before[1], "inventory"),))
    True
    >>> envs.close()

    Args:
        env: A vector environment whose single environments have ``obs["text"]`` and a ``text_spec``.
        n: Most pairs to keep of each episode; None keeps all.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], n: int | None) -> None:
        super().__init__(env, history_space(env.single_observation_space, n))
        spec = _text_spec(env)
        self._pairs = [Pairs(spec, n) for _ in range(self.num_envs)]
        self._last: Observations = {}
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in every environment, or in those of ``options["reset_mask"]``, with an empty history."""
        mask = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # `env` may remove the mask
        self._begin(mask)
        self._ended &= ~mask
        return self._with_history(obs), infos

    def step(self, actions: Any) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action in every environment and add it to the histories."""
        mode = self.metadata["autoreset_mode"]
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        for i, (pairs, action) in enumerate(zip(self._pairs, iterate(self.action_space, actions), strict=True)):
            pairs.add({key: values[i] for key, values in self._last.items()}, action)
        infos = _with_final_obs(infos, lambda i, final: final | {"history": self._pairs[i].latest()})
        before, self._ended = self._ended, terminations | truncations
        if mode == AutoresetMode.NEXT_STEP:
            self._begin(before)
        elif mode == AutoresetMode.SAME_STEP:
            self._begin(self._ended)
        return self._with_history(obs), rewards, terminations, truncations, infos

    def _begin(self, mask: np.ndarray) -> None:
        """Clear the histories of the environments that have begun an episode."""
        for i in np.flatnonzero(mask):
            self._pairs[i].clear()

    def _with_history(self, obs: Observations) -> Observations:
        self._last = obs
        return obs | {"history": tuple(pairs.latest() for pairs in self._pairs)}


def _text_spec(env: VectorEnv[Any, Any, Any]) -> TextSpec:
    """Return the spec of a vector environment's single environments."""
    try:
        spec = env.unwrapped.get_attr("text_spec")[0]  # type: ignore[attr-defined]
    except AttributeError as error:
        raise UsageError(f"text_spec: expected a vector environment of environments with a text_spec; got {env}.") from error
    assert isinstance(spec, TextSpec)
    return spec


def _with_final_obs(infos: dict[str, Any], change: Callable[[int, Observations], Observations]) -> dict[str, Any]:
    """Return the infos with each episode's last observation changed; only the autoreset mode ``SameStep`` has such observations."""
    if "final_obs" not in infos:
        return infos
    changed = np.full(len(infos["final_obs"]), None, dtype=object)
    for i in np.flatnonzero(infos["_final_obs"]):
        changed[i] = change(int(i), infos["final_obs"][i])
    return infos | {"final_obs": changed}
