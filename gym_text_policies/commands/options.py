"""From the fields of a config dataclass to options of the command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from gym_text_policies.settings.fields import Word, members_of, read_value, settings_of


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Make an option of each field of a config dataclass; the string under the field is its help.

    The parsed namespace has only the options that were given. So an option overrides a YAML file even if it has its default value.

    A field without a default, or with ``metadata={"positional": True}``, is a positional argument. A bool is ``--x`` and
    ``--no-x``, ``none`` stands for None, a tuple takes several words, and a mapping ``key=value`` words, whose values are JSON
    where they can be.
    """
    for setting in settings_of(config):
        text, default = setting.doc, setting.default
        explained = "default" in text.lower() and _shown(default) == "none"  # the text says what an empty default means
        if default is not dataclasses.MISSING and default is not None and not explained:
            text += f" Default: {_shown(default)}."
        arguments = _arguments(setting.name, setting.hint) | {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
        if setting.is_positional:
            several = arguments.get("nargs") == "*"
            optional = default is not dataclasses.MISSING
            arguments["nargs"] = ("*" if optional else "+") if several else "?" if optional else None
            if "choices" not in arguments:
                arguments["metavar"] = setting.name.upper()
            parser.add_argument(setting.name, **arguments)
        else:
            parser.add_argument(f"--{setting.name.replace('_', '-')}", dest=setting.name, **arguments)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or "none"
    return "none" if default in ("", {}) else str(default)


def _arguments(name: str, hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a setting."""
    if hint in (bool, bool | None):
        return {"action": argparse.BooleanOptionalAction}
    if tuples := [member for member in members_of(hint) if get_origin(member) is tuple]:
        return _arguments(name.removesuffix("s"), get_args(tuples[0])[0]) | {"nargs": "*", "action": _AsTuple}
    if get_origin(hint) in (dict, Mapping):
        return {"nargs": "*", "action": _AsMapping, "metavar": "KEY=VALUE"}
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return {"choices": get_args(hint), "metavar": f"{{{','.join(filter(None, get_args(hint)))}}}"}
    return {"type": _reader(hint), "metavar": "|".join(_shape(name, m) for m in members_of(hint) if m is not type(None))}


def _shape(name: str, member: Any) -> str:
    """Return the placeholder that help shows for a value of a type."""
    if get_origin(member) is Literal:
        return "|".join(map(str, get_args(member)))
    return {int: "N", float: "X", bool: "true|false"}.get(member, name.upper())


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return a function that converts a word to a type."""

    def read(word: str) -> Any:
        if word == argparse.SUPPRESS:  # argparse passes it for a positional argument that was not given
            return word
        try:
            return read_value(Word(word), hint)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {error}; got {word!r}") from None

    return read


class _AsTuple(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest, ()), *values))  # an option may come several times


class _AsMapping(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        pairs = {}
        for word in values:
            key, equals, value = word.partition("=")
            if not equals:
                raise argparse.ArgumentError(self, f"expected key=value; got {word!r}")
            try:
                pairs[key] = json.loads(value)
            except (ValueError, RecursionError):
                pairs[key] = value
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **pairs})
