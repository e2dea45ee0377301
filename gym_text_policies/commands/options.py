"""From the fields of a config dataclass to options of the command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from gym_text_policies.files.safe_files import check_characters
from gym_text_policies.settings.from_file import Setting, Word, members_of, read_value, settings_of


def add_fields(parser: argparse.ArgumentParser, config: type[Any]) -> None:
    """Make an option of each field of a config dataclass; the string under the field is its help.

    A field that is itself a dataclass is a section: ``sft`` gives ``--sft.epochs`` and so on. A section has a default value. Its
    ``metadata={"without": (…)}`` names the fields of the section that are no options.

    An option has the field's name, or the name in ``metadata={"option": …}``, such as ``import``, which Python does not allow as a
    field's name.

    The parsed namespace has only the options that were given. So an option overrides a YAML file even if it has its default value.

    A field without a default, or with ``metadata={"positional": True}``, is a positional argument. A bool is ``--x`` and
    ``--no-x``, ``none`` stands for None, a tuple takes several words, and a mapping ``key=value`` words, whose values are JSON
    where they can be.
    """
    settings = {setting.name: setting for setting in settings_of(config)}
    spell = _speller(settings)
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for setting in settings.values():
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
            section = setting.name.rpartition(".")[0]
            if section not in groups:
                groups[section] = parser.add_argument_group(f"options of {section}")
            groups[section].add_argument(spell(setting.name), dest=setting.name, **arguments)


def _speller(settings: Mapping[str, Setting]) -> Callable[[str], str]:
    """Return a function from the old or new name of a setting to the word of the command line."""

    def spell(name: str) -> str:
        if name in settings and settings[name].is_positional:
            return name.upper()
        option: str = settings[name].metadata.get("option", name) if name in settings else name
        return f"--{option.replace('_', '-')}"

    return spell


def _hint_of(fixed: Any) -> Any:
    """Return a type for an option that no longer exists. It accepts any text, so that `new_name` can say which value holds."""
    return bool if isinstance(fixed, bool) else type(fixed) | str


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default)) or "none"
    return "none" if default in ("", {}) else str(default)


def _arguments(name: str, hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a setting."""
    name = name.rpartition(".")[2]
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
            check_characters(self.dest, pairs)
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **pairs})
