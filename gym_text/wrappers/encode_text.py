"""`EncodeText`: texts as arrays of word ids, for training loops that cannot use strings."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import logger, spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import UsageError, check_int
from gym_text.spaces import ActionNames, TextHistory

SplitTexts = Callable[[Any], Sequence[tuple[str, int]]]
"""Splits a value of an observation into texts, each with the number of ids that the array has for it."""

NAME_LENGTH = 10
"""Enough ids for every action name at the registered parameters."""
MOST_NAMES = 128
"""Rows for a list of names if the action space does not bound their number."""
_MAX_VOCABULARY = 2**24
"""Larger ids are not exact in float32, and stable-baselines3 converts to float32."""
_WORD = re.compile(r"\w+|[^\w\s]|\n")
"""A word or number, a punctuation mark, or the end of a line."""


class EncodeText(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Turn texts in an observation into arrays: the space is a `Dict` of one-dimensional `Box` spaces, for stable-baselines3.

    | field | becomes |
    |---|---|
    | a text | `length` ids (int32), padded with 0 |
    | a list of action names | rows of ids, end to end; row i is the name of action i of ``actions="index"`` |
    | ``obs["history"]`` of ``History(env, n)`` | n rows, end to end, the latest last: ids of the text, then of the action's name |
    | numbers | unchanged |

    A word's id is a checksum of its letters in lower case. It is the same on every machine and needs no vocabulary, but some words
    have the same id. ``info``, with its ``action_mask``, and `action_masks` stay as they are.

    Make it the outermost wrapper, as this project's policies read texts. ``env.observation(obs)`` encodes a text observation for a
    trained model.

    >>> env = EncodeText(gym.make("gym_text:BabyAIText-v0"))
    >>> obs, info = env.reset(seed=0)
    >>> obs["text"].shape, obs["text"].dtype
    ((256,), dtype('int32'))

    Args:
        env: An environment with a `Dict` observation space.
        length: Ids of each text; longer texts are cut at the end, with one warning. 256 are enough at the registered parameters.
        name_length: Ids of each action's name.
        vocabulary: Number of ids of words, including 0.
        names: False drops the lists of action names.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        length: int = 256,
        name_length: int = NAME_LENGTH,
        vocabulary: int = 4096,
        names: bool = True,
    ) -> None:
        RecordConstructorArgs.__init__(self, length=length, name_length=name_length, vocabulary=vocabulary, names=names)
        super().__init__(env)
        self._length = check_int("length", length, 1, 1_000_000)
        self._name_length = check_int("name_length", name_length, 1, 1_000_000)
        self._ids = _words(check_int("vocabulary", vocabulary, 2, _MAX_VOCABULARY))
        if not isinstance(env.observation_space, spaces.Dict):
            raise UsageError(f"EncodeText: expected a Dict observation space; got {env.observation_space}.")
        self._greatest = vocabulary - 1
        self._rows = int(env.action_space.n) if isinstance(env.action_space, spaces.Discrete) else MOST_NAMES
        self._cut: set[str] = set()
        fields = {k: s for k, s in env.observation_space.spaces.items() if names or not isinstance(s, ActionNames)}
        self._fields = {key: self._field(key, space) for key, space in fields.items()}
        self.observation_space = spaces.Dict({key: space for key, (space, _) in self._fields.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the wrapper by making it again, with the same arguments, around a copy of the environment."""
        return partial(type(self), **self._saved_kwargs), (self.env,)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the arrays of an observation of texts."""
        return {
            key: observation[key] if split is None else self._encode(key, split(observation[key]), space)
            for key, (space, split) in self._fields.items()
        }

    def _field(self, key: str, space: gym.Space[Any]) -> tuple[gym.Space[Any], SplitTexts | None]:
        """Return the space of a field's array, and the function that splits the field's value into texts; None for numbers."""
        if isinstance(space, spaces.Text):
            return self._box(self._length), lambda text: [(text, self._length)]
        if isinstance(space, ActionNames):
            return self._box(self._rows * self._name_length), lambda names: [(n, self._name_length) for n in names[: self._rows]]
        if isinstance(space, TextHistory):
            if space.n is None:
                raise UsageError("EncodeText: expected a history of fixed length; got History(env, None). Give it a number.")
            return self._box(space.n * (self._length + self._name_length)), lambda pairs: self._history(pairs, space.n or 0)
        if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)):
            return space, None
        raise UsageError(f"EncodeText: expected texts, lists of action names and numbers; got {key!r} in {space}.")

    def _box(self, size: int) -> spaces.Box:
        return spaces.Box(0, self._greatest, (size,), np.int32)

    def _history(self, pairs: Sequence[tuple[str, str]], n: int) -> list[tuple[str, int]]:
        missing = [("", self._length), ("", self._name_length)] * (n - len(pairs))
        return missing + [part for text, name in pairs for part in ((text, self._length), (name, self._name_length))]

    def _encode(self, key: str, texts: Sequence[tuple[str, int]], space: gym.Space[Any]) -> np.ndarray:
        """Return the ids of texts, end to end. Each text is cut or padded with 0 to its number of ids."""
        array, start = np.zeros(space.shape or (), dtype=np.int32), 0
        for text, length in texts:
            ids = self._ids(text)
            if len(ids) > length:
                self._warn(key, len(ids), length)
                ids = ids[:length]
            array[start : start + len(ids)] = ids
            start += length
        return array

    def _warn(self, key: str, needed: int, length: int) -> None:
        if key not in self._cut:
            self._cut.add(key)
            argument = "length" if length == self._length else "name_length"
            logger.warn(
                f"EncodeText: a text of {needed} ids in obs[{key!r}] was cut to {length}. "
                f"Pass {argument}={needed} or more to keep such texts whole."
            )


@lru_cache(maxsize=16)
def _words(vocabulary: int) -> Callable[[str], np.ndarray]:
    """Return the function that turns a text into ids below `vocabulary`."""

    @lru_cache(maxsize=4096)
    def ids(text: str) -> np.ndarray:
        words = _WORD.findall(text.lower())
        return np.array([1 + zlib.crc32(word.encode()) % (vocabulary - 1) for word in words], dtype=np.int32)

    return ids
