"""From YAML to config dataclasses: each mistake is an error with file, line, what was expected and what was probably meant.

YAML is loaded safely, with the booleans of YAML 1.2 (true and false; off and no are words), and each key once, but for what ``<<``
merges. A list anywhere stands for several configurations, one for each entry; a list within a list is a value.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gym_text.errors import UsageError, import_extra

T = TypeVar("T")
MOST_CONFIGURATIONS = 1000
"""More than this is taken for a mistake."""
_MOST_VALUES = 100_000
"""Of a file, aliases written out: a few lines of aliases of aliases could fill the memory."""
_PLAIN = {
    "scalar": (":str", ":int", ":float", ":bool", ":null", ":merge", ":value"),
    "sequence": (":seq",),
    "mapping": (":map",),
}
"""Ends of the tags that a value may have."""
_NAMES = {int: "an integer", float: "a number", str: "a text", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class Node:
    """A value and where it stands."""

    value: Any
    """A scalar, a dict of nodes by name, or a list of nodes."""
    place: str = ""
    """File and line, as errors begin; empty for what is in no file."""

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value


def read_yaml(path: str | Path) -> Node:
    """Read a YAML file.

    Raises:
        UsageError: If it cannot be read, is no YAML, or names a key twice.
        MissingDependencyError: If PyYAML is not installed.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a YAML file; it cannot be read: {error}.") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Node:
    """Read a text as YAML; `source` is where it is from.

    Raises:
        UsageError: If it is no YAML, or names a key twice.
        MissingDependencyError: If PyYAML is not installed.
    """
    yaml = import_extra("yaml", "bench")
    try:
        loader = _loader(yaml)(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return Node(None, f"{source}, line 1: ")
            _check(loader, root, source)
            return _from_yaml(loader, root, source)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{source}, line {line}: expected YAML; {error.problem or error.context}.") from error
    except UsageError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, ArithmeticError) as error:
        # the latter from `!!int ''`, `!!bool x` and the like, on which PyYAML's own code fails
        raise UsageError(f"{source}: expected YAML; {' '.join(str(error).split())}.") from error


def from_plain(value: Any) -> Node:
    """Return the node of a plain value, which stands in no file."""
    if isinstance(value, Mapping):
        return Node({str(key): from_plain(part) for key, part in value.items()})
    return Node([from_plain(part) for part in value]) if isinstance(value, (list, tuple)) else Node(value)


def variants(node: Node) -> list[tuple[Node, dict[str, Any]]]:
    """Return what a node stands for: itself without lists, and for each list the entry that was taken, by its path.

    >>> [chosen for _, chosen in variants(from_plain({"a": {"b": [1, 2]}, "c": 3}))]
    [{'a.b': 1}, {'a.b': 2}]

    Raises:
        UsageError: If a list is empty, or there are more than 1000 variants.
    """
    found = list(itertools.islice(_variants(node, ""), MOST_CONFIGURATIONS + 1))
    if len(found) > MOST_CONFIGURATIONS:
        raise UsageError(f"{node.place}expected lists that make {MOST_CONFIGURATIONS} configurations at most; there are more.")
    return found


def build(kind: type[T], node: Node) -> T:
    """Return the config dataclass that a node without lists describes; a field that is itself one is a section.

    Fields with ``metadata={"internal": True}`` are no keys.

    Raises:
        UsageError: If keys are unknown or values wrong; all that are found are named, a line each.
    """
    mistakes: list[str] = []
    config = _build(kind, node, "", mistakes)
    if mistakes or config is None:
        raise UsageError("\n".join(dict.fromkeys(mistakes)))
    return config


def keys_of(kind: type[Any]) -> list[str]:
    """Return the names that a section may have."""
    return [field.name for field in dataclasses.fields(kind) if not field.metadata.get("internal")]


def _loader(yaml: Any) -> Any:
    """Return a safe loader for which off, on, yes, no and dates are words, and which makes no more than a number of values."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # the base comes from an optional package
        made = 0

        def count(self, values: int) -> None:
            self.made += values
            if self.made > _MOST_VALUES:
                raise ValueError(f"at most {_MOST_VALUES} values, aliases written out; there are more")

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            self.count(len(node.value))

    Loader.yaml_implicit_resolvers = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if not tag.endswith(":timestamp") and (first in "tTfF" or not tag.endswith(":bool"))
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _check(loader: Any, root: Any, path: str) -> None:
    """Raise `UsageError` if a mapping names a key twice or by no scalar, or a value is to be another type's object."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if not node.tag.endswith(_PLAIN[node.id]):
            raise UsageError(f"{path}, line {node.start_mark.line + 1}: expected YAML without types of its own; got {node.tag!r}.")
        if node.id == "scalar":
            continue
        if node.id == "sequence":
            waiting += node.value
            continue
        keys = set()
        for key_node, value_node in node.value:
            waiting.append(value_node)
            if key_node.tag.endswith((":merge", ":value")):  # << and =, which are made no values of
                continue
            if key_node.id != "scalar":
                raise UsageError(f"{path}, line {key_node.start_mark.line + 1}: expected a word as key; got a {key_node.id}.")
            key = str(loader.construct_object(key_node, deep=True))
            if key in keys:
                raise UsageError(f"{path}, line {key_node.start_mark.line + 1}: expected each key once; {key!r} comes twice.")
            keys.add(key)


def _from_yaml(loader: Any, node: Any, path: str) -> Node:
    loader.count(1)
    place = f"{path}, line {node.start_mark.line + 1}: "
    if node.id == "sequence":
        return Node([_from_yaml(loader, part, path) for part in node.value], place)
    if node.id == "scalar":
        return Node(loader.construct_object(node), place)
    loader.flatten_mapping(node)
    parts: dict[str, Node] = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        part = _from_yaml(loader, value_node, path)
        parts[key] = Node(part.value, f"{path}, line {key_node.start_mark.line + 1}: ")
    return Node(parts, place)


def _variants(node: Node, path: str) -> Iterator[tuple[Node, dict[str, Any]]]:
    if isinstance(node.value, list):
        if not node.value:
            raise UsageError(f"{node.place}{path}: expected a list with at least one entry; it is empty.")
        for number, entry in enumerate(node.value):
            if isinstance(entry.value, list):
                yield entry, {path: entry.plain()}
            else:
                for found, chosen in _variants(entry, path):
                    yield found, {path: number if isinstance(entry.value, dict) else entry.value, **chosen}
    elif isinstance(node.value, dict):
        names = list(node.value)
        parts = [list(_variants(node.value[name], f"{path}.{name}" if path else name)) for name in names]
        for combination in itertools.product(*parts):
            values = {name: found for name, (found, _) in zip(names, combination, strict=True)}
            yield Node(values, node.place), {key: value for _, chosen in combination for key, value in chosen.items()}
    else:
        yield node, {}


def _build(kind: type[T], node: Node, where: str, mistakes: list[str]) -> T | None:
    section = f"{where[:-1]}: " if where else ""
    if node.value is not None and not isinstance(node.value, dict):
        mistakes.append(f"{node.place}{section}expected keys ({', '.join(keys_of(kind))}); got {node.value!r}.")
        return None
    given: dict[str, Node] = node.value or {}
    known, hints, values, before = keys_of(kind), get_type_hints(kind), {}, len(mistakes)
    for name, part in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            hint += " Keys of providers come from the environment alone." if "key" in name.lower() else ""
            mistakes.append(f"{part.place}{section}got an unknown key {name!r}.{hint} Keys: {', '.join(known)}.")
        elif dataclasses.is_dataclass(hints[name]):
            values[name] = _build(hints[name], part, f"{where}{name}.", mistakes)
        else:
            try:
                values[name] = _value(part.plain(), hints[name])
            except ValueError as error:
                mistakes.append(f"{part.place}{where}{name}: expected {error}; got {part.plain()!r}.")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # dataclasses alone come here
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in given:
            if dataclasses.is_dataclass(hints[field.name]):
                values[field.name] = _build(hints[field.name], Node(None, node.place), f"{where}{field.name}.", mistakes)
            else:
                mistakes.append(f"{node.place}{section}expected the key {field.name!r}; it is missing.")
    if len(mistakes) > before:
        return None
    try:
        return kind(**values)
    except UsageError as error:
        part = given.get(str(error).partition(":")[0], node)
        mistakes.append(f"{part.place}{where}{error}")
        return None


def _value(value: Any, hint: Any) -> Any:
    """Return a value as a type asks for it; else raise `ValueError` with what was expected."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for member in members:
        origin = get_origin(member)
        if origin is Literal:
            if any(value == choice and type(value) is type(choice) for choice in get_args(member)):
                return value
        elif origin is tuple:
            if isinstance(value, list):
                return tuple(_value(part, get_args(member)[0]) for part in value)
        elif origin in (dict, Mapping, types.MappingProxyType):
            if value is None or isinstance(value, dict):
                return value or {}
        elif member is bool and str(value).lower() in ("yes", "on", "no", "off"):
            return str(value).lower() in ("yes", "on")
        elif member is float and not isinstance(value, bool):
            with_digits = isinstance(value, (int, float)) or (isinstance(value, str) and any(c.isdigit() for c in value))
            try:
                if with_digits:  # 1e-3 is a text in YAML 1.1
                    return float(value)
            except (ValueError, OverflowError):  # the latter from an integer of 400 digits
                continue
        elif member is type(None):
            if value is None:
                return None
        elif isinstance(value, member) and (member is bool or not isinstance(value, bool)):
            return value
    shown = [_expected(member) for member in members]
    near = difflib.get_close_matches(str(value), [str(c) for m in members if get_origin(m) is Literal for c in get_args(m)], n=1)
    raise ValueError(" or ".join(shown) + (f" (did you mean {near[0]!r}?)" if near else ""))


def _expected(member: Any) -> str:
    if get_origin(member) is Literal:
        return "one of " + ", ".join(map(repr, get_args(member))) if len(get_args(member)) > 1 else repr(get_args(member)[0])
    if get_origin(member) is tuple:
        return f"a list, each {_expected(get_args(member)[0])}"
    return "keys and values" if get_origin(member) in (dict, Mapping) else _NAMES.get(member, str(member))
