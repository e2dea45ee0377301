"""`DescribeObservation`: any Gymnasium environment, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.descriptions import Description, Ending, description_of, words_of_numbers
from gym_text.descriptions.base import OBSERVATION, never
from gym_text.errors import UsageError, check_choice, check_int
from gym_text.folds import FOLDS, MAX_SEED, Fold, fold_seed
from gym_text.spaces import FreeText
from gym_text.spec import Field, TextSpec
from gym_text.text_env import HasSchemas

_MAX_TEXT = 8192


class DescribeObservation(HasSchemas, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Describe an environment in words: its observation becomes a dict with ``text``, ``goal`` and the original observation.

    The original observation has the key ``observation``; a dict keeps its keys. An environment that speaks keeps its words: a text
    becomes ``text``, and a dict keeps its ``text`` and ``goal``. Actions stay as they are, and ``text_spec`` turns
    names into actions, as in a `TextEnv`. ``info`` gets ``score``. If the description defines success, ``info`` gets ``success``
    and ``failure`` as well.

    >>> env = DescribeObservation(gym.make("FrozenLake-v1", is_slippery=False))
    >>> obs, info = env.reset(seed=0)
    >>> print(obs["text"])
    You stand in row 0, column 0, on the start. Left: the edge. Down: safe ice. Right: safe ice. Up: the edge.
    >>> obs, reward, terminated, truncated, info = env.step(env.text_spec.encode("move down", obs))
    >>> obs["observation"], info["score"]
    (4, 0.0)

    Args:
        env: Any environment whose actions are `Text`, `Discrete`, or a one-dimensional `Box` with one lower and one upper limit.
        spec: What a player must know; its fields ``text`` and ``goal`` may be missing. None uses the environment's own
            ``text_spec``, or the description that this package has; see `gym_text.descriptions`.
        describe: Turns the original observation into words; by default its texts, and the names of the numbers in `spec`, with
            their values.
        success_at: An episode is a success if its score, the sum of its rewards, is at least this at its end. None uses the
            description's rule; a `spec` of your own has none.
        fold: None passes seeds on unchanged; ``train``, ``dev`` and ``test`` shift them into ranges that never meet.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        spec: TextSpec | None = None,
        *,
        describe: Callable[[Any], str] | None = None,
        success_at: float | None = None,
        fold: Fold | None = None,
    ) -> None:
        said: dict[str, Any] = {} if success_at is None else {"success_at": success_at}
        RecordConstructorArgs.__init__(self, spec=spec, describe=describe, fold=fold, **said)
        super().__init__(env)
        if fold is not None:
            check_choice("fold", fold, FOLDS)
        self.fold = fold
        space = env.observation_space
        self._key = "text" if isinstance(space, spaces.Text) and describe is None else OBSERVATION
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {self._key: space}
        description = description_of(env) if spec is None else Description(spec)
        self.text_spec = _with_task(description.spec)
        _check(self.text_spec, parts, env.action_space, has_words=bool(describe or description.describe))
        self.play_together = description.play_together
        self._describe = describe or description.describe or self._texts_and_numbers
        self._success = description.success if spec is None else never
        if success_at is not None:
            self._success = lambda end: end.score >= success_at
        words = {"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT)}
        self.observation_space = spaces.Dict(words | (parts if describe is None else parts | {"text": words["text"]}))
        self._score = 0.0
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        seed = None if seed is None else check_int("seed", seed, 0, MAX_SEED)
        if self.fold is not None:
            if seed is not None:
                self._rng = np.random.default_rng(seed)
            seed = fold_seed(self.fold, int(self._rng.integers(2**31)) if seed is None else seed)
        obs, info = self.env.reset(seed=seed, options=options)
        self._score = 0.0
        return self._in_words(obs), info | {"score": 0.0} | ({} if self._success is never else {"success": False, "failure": False})

    def level_of(self, seed: int) -> int:
        """Return the number of the level that a seed plays, as `TextEnv.level_of` does."""
        return fold_seed(self.fold, seed)

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._score += float(reward)
        info = info | {"score": self._score}
        if self._success is not never:
            success = self.succeeded(obs, float(reward), bool(terminated), bool(truncated), self._score)
            info = {"success": success, "failure": bool(terminated) and not success} | info
        return self._in_words(obs), reward, terminated, truncated, info

    def succeeded(self, obs: Any, reward: float, terminated: bool, truncated: bool, score: float) -> bool:
        """Return whether an episode that ends with this step is a success; `obs` is the original observation."""
        return (terminated or truncated) and bool(self._success(Ending(obs, reward, terminated, truncated, score)))

    def _in_words(self, obs: Any) -> dict[str, Any]:
        return {"text": "", "goal": self.text_spec.goal} | self._parts(obs) | {"text": self._describe(obs)}

    def _parts(self, obs: Any) -> dict[str, Any]:
        return dict(obs) if isinstance(self.env.observation_space, spaces.Dict) else {self._key: obs}

    def _texts_and_numbers(self, obs: Any) -> str:
        parts = self._parts(obs)
        return parts["text"] if isinstance(parts.get("text"), str) else words_of_numbers(self.text_spec, parts)


def _with_task(spec: TextSpec) -> TextSpec:
    """Return a spec with the fields ``text`` and ``goal``, which this wrapper adds to every observation."""
    added = {"text": Field("the state in words"), "goal": Field("the task")}
    return spec if added.keys() <= spec.fields.keys() else dataclasses.replace(spec, fields=added | dict(spec.fields))


def _check(spec: TextSpec, parts: Mapping[str, gym.Space[Any]], actions: gym.Space[Any], *, has_words: bool) -> None:
    """Raise `UsageError` unless a spec fits the spaces, and `has_words` or the parts of an observation can be said in words."""
    expected = {"text", "goal", *parts}
    if set(spec.fields) != expected:
        raise UsageError(f"spec.fields: expected the keys {sorted(expected)}; got {sorted(spec.fields)}.")
    for key, space in parts.items():
        numbers = len(spec.fields[key].quantities)
        size = int(spaces.flatdim(space)) if isinstance(space, spaces.Box) else len(getattr(space, "spaces", [space]))
        if numbers != size and not isinstance(space, (spaces.Text, spaces.Sequence, spaces.MultiBinary, spaces.MultiDiscrete)):
            raise UsageError(f"spec.fields[{key!r}]: expected {size} quantities, one for each number of {space}; got {numbers}.")
    if not has_words and not any(field.quantities or isinstance(parts.get(key), spaces.Text) for key, field in spec.fields.items()):
        raise UsageError(f"DescribeObservation: expected describe=, which says the observation in words; got none, and {parts}.")
    if isinstance(actions, spaces.Text):
        wanted, fits = "encoding='text'", spec.encoding == "text"
    elif isinstance(actions, spaces.Discrete):
        wanted = "encoding='discrete' and a name for each action, from 0,"
        fits = spec.encoding == "discrete" and len(spec.actions) == actions.n and actions.start == 0
    elif isinstance(actions, spaces.Box) and len(actions.shape) == 1:
        wanted = "encoding='box', size, low and high, the same for all numbers,"
        limits = {*actions.low.tolist()}, {*actions.high.tolist()}
        fits = spec.encoding == "box" and spec.size == actions.shape[0] and limits == ({spec.low}, {spec.high})
    else:
        raise UsageError(f"DescribeObservation: expected actions that are Text, Discrete or a one-dimensional Box; got {actions}.")
    if not fits:
        raise UsageError(
            f"spec: expected {wanted} of {actions}; got encoding={spec.encoding!r}, {len(spec.actions)} names, size={spec.size}, "
            f"low={spec.low:g}, high={spec.high:g}."
        )
