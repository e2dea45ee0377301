"""Fields of config dataclasses: one reader of their types, their help and their defaults, for YAML files and the command line.

Every setting is a field of a dataclass: its type says what it may be, and the string under it says what it means.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

_NAMES = {int: "an integer", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NOT_THIS = object()
"""Stands for a value that is not of a type."""


class Word(str):
    """A word of the command line: it may spell a value of any type."""


def read_value(value: Any, hint: Any) -> Any:
    """Convert a value from YAML, or a `Word`, to the type of a field.

    Types: bool, int, float, str, Literal, unions of these with None, tuples of them, and mappings.

    >>> read_value(Word("all"), int | Literal["all"]), read_value(Word("4"), int | Literal["all"]), read_value("1e-3", float)
    ('all', 4, 0.001)

    Raises:
        ValueError: If the value does not fit the type; the message says what was expected.
    """
    members = members_of(hint)
    for member in sorted(members, key=lambda member: member is str):  # str comes last, because any word is a text
        result = _as_member(value, member)
        if result is not _NOT_THIS:
            return result
    raise ValueError(" or ".join(map(_expected, members)))


def members_of(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union; any other type as its only member."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _as_member(value: Any, member: Any) -> Any:
    """Convert a value to a type that is no union; return `_NOT_THIS` if the value does not fit."""
    origin, spelt = get_origin(member), isinstance(value, Word)
    if origin is Literal:
        choices = (c for c in get_args(member) if (str(c) == value if spelt else c == value and type(c) is type(value)))
        return next(choices, _NOT_THIS)
    if origin is tuple:
        return tuple(read_value(part, get_args(member)[0]) for part in value) if isinstance(value, list | tuple) else _NOT_THIS
    if origin in (dict, Mapping, types.MappingProxyType):
        return (value or {}) if value is None or isinstance(value, dict) else _NOT_THIS
    if member is type(None):
        return None if value is None or (spelt and value.lower() == "none") else _NOT_THIS
    if member is bool:
        return value if isinstance(value, bool) else _TRUTH.get(str(value).lower(), _NOT_THIS)
    if isinstance(value, bool):
        return _NOT_THIS
    if member is float or (member is int and spelt):
        return _as_number(value, member)
    if member is str:
        return str(value) if isinstance(value, str) else _NOT_THIS
    return value if isinstance(value, member) else _NOT_THIS


def _as_number(value: Any, kind: type[Any]) -> Any:
    """Return a number. A text with digits is converted too, because YAML 1.1 reads 1e-3 as a text."""
    if not isinstance(value, int | float) and not (isinstance(value, str) and any(c.isdigit() for c in value)):
        return _NOT_THIS
    try:
        number = kind(value)
        return number if number == number else _NOT_THIS  # NaN is no setting
    except (ValueError, OverflowError):  # an integer of 400 digits raises OverflowError
        return _NOT_THIS


def _expected(member: Any) -> str:
    if get_origin(member) is Literal:
        return "one of " + ", ".join(map(repr, get_args(member))) if len(get_args(member)) > 1 else repr(get_args(member)[0])
    if get_origin(member) is tuple:
        return f"a list, each {_expected(get_args(member)[0])}"
    return "keys and values" if get_origin(member) in (dict, Mapping) else _NAMES.get(member, "keys and values")


def field_docs(config: type[Any]) -> dict[str, str]:
    """Return the string that stands under each field of a dataclass, inherited fields included.

    A field with ``metadata={"more": function}`` gets the function's result added, such as choices from a table.
    """
    docs = {}
    for kind in reversed(config.__mro__):
        if not dataclasses.is_dataclass(kind):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, doc in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
                docs[field.target.id] = " ".join(str(ast.literal_eval(doc.value)).split())
    more = {field.name: field.metadata["more"]() for field in dataclasses.fields(config) if "more" in field.metadata}
    return docs | {name: f"{docs[name]} {text}" for name, text in more.items()}


class Setting(NamedTuple):
    """A field of a config dataclass: its name, its type, the string under it, its default value or `dataclasses.MISSING`."""

    name: str
    hint: Any
    doc: str
    default: Any
    is_positional: bool
    """Whether it is a positional argument of the command line, not an option."""


def settings_of(kind: type[Any]) -> Iterator[Setting]:
    """Yield the settings of a config dataclass."""
    docs, hints = field_docs(kind), get_type_hints(kind)
    for field in dataclasses.fields(kind):
        default = default_of(field)
        is_positional = default is dataclasses.MISSING or bool(field.metadata.get("positional"))
        yield Setting(field.name, hints[field.name], docs.get(field.name, ""), default, is_positional)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default value of a field of a dataclass, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
