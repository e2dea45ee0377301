"""`TextSpec`: what a player must know about an environment, and how names become actions."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gym_text.errors import InvalidActionError, UsageError, check_choice

Encoding = Literal["text", "index", "discrete", "box"]
Observation = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """One number inside an observation field."""

    name: str
    """The quantity's name, such as ``angle``."""
    meaning: str
    """What the number measures."""
    low: float
    """Least value; may be minus infinity."""
    high: float
    """Greatest value; may be infinity."""
    unit: str = ""
    """Unit of the number; empty if it has none."""


@dataclass(frozen=True)
class Field:
    """One field of the observation: a text, a list of action names, or a vector of quantities."""

    meaning: str
    """What the field tells the player."""
    quantities: tuple[Quantity, ...] = ()
    """One entry for each number of a vector field; empty for a text field."""
    is_list: bool = False
    """Whether the field is a list of names instead of one text."""
    is_scalar: bool = False
    """Whether the field is a single number instead of a vector."""


@dataclass(frozen=True)
class Action:
    """An action, or a pattern of actions such as ``take {object}``, with the name that a player uses."""

    name: str
    """The action's name, by which a player chooses it."""
    meaning: str
    """What the action does."""
    value: float | tuple[float, ...] | None = None
    """The number or numbers of the action if the action space is a Box; else None."""


@dataclass(frozen=True)
class TextSpec:
    """What a player must know: the goal, the meaning of each observation field and of each action.

    `names`, `encode` and `decode` translate between action names and the environment's actions.
    """

    goal: str
    """The task in general; ``obs["goal"]`` has the task of the episode."""
    fields: Mapping[str, Field]
    """Meaning of each key of the observation."""
    actions: tuple[Action, ...]
    """All actions. If the observation lists the valid actions, these are patterns of actions, such as ``take {object}``."""
    encoding: Encoding
    """What the environment's action is. ``text``: the name itself. ``index``: the name's index in ``obs["valid_actions"]``.
    ``discrete``: the name's index in `actions`. ``box``: the value of the named action, or numbers with commas between them."""
    low: float = -1.0
    """Least number of a ``box`` action."""
    high: float = 1.0
    """Greatest number of a ``box`` action."""
    reward: str = ""
    """The reward, in a sentence."""
    size: int = 1
    """Number of values in a ``box`` action."""

    def __post_init__(self) -> None:
        check_choice("TextSpec.encoding", self.encoding, get_args(Encoding))
        object.__setattr__(self, "actions", tuple(self.actions))
        names = [action.name for action in self.actions]
        if len({*names}) < len(names):
            raise UsageError(f"TextSpec.actions: expected a different name for each action; got {names}.")
        if self.encoding == "box":
            for action in self.actions:
                if action.value is not None and not self._are_action(_values(action)):
                    raise UsageError(f"Action.value of {action.name!r}: expected {self._range()}; got {action.value!r}.")

    @property
    def lists_actions(self) -> bool:
        """Whether the names of the actions are known. False in a game that takes any words and lists no actions."""
        return self.encoding != "text" or "valid_actions" in self.fields

    def names(self, obs: Observation) -> tuple[str, ...]:
        """Return the names of the actions that can be chosen now, each once; sorted if the game lists them.

        For a game that takes any words and lists no actions, the tuple is empty.
        """
        return tuple(dict.fromkeys(self._names_by_index(obs)))

    def _names_by_index(self, obs: Observation) -> tuple[str, ...]:
        """Return the name at each index; a game may list a name twice."""
        if "valid_actions" in obs:
            return tuple(obs["valid_actions"])
        if not self.lists_actions:
            return ()
        if self.encoding in ("text", "index"):
            raise UsageError(
                "obs: expected the key 'valid_actions', which lists the actions of this game; "
                f"got the keys {sorted(obs)}. Pass the environment's own observation."
            )
        return tuple(action.name for action in self.actions)

    def encode(self, name: str, obs: Observation) -> Any:
        """Turn an action's name into the environment's action.

        With the encoding ``index`` the empty string becomes an index beyond the valid actions, none of which has a name.

        Raises:
            InvalidActionError: If the name cannot be an action of this environment. (Any string is an action of a text game.)
        """
        if self.encoding == "text":
            return name
        if self.encoding == "box":
            return np.array(self._numbers(name), dtype=np.float32)
        names = self._names_by_index(obs) if self.encoding == "index" else tuple(action.name for action in self.actions)
        if self.encoding == "index" and not name:
            return len(names)
        if name not in names:
            raise InvalidActionError(f"action: expected one of {', '.join(map(repr, names))}; got {name!r}.")
        return names.index(name)

    def decode(self, action: Any, obs: Observation) -> str:
        """Turn an environment's action back into its name, the inverse of `encode`.

        Raises:
            InvalidActionError: If `action` is not an action of this environment.
        """
        if self.encoding == "text":
            return str(action)
        if self.encoding == "box":
            try:
                with np.errstate(over="ignore"):  # a number that is too large becomes infinite, which is no action
                    array = np.asarray(action, dtype=np.float32).reshape(-1)
                numbers = tuple(float(str(number)) for number in array)  # float32's shortest digits
            except (TypeError, ValueError):
                numbers = ()
            if not self._are_action(numbers):
                raise InvalidActionError(f"action: expected {self._range()}; got {action!r}.")
            return next((a.name for a in self.actions if _values(a) == numbers), ", ".join(map(repr, numbers)))
        names = self._names_by_index(obs) if self.encoding == "index" else tuple(action.name for action in self.actions)
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < len(names):
            raise InvalidActionError(f"action: expected an index from 0 to {len(names) - 1}; got {action!r}.")
        return names[index]

    def _numbers(self, name: str) -> tuple[float, ...]:
        for action in self.actions:
            if action.name == name and action.value is not None:
                return _values(action)
        try:
            numbers = tuple(float(part) for part in name.split(","))
        except ValueError:
            numbers = ()
        if not self._are_action(numbers):
            names = ", ".join(repr(action.name) for action in self.actions)
            raise InvalidActionError(f"action: expected {names} or {self._range()}; got {name!r}.")
        return numbers

    def _are_action(self, numbers: tuple[float, ...]) -> bool:
        return len(numbers) == self.size and all(self.low <= number <= self.high for number in numbers)  # NaN compares as False

    def choices(self, obs: Observation) -> str:
        """Return one line that says what can be chosen now: names of actions, numbers of a ``box`` action, or any words."""
        if not self.lists_actions:
            return "any words"
        return ", or ".join(filter(None, [", ".join(self.names(obs)), self._range() if self.encoding == "box" else ""]))

    def _range(self) -> str:
        """Describe a ``box`` action."""
        many = "a number" if self.size == 1 else f"{self.size} numbers, with commas between,"
        return f"{many} from {self.low:g} to {self.high:g}"

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
            number = {"type": "number", "minimum": self.low, "maximum": self.high}
            return {"anyOf": [number if self.size == 1 else {"type": "string", "description": self._range()}, *meanings]}
        patterns = "; ".join(f"{action.name}: {action.meaning}" for action in self.actions)
        one_of = "One of the observation's valid_actions." if self.lists_actions else "Any words."
        return {"type": "string", "description": f"{one_of} {patterns}"}

    def describe_fields(self) -> str:
        """Return the observation fields as prose, one line each."""
        return "\n".join(f"- {key}: {_field_prose(field)}" for key, field in self.fields.items())

    def describe_actions(self) -> str:
        """Return the actions as prose, one line each."""
        return "\n".join(f"- {action.name}: {action.meaning}" for action in self.actions)

    def _repr_html_(self) -> str:
        """Return the spec for a notebook."""
        from gym_text.html import block, line, shown, table

        reward = [line(shown(f"Reward: {self.reward}", 2000))] * bool(self.reward)
        fields = table(("observation", "meaning"), [(key, _field_prose(field)) for key, field in self.fields.items()])
        actions = table(("action", "meaning"), [(action.name, action.meaning) for action in self.actions], height="24em")
        return str(block(line(shown(f"Goal: {self.goal}", 2000)), *reward, fields, actions))

    def to_json(self) -> str:
        """Return the spec as JSON text with sorted keys: equal specs give equal text."""
        data = dataclasses.asdict(self)
        if self.size == 1:
            # left out at its default: older specs had no size, and a hash of this text is in the keys of stored episodes
            del data["size"]
        for field in data["fields"].values():
            if not field["is_scalar"]:
                del field["is_scalar"]
        return json.dumps(data, sort_keys=True)


def _values(action: Action) -> tuple[float, ...]:
    """Return the numbers that an action's name stands for."""
    if action.value is None:
        return ()
    return action.value if isinstance(action.value, tuple) else (action.value,)


def _field_schema(field: Field) -> dict[str, Any]:
    if field.is_list:
        return {"type": "array", "items": {"type": "string"}, "description": field.meaning}
    if not field.quantities:
        return {"type": "string", "description": field.meaning}
    items = [_quantity_schema(quantity) for quantity in field.quantities]
    if field.is_scalar:
        return items[0] | {"description": f"{field.meaning}: {items[0]['description']}"}
    return {
        "type": "array",
        "prefixItems": items,
        "minItems": len(items),
        "maxItems": len(items),
        "description": field.meaning,
    }


def _quantity_schema(quantity: Quantity) -> dict[str, Any]:
    limits = {"minimum": quantity.low, "maximum": quantity.high}
    finite = {name: limit for name, limit in limits.items() if math.isfinite(limit)}  # JSON has no infinity
    return {"type": "number", **finite, "title": quantity.name, "description": _quantity_prose(quantity)}


def _quantity_prose(quantity: Quantity) -> str:
    unit = f" in {quantity.unit}" if quantity.unit else ""
    return f"{quantity.meaning}{unit}"


def _field_prose(field: Field) -> str:
    if not field.quantities:
        return field.meaning
    parts = "; ".join(f"{q.name}, {_quantity_prose(q)}, {_range_prose(q)}" for q in field.quantities)
    return f"{field.meaning}: {parts}"


def _range_prose(quantity: Quantity) -> str:
    if math.isinf(quantity.low) and math.isinf(quantity.high):
        return "any number"
    return f"{quantity.low:g} to {quantity.high:g}"
