"""`TextSpec`: what a player must be told of an environment, and how its words become actions."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gym_text.errors import InvalidActionError, UsageError

Encoding = Literal["text", "index", "discrete", "box"]
Observation = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """One number inside an observation field."""

    name: str
    meaning: str
    low: float
    high: float
    unit: str = ""
    """Unit of the number; empty where it has none."""


@dataclass(frozen=True)
class Field:
    """One field of the observation: a text, a list of action names, or a vector of quantities."""

    meaning: str
    quantities: tuple[Quantity, ...] = ()
    """One entry for each number of a vector field; empty for a text field."""
    is_list: bool = False
    """True where the field is a list of names instead of one text."""


@dataclass(frozen=True)
class Action:
    """One action, or one pattern of actions such as ``take {object}``, under the name a player says."""

    name: str
    meaning: str
    value: float | None = None
    """The number that the name stands for where the action space is a one-dimensional Box; else None."""


@dataclass(frozen=True)
class TextSpec:
    """What a player must be told: the goal, the meaning of each observation field and of each action.

    `names`, `encode` and `decode` translate between action names and the environment's actions. Nothing else in
    either package knows whether an environment takes strings, indices or real numbers.
    """

    goal: str
    """What the task is, in general; ``obs["goal"]`` has this episode's own."""
    fields: Mapping[str, Field]
    """Meaning of each key of the observation."""
    actions: tuple[Action, ...]
    encoding: Encoding
    """How a name becomes an action. ``text``: as it is. ``index``: its place in ``obs["valid_actions"]``.
    ``discrete``: its place in `actions`. ``box``: its value, or the number that it spells."""
    low: float = -1.0
    """Least number of a ``box`` action."""
    high: float = 1.0
    """Greatest number of a ``box`` action."""
    reward: str = ""
    """What is rewarded, in a sentence."""

    def names(self, obs: Observation) -> tuple[str, ...]:
        """Return the names of the actions that can be said now, sorted where the game lists them."""
        if "valid_actions" in obs:
            return tuple(obs["valid_actions"])
        if self.encoding in ("text", "index"):
            raise UsageError(
                "obs: expected the key 'valid_actions', which lists the actions of this game; "
                f"got the keys {sorted(obs)}. Pass the environment's own observation."
            )
        return tuple(action.name for action in self.actions)

    def encode(self, name: str, obs: Observation) -> Any:
        """Turn an action's name into the environment's action.

        Raises:
            InvalidActionError: If the name cannot be an action of this environment. (Any string is an action of a text game.)
        """
        if self.encoding == "text":
            return name
        if self.encoding == "box":
            return np.array([self._number(name)], dtype=np.float32)
        names = self.names(obs) if self.encoding == "index" else tuple(action.name for action in self.actions)
        if name not in names:
            raise InvalidActionError(f"action: expected one of {', '.join(map(repr, names))}; got {name!r}.")
        return names.index(name)

    def decode(self, action: Any, obs: Observation) -> str:
        """Turn an environment's action back into its name, the inverse of `encode`.

        Raises:
            InvalidActionError: If it is not an action of this environment.
        """
        if self.encoding == "text":
            return str(action)
        if self.encoding == "box":
            try:
                array = np.asarray(action, dtype=np.float32)
                number = float(str(array.reshape(-1)[0])) if array.size == 1 else float("nan")  # float32's shortest digits
            except (TypeError, ValueError):
                number = float("nan")
            if not self.low <= number <= self.high:  # also catches nan
                raise InvalidActionError(f"action: expected one number from {self.low:g} to {self.high:g}; got {action!r}.")
            return next((a.name for a in self.actions if a.value == number), repr(number))
        names = self.names(obs) if self.encoding == "index" else tuple(action.name for action in self.actions)
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < len(names):
            raise InvalidActionError(f"action: expected an index from 0 to {len(names) - 1}; got {action!r}.")
        return names[index]

    def _number(self, name: str) -> float:
        for action in self.actions:
            if action.name == name and action.value is not None:
                return action.value
        try:
            number = float(name)
        except ValueError:
            number = float("nan")
        if not self.low <= number <= self.high:  # also catches nan
            names = ", ".join(repr(action.name) for action in self.actions)
            raise InvalidActionError(f"action: expected {names} or a number from {self.low:g} to {self.high:g}; got {name!r}.")
        return number

    def observation_schema(self) -> dict[str, Any]:
        """Return a JSON schema of the observation."""
        return {
            "type": "object",
            "properties": {key: _field_schema(field) for key, field in self.fields.items()},
            "required": list(self.fields),
            "additionalProperties": False,
        }

    def action_schema(self) -> dict[str, Any]:
        """Return a JSON schema of an action's name, with the meaning of each."""
        meanings = [{"const": action.name, "description": action.meaning} for action in self.actions]
        if self.encoding == "discrete":
            return {"type": "string", "oneOf": meanings}
        if self.encoding == "box":
            return {"anyOf": [{"type": "number", "minimum": self.low, "maximum": self.high}, *meanings]}
        patterns = "; ".join(f"{action.name}: {action.meaning}" for action in self.actions)
        return {"type": "string", "description": f"One of the observation's valid_actions. {patterns}"}

    def describe_fields(self) -> str:
        """Return the observation fields as prose, one line each."""
        return "\n".join(f"- {key}: {_field_prose(field)}" for key, field in self.fields.items())

    def describe_actions(self) -> str:
        """Return the actions as prose, one line each."""
        return "\n".join(f"- {action.name}: {action.meaning}" for action in self.actions)

    def to_json(self) -> str:
        """Return all of it as JSON text with sorted keys: equal specs give equal text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def _field_schema(field: Field) -> dict[str, Any]:
    if field.is_list:
        return {"type": "array", "items": {"type": "string"}, "description": field.meaning}
    if not field.quantities:
        return {"type": "string", "description": field.meaning}
    items = [
        {"type": "number", "minimum": q.low, "maximum": q.high, "title": q.name, "description": _quantity_prose(q)}
        for q in field.quantities
    ]
    return {
        "type": "array",
        "prefixItems": items,
        "minItems": len(items),
        "maxItems": len(items),
        "description": field.meaning,
    }


def _quantity_prose(quantity: Quantity) -> str:
    unit = f" in {quantity.unit}" if quantity.unit else ""
    return f"{quantity.meaning}{unit}"


def _field_prose(field: Field) -> str:
    if not field.quantities:
        return field.meaning
    parts = "; ".join(f"{q.name}, {_quantity_prose(q)}, {q.low:g} to {q.high:g}" for q in field.quantities)
    return f"{field.meaning}: {parts}"
