"""Config dataclasses from YAML files, with file and line of every mistake."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gym_text.errors import UsageError
from gym_text_policies.settings.fields import default_of, read_value
from gym_text_policies.settings.yaml_nodes import Node, changed, from_plain, read_yaml

T = TypeVar("T")


def read_settings(kind: type[T], path: str | Path, changes: Mapping[str, Any] | None = None) -> T:
    """Return the config dataclass that a YAML file describes; `changes` replace values of the file, by the name of the field.

    Raises:
        UsageError: If the file has mistakes; the message names file and line of each.
    """
    root = read_yaml(path)
    if root.value is None or isinstance(root.value, dict):
        for name, value in (changes or {}).items():
            root = changed(root, [name], from_plain(value))
    return build(kind, root)


def build(kind: type[T], node: Node, where: str = "") -> T:
    """Return the config dataclass that a node describes; a field that is a dataclass is a section.

    A field with ``metadata={"internal": True}`` is no key. A dataclass may have a static method ``of_file``, which checks the nodes
    of its keys first. `where` is the prefix of the keys in messages, such as ``agent.``.

    Raises:
        UsageError: If keys are unknown or values wrong; every mistake is named, a line each.
    """
    mistakes: list[str] = []
    config = _build(kind, node, where, mistakes)
    if mistakes or config is None:
        raise UsageError("\n".join(dict.fromkeys(mistakes)))
    return config


def _build(kind: type[T], node: Node, where: str, mistakes: list[str]) -> T | None:
    """Return the dataclass of a section, or None after adding its mistakes."""
    section, before = f"{where[:-1]}: " if where else "", len(mistakes)
    known = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("internal")]  # type: ignore[arg-type]
    if node.value is not None and not isinstance(node.value, dict):
        mistakes.append(f"{node.location}{section}expected keys ({', '.join(known)}); got {node.value!r}.")
        return None
    given, values, hints = dict(node.value or {}), {}, get_type_hints(kind)
    if of_file := getattr(kind, "of_file", None):
        try:
            given = dict(of_file(given))
        except UsageError as error:
            mistakes.append(str(error))
    defaults = {field.name: default_of(field) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    missing = [name for name in known if name not in given and defaults[name] is dataclasses.MISSING]
    given |= {name: Node(None, node.location) for name in missing if dataclasses.is_dataclass(hints[name])}
    for name, part in given.items():
        if name not in known:
            mistakes.append(f"{part.location}{section}{_no_key(name, known)}")
        else:
            values[name] = _value(hints[name], part, f"{where}{name}", mistakes)
    mistakes += [f"{node.location}{section}expected the key {name!r}; it is missing." for name in missing if name not in given]
    if len(mistakes) > before:
        return None
    try:
        return kind(**values)
    except UsageError as error:
        part = given.get(str(error).partition(":")[0], node)
        mistakes.append(f"{part.location}{where}{error}")
        return None


def _value(hint: Any, node: Node, where: str, mistakes: list[str]) -> Any:
    """Return the value of a key: a section, a list of sections, sections by their names, or what `read_value` returns."""
    if dataclasses.is_dataclass(hint):
        return _build(hint, node, f"{where}.", mistakes)  # type: ignore[arg-type]
    *_, part = (argument for argument in (hint, *get_args(hint)) if argument is not Ellipsis)
    if dataclasses.is_dataclass(part) and get_origin(hint) is tuple and isinstance(node.value, list):
        return tuple(_value(part, one, f"{where}[{number}]", mistakes) for number, one in enumerate(node.value))
    if dataclasses.is_dataclass(part) and get_origin(hint) is Mapping and isinstance(node.value, dict):
        return {name: _value(part, one, f"{where}.{name}", mistakes) for name, one in node.value.items()}
    try:
        return read_value(node.plain(), hint)
    except ValueError as error:
        mistakes.append(f"{node.location}{where}: expected {error}; got {node.plain()!r}.")
        return None


def _no_key(name: str, known: list[str]) -> str:
    """Return the error for an unknown key."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    hint += " Keys of providers come from environment variables alone." if "key" in name.lower() else ""
    return f"got an unknown key {name!r}.{hint} Keys: {', '.join(known)}."
