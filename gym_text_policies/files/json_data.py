"""Convert values to plain JSON, and check the fields of records before they are stored and after they are read."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

_LARGEST = 1e300
"""Greatest number of a record, so that sums of many stay finite."""
_LONGEST_INT = 2**63
_Record = TypeVar("_Record")


def plain(value: Any) -> Any:
    """Return an observation, or a part of it, as plain JSON: arrays and tuples as lists, float32 in its shortest digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value] if value.ndim else plain(value[()])
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def without_surrogates(value: Any) -> Any:
    """Return plain data in whose texts each half of a surrogate pair, which UTF-8 cannot hold, is a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(part) for key, part in value.items()}
    return [without_surrogates(part) for part in value] if isinstance(value, list | tuple) else value


def check_json(what: str, data: Any) -> None:
    """Raise TypeError or ValueError unless data is JSON, with finite numbers only.

    Args:
        what: Names the data. Of a dict, the error names the key that is wrong.
        data: What is to be checked.
    """
    try:
        json.dumps(data, allow_nan=False)  # many times as fast as a walk
    except (TypeError, ValueError) as error:
        if isinstance(data, Mapping):
            for key, value in data.items():
                check_json(f"{what}[{key!r}]", value)
        raise type(error)(f"{what}: expected plain JSON with finite numbers; got {str(data)[:60]} ({error})") from None


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that a record can hold: neither NaN nor infinite nor beyond 1e300."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST  # NaN compares as false


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LONGEST_INT


def checked(record: _Record) -> _Record:
    """Return a record, a dataclass of this package. Raise TypeError or ValueError if one of its fields cannot be stored."""
    kind: Any = type(record)
    for name, default, types in _fields(kind):
        value = getattr(record, name)
        if value is not default and not any(_TYPES[declared][0](value) for declared in types):
            expected = " or ".join(_TYPES[declared][1] for declared in types)
            raise TypeError(f"{name}: expected {expected}; got {str(value)[:60]!r} ({type(value).__name__})")
    return record


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "a text"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (_is_count, "a whole number from 0 on"),
    "float": (is_finite, "a finite number (at most 1e300)"),
    "tuple": (lambda value: isinstance(value, tuple), "a tuple"),
    "Mapping": (lambda value: isinstance(value, dict), "a dict"),
    "None": (lambda value: value is None, "nothing"),
    "tuple[int, ...]": (lambda value: isinstance(value, tuple) and _all(value, _is_count), "a tuple of whole numbers from 0 on"),
    "tuple[float, ...]": (lambda value: isinstance(value, tuple) and _all(value, is_finite), "a tuple of finite numbers"),
    "Mapping[str, int]": (lambda value: _maps_names(value, _is_count), "a whole number from 0 on for each name"),
    "Mapping[str, float]": (lambda value: _maps_names(value, is_finite), "a finite number for each name"),
}
"""Declared type of a field -> what fits, and what is expected. Fields of other types are not checked here. A type in brackets that
is not listed counts as the type before them."""


def _all(values: Iterable[Any], fits: Callable[[Any], bool]) -> bool:
    return all(map(fits, values))


def _maps_names(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value) and _all(value.values(), fits)


@functools.cache
def _fields(record: Any) -> list[tuple[str, Any, tuple[str, ...]]]:
    """Return the fields of a record class that are checked, with their defaults and their declared types."""
    rows = []
    for field in dataclasses.fields(record):
        parts = str(field.type).split(" | ")
        types = tuple(part if part in _TYPES else part.partition("[")[0] for part in parts)
        if all(part in _TYPES for part in types):
            rows.append((field.name, field.default, types))
    return rows


def checked_decision(decision: _Record) -> _Record:
    """Return a `Decision`; raise TypeError or ValueError if it cannot be stored."""
    for message in checked(decision).messages:  # type: ignore[attr-defined]
        checked_message(message)
    return decision


def checked_message(message: Any) -> dict[str, str]:
    """Return a message of a chat; raise TypeError unless it has texts, role and content among them."""
    is_message = isinstance(message, dict) and {"role", "content"} <= message.keys()
    if not is_message or not all(isinstance(value, str) for value in message.values()):
        raise TypeError(f"messages: expected role and content, as texts; got {str(message)[:60]!r}")
    return message  # type: ignore[no-any-return]


def checked_tokens(tokens: _Record) -> _Record:
    """Return the `Tokens` of a decision; raise TypeError unless they are integers with log-probabilities."""
    if len(checked(tokens).said) != len(tokens.log_probs):  # type: ignore[attr-defined]
        raise TypeError("tokens: expected a log-probability for each generated token")
    return tokens


def check_environment(environment: Mapping[str, Any]) -> None:
    """Raise TypeError unless the parts of an environment's record have their types; old records may have the id alone."""
    limit, wrappers = environment.get("max_episode_steps"), checked_list("wrappers", environment.get("wrappers", []))
    if not isinstance(environment["id"], str) or not isinstance(environment.get("module", ""), str):
        raise TypeError("environment: expected texts as id and module")
    if not isinstance(environment.get("kwargs", {}), dict) or not (limit is None or type(limit) is int):
        raise TypeError("environment: expected a dict as kwargs and a whole number as max_episode_steps")
    for wrapper in wrappers:
        name, arguments = pair if len(pair := checked_list("wrappers", wrapper)) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise TypeError(f"environment: expected names and arguments as wrappers; got {str(wrapper)[:60]!r}")


def checked_list(name: str, value: Any) -> list[Any]:
    """Return a value as a list; raise TypeError if it is no list."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name}: expected a list; got {str(value)[:60]!r}")
    return list(value)


def difference(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of an observation: its differences from the observation before, and the keys that are gone."""
    gone = [key for key in before if key not in after]
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {name: changed, **({f"{name}_without": gone} if gone else {})}


def restored(name: str, before: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return the observation from what `difference` stored. The entry ``NAME_without`` is removed from `data`."""
    gone = checked_list(name, data.pop(f"{name}_without", []))
    if not isinstance(data[name], dict):
        raise TypeError(f"{name}: expected a dict; got {str(data[name])[:60]!r}")
    return {key: value for key, value in {**before, **data[name]}.items() if key not in gone}


def common(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the number of elements, such as messages or tokens, that two sequences share from the start."""
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))


def begun(before: tuple[Any, ...], count: Any) -> tuple[Any, ...]:
    """Return the first `count` messages, or tokens, of the prompt before."""
    if type(count) is not int or not 0 <= count <= len(before):
        raise ValueError(f"expected a number from 0 to {len(before)} of what the prompt before has; got {str(count)[:60]!r}")
    return before[:count]
