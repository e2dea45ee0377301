"""From the fields of a config dataclass to options of the command line."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Make an option of each field of a config dataclass; the string under the field is its help.

    A field without a default, or with ``metadata={"positional": True}``, is a positional argument. Types: bool (``--x``,
    ``--no-x``), int, float, str, Literal, unions of these (``none`` stands for None), tuples of them (several words) and
    mappings (``key=value`` words, whose values are JSON where they can be).
    """
    docs, hints = field_docs(config), get_type_hints(config)
    for field in dataclasses.fields(config):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        text = docs.get(field.name, "")
        if default is not dataclasses.MISSING and default is not None:
            text += f" Default: {_shown(default)}."
        arguments = _arguments(hints[field.name], default) | {"help": text.replace("%", "%%")}
        if default is dataclasses.MISSING or field.metadata.get("positional"):
            several = arguments.get("nargs") == "*"
            optional = default is not dataclasses.MISSING
            arguments["nargs"] = ("*" if optional else "+") if several else "?" if optional else None
            if "choices" not in arguments:
                arguments["metavar"] = field.name.upper()
            parser.add_argument(field.name, **arguments)
        else:
            parser.add_argument(f"--{field.name.replace('_', '-')}", **arguments)


def field_docs(config: type[Any]) -> dict[str, str]:
    """Return the string that stands under each field of a dataclass, those it inherits included."""
    docs = {}
    for kind in reversed(config.__mro__):
        if not dataclasses.is_dataclass(kind):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, doc in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
                docs[field.target.id] = " ".join(str(ast.literal_eval(doc.value)).split())
    return docs


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or "none"
    return str(default)


def _arguments(hint: Any, default: Any) -> dict[str, Any]:
    """Return what `add_argument` is told of a type."""
    arguments: dict[str, Any] = {} if default is dataclasses.MISSING else {"default": default}
    if hint is bool:
        return arguments | {"action": argparse.BooleanOptionalAction}
    if get_origin(hint) is tuple:
        inner = _arguments(get_args(hint)[0], dataclasses.MISSING)
        return arguments | inner | {"nargs": "*", "action": _AsTuple}
    if get_origin(hint) in (dict, Mapping):
        return arguments | {"nargs": "*", "action": _AsMapping, "metavar": "KEY=VALUE"}
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if all(isinstance(choice, str) for choice in choices):
            return arguments | {"choices": choices}
    members = _members(hint)
    names = "|".join(_name(member) for member in members if member is not type(None))
    return arguments | {
        "type": members[0] if len(members) == 1 and hint in (int, float, str) else _reader(members),
        "metavar": names,
    }


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, None last; any other type as its only member."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(sorted(members, key=lambda member: member is type(None)))


def _name(member: Any) -> str:
    if get_origin(member) is Literal:
        return "|".join(map(str, get_args(member)))
    return str(getattr(member, "__name__", member))


def _reader(members: tuple[Any, ...]) -> Callable[[str], Any]:
    """Return a function that reads a word as the first of these types that it can be."""

    def read(word: str) -> Any:
        for member in sorted(members, key=lambda member: member is str):
            if member is type(None):
                if word.lower() == "none":
                    return None
            elif get_origin(member) is Literal:
                for choice in get_args(member):
                    if word == str(choice):
                        return choice
            elif member is bool:
                if word.lower() in ("true", "false"):
                    return word.lower() == "true"
            else:
                try:
                    return member(word)
                except ValueError:
                    continue
        expected = " or ".join("none" if member is type(None) else _name(member) for member in members)
        raise argparse.ArgumentTypeError(f"expected {expected}; got {word!r}")

    return read


class _AsTuple(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, tuple(values))


class _AsMapping(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        pairs = {}
        for word in values:
            key, equals, value = word.partition("=")
            if not equals:
                raise argparse.ArgumentError(self, f"expected key=value; got {word!r}")
            try:
                pairs[key] = json.loads(value)
            except ValueError:
                pairs[key] = value
        setattr(namespace, self.dest, pairs)
