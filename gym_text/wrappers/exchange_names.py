"""`ExchangeNames`: things swap their names, so that a player has to read what the text says about each of them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from gym_text.errors import UsageError


class Names:
    """The names that things swap.

    Args:
        names: The names. A thing with several names is written with ``=`` between them, such as fry=stove and roast=oven. Such a
            thing swaps all its names with a thing that has as many names.

    Raises:
        UsageError: If no other thing has as many names, or a name occurs twice.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._groups: dict[int, list[list[str]]] = {}
        for name in names:
            self._groups.setdefault(name.count("="), []).append(name.split("="))
        single_names = [name for group in self._groups.values() for thing in group for name in thing]
        self.single = set(single_names)
        """All names; a thing with several names has an entry for each."""
        if min(map(len, self._groups.values()), default=0) < 2 or len(self.single) < len(single_names) or "" in self.single:
            raise UsageError(
                "interchangeable: expected two or more different names, and for each at least one other with as many ='s; "
                f"got {list(names)}."
            )
        self._words = re.compile(r"\b(" + "|".join(map(re.escape, sorted(single_names, key=len, reverse=True))) + r")\b")

    def draw(self, rng: random.Random) -> dict[str, str]:
        """Draw a new name for each name."""
        pairs = [pair for group in self._groups.values() for pair in zip(group, rng.sample(group, len(group)), strict=True)]
        return {old: new for thing, another in pairs for old, new in zip(thing, another, strict=True)}

    def names_in(self, text: str) -> set[str]:
        """Return the names that occur in a text."""
        return set(self._words.findall(text))

    def rename(self, text: str, new: Mapping[str, str]) -> str:
        """Return a text with each name replaced by the new name in `new`."""
        return self._words.sub(lambda match: new[match[0]], text)


class ExchangeNames(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Let things swap their names, at random in each episode: in observations, in the expert's hints and in actions.

    What a player has learnt about a name from the train fold (a chicken leg is grilled) is then worthless; only the text helps. The
    seed of an episode also determines its names.

    >>> env = gym.make("gym_text:CookingWorldText-v0")
    >>> env.reset(seed=0)[1]["gold_path"][4:7]
    ('take red apple', 'open fridge', 'take block of cheese')
    >>> ExchangeNames(env, ("carrot", "red apple", "block of cheese")).reset(seed=0)[1]["gold_path"][4:7]
    ('take block of cheese', 'open fridge', 'take carrot')

    Args:
        env: An environment with `Dict` observations and a ``text_spec``.
        interchangeable: Names of things; see `Names`.
    """

    def __init__(self, env: gym.Env[Any, Any], interchangeable: Sequence[str]) -> None:
        RecordConstructorArgs.__init__(self, interchangeable=tuple(interchangeable))
        super().__init__(env)
        if not isinstance(env.observation_space, spaces.Dict) or not env.has_wrapper_attr("text_spec"):
            raise UsageError(f"ExchangeNames: expected an environment with Dict observations and a text_spec; got {env}.")
        self._names = Names(interchangeable)
        self._in_words = env.get_wrapper_attr("text_spec").encoding == "text"
        self._rng = random.Random()
        self._new: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode with newly drawn names."""
        if seed is not None:
            self._rng = random.Random(seed)
        self._new = self._names.draw(self._rng)
        self._old = {new: old for old, new in self._new.items()}
        obs, info = self.env.reset(seed=seed, options=options)
        return self._seen(obs), self._renamed(info)

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Play one action."""
        obs, reward, terminated, truncated, info = self.env.step(self._old_names(action))
        return self._seen(obs), reward, terminated, truncated, self._renamed(info)

    def _old_names(self, action: Any) -> Any:
        return self._names.rename(action, self._old) if self._in_words else action

    def _seen(self, obs: dict[str, Any]) -> dict[str, Any]:
        seen: dict[str, Any] = self._renamed(obs)
        if self._in_words and "valid_actions" in seen:
            seen["valid_actions"] = tuple(sorted(seen["valid_actions"]))
        return seen

    def _renamed(self, data: Any) -> Any:
        """Return data with the new names in all strings."""
        if isinstance(data, str):
            return self._names.rename(data, self._new)
        if isinstance(data, (tuple, list)):
            return type(data)(map(self._renamed, data))
        return {key: self._renamed(value) for key, value in data.items()} if isinstance(data, dict) else data
