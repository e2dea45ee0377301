"""Spaces for text: strings up to a bound, lists of action names, histories of texts and actions; and for pictures of any size.

They are Gymnasium's own spaces with two changes. They have shape ``()`` and dtype ``object``, so that libraries which put
observations into NumPy arrays (stable-baselines3's ``DummyVecEnv``) keep whole strings. And they refuse ``AsyncVectorEnv`` with
shared memory, which would return the same old strings at every step (Gymnasium 1.0.0 to 1.4.0). The error is Gymnasium's own and
names ``shared_memory=False``.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import create_shared_memory

from gym_text.errors import InvalidActionError
from gym_text.spec import TextSpec

_PRINTABLE = spaces.Text(1, min_length=0, charset=string.printable)
_CHARACTERS = frozenset(string.printable)
_LONGEST_ACTION = 1000
"""Most characters of an action in a history; games that list no actions have the longest."""


class FreeText(spaces.Text):
    """Any printable ASCII string, the empty one included.

    Args:
        max_length: Most characters a string may have.
        seed: Seed or generator of `sample`.
    """

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        self.__dict__.update(vars(_PRINTABLE))  # to index the characters anew would be most of what an environment costs
        self.max_length = int(max_length)
        spaces.Space.__init__(self, (), np.dtype(object), seed)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string of this space (faster than the parent on long strings)."""
        return isinstance(x, str) and len(x) <= self.max_length and _CHARACTERS.issuperset(x)

    def __repr__(self) -> str:
        """Show the bound, not the hundred characters of the space."""
        return f"FreeText({self.max_length})"


class ActionNames(spaces.Sequence):
    """A tuple of action names. Games return them sorted; the space allows any order.

    Args:
        max_length: Most characters one name may have.
    """

    def __init__(self, max_length: int = 128) -> None:
        super().__init__(FreeText(max_length))
        self._max_length = max_length
        self._shape = ()
        self.dtype = np.dtype(object)

    def __repr__(self) -> str:
        """Show the bound of one name."""
        return f"ActionNames({self._max_length})"


class TextHistory(spaces.Sequence):
    """A tuple of pairs (text, action name), the oldest first.

    Args:
        max_length: Most characters of a text.
        n: Most pairs; None for no bound.
    """

    def __init__(self, max_length: int, n: int | None = None) -> None:
        super().__init__(spaces.Tuple([FreeText(max_length), FreeText(_LONGEST_ACTION)]))
        self.n = n
        self._max_length = max_length
        self._shape = ()
        self.dtype = np.dtype(object)

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[tuple[str, str], ...]:
        """Draw pairs at random, at most `n`."""
        return tuple(super().sample(mask, probability))[: self.n]

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a tuple of at most `n` pairs."""
        return isinstance(x, tuple) and (self.n is None or len(x) <= self.n) and super().contains(x)

    def __eq__(self, other: object) -> bool:
        """Compare the bounds as well."""
        return super().__eq__(other) and isinstance(other, TextHistory) and self.n == other.n

    def __repr__(self) -> str:
        """Show the bounds."""
        return f"TextHistory({self._max_length}, {self.n})"


class Anything(spaces.Space[Any]):
    """Objects of one kind, such as pictures of any size, or functions.

    Args:
        kind: What they are called.
        is_one: Returns whether a value is one of them.
        example: What `sample` returns.
    """

    def __init__(self, kind: str, is_one: Callable[[Any], bool], example: Any) -> None:
        super().__init__((), np.dtype(object))
        self._kind, self._is_one, self._example = kind, is_one, example

    @property
    def is_np_flattenable(self) -> bool:
        """Such objects have no common flat form."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Return an example."""
        return self._example

    def contains(self, x: Any) -> bool:
        """Return whether `x` is of this kind."""
        return self._is_one(x)

    def __eq__(self, other: object) -> bool:
        """Compare the kinds."""
        return isinstance(other, Anything) and self._kind == other._kind

    def __repr__(self) -> str:
        """Show the kind."""
        return f"Anything({self._kind!r})"


def is_picture(value: Any) -> bool:
    """Return whether a value is a picture with at least one pixel: a uint8 array of shape (height, width, 3)."""
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3 and value.size > 0


@create_shared_memory.register(FreeText)
def _refuse_shared_memory(space: FreeText, *args: object, **kwargs: object) -> NoReturn:
    raise CustomSpaceError(f"{space} has no fixed size and cannot live in shared memory: pass shared_memory=False.")


def checked_action(action: Any, space: spaces.Space[Any], spec: TextSpec) -> Any:
    """Return an action as a str, an int or a float32 array.

    Raises:
        InvalidActionError: If the action is not of the space's type or range.
    """
    if isinstance(space, spaces.Text):
        if isinstance(action, str):
            return str(action)
        expected = "a string"
    elif isinstance(space, spaces.Discrete):
        array = _as_array(action)
        if array is not None and array.ndim == 0 and array.dtype.kind in "iu" and 0 <= int(array) < space.n:
            return int(array)
        if spec.encoding == "index":
            expected = f"an integer from 0 to {space.n - 1}, an index of obs['valid_actions']"
        else:
            names = ", ".join(f"{i} ({a.name})" for i, a in enumerate(spec.actions))
            expected = f"an integer: {names}"
    else:
        array = _as_array(action)
        if array is not None and array.dtype.kind in "iuf" and array.shape == space.shape and np.all(abs(array) < 1e30):
            number = array.astype(np.float32)
            if space.contains(number):
                return number
        expected = f"an array in {space}"
    raise InvalidActionError(
        f"action: expected {expected}; got {action!r} ({type(action).__name__}). "
        "text_spec.encode(name, obs) turns an action's name into the action."
    )


def _as_array(action: Any) -> np.ndarray | None:
    """Return an action as an array, or None if it cannot be one."""
    try:
        return np.asarray(action)
    except (ValueError, OverflowError):
        return None
