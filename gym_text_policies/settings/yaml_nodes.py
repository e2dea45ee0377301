"""YAML files as nodes that know their line, so that an error can say in which line a mistake is.

YAML is loaded safely. Only true and false are booleans, as in YAML 1.2; off and no are words. A mapping has each key once; a key
that ``<<`` merges may be replaced. A list stands for several configurations, one for each entry. A list within a list is a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gym_text.errors import UsageError, import_extra
from gym_text_policies.files.safe_files import check_characters

MOST_CONFIGURATIONS = 1000
"""More configurations than this are taken for a mistake."""
_MOST_VALUES = 100_000
"""Most values in a file, aliases expanded: a few lines of nested aliases could fill the memory."""
_PLAIN = {
    "scalar": (":str", ":int", ":float", ":bool", ":null", ":merge", ":value"),
    "sequence": (":seq",),
    "mapping": (":map",),
}
"""Endings of the YAML tags that a value may have."""


@dataclass(frozen=True)
class Node:
    """A value and the line it stands on."""

    value: Any
    """A scalar, a dict of nodes by name, or a list of nodes."""
    location: str = ""
    """File and line, the beginning of an error message; empty for a value that is in no file."""

    def plain(self) -> Any:
        """Return the value without locations."""
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
    """Parse a YAML text. Errors name `source` as its origin.

    Raises:
        UsageError: If it is no YAML, or names a key twice.
        MissingDependencyError: If PyYAML is not installed.
    """
    yaml = import_extra("yaml", "bench")
    try:
        loader = _loader(yaml, source)(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return Node(None, f"{source}, line 1: ")
            return _from_yaml(loader, root, source)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{source}, line {line}: expected YAML; {error.problem or error.context}.") from error
    except UsageError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, ArithmeticError) as error:
        # PyYAML's own code raises the last three on `!!int ''`, `!!bool x` and the like
        raise UsageError(f"{source}: expected YAML; {' '.join(str(error).split())}.") from error


def at(path: Sequence[str], value: Node) -> Node:
    """Return nested nodes in which a path of keys leads to a value."""
    for name in reversed(path):
        value = Node({name: value})
    return value


def changed(node: Node, change: Node, depth: int) -> Node:
    """Return a node in which the values of `change`, each under a path of `depth` keys, replace those of `node`."""
    if not depth:
        return change
    parts = dict(node.value) if isinstance(node.value, dict) else {}
    for name, part in change.value.items():
        parts[name] = changed(parts.get(name, Node(None)), part, depth - 1)
    return Node(parts, node.location)


def from_plain(value: Any) -> Node:
    """Return a plain value as nodes; their location is empty."""
    if isinstance(value, Mapping):
        return Node({str(key): from_plain(part) for key, part in value.items()})
    return Node([from_plain(part) for part in value]) if isinstance(value, (list, tuple)) else Node(value)


def variants(node: Node) -> list[tuple[Node, dict[str, Any]]]:
    """Return the configurations that a node stands for, each with the list entries that were chosen, by their paths.

    >>> [chosen for _, chosen in variants(from_plain({"a": {"b": [1, 2]}, "c": 3}))]
    [{'a.b': 1}, {'a.b': 2}]

    Raises:
        UsageError: If a list is empty, or there are more than 1000 configurations.
    """
    configurations = list(itertools.islice(_variants(node, ""), MOST_CONFIGURATIONS + 1))
    if len(configurations) > MOST_CONFIGURATIONS:
        raise UsageError(f"{node.location}expected lists that make {MOST_CONFIGURATIONS} configurations at most; there are more.")
    return configurations


def _loader(yaml: Any, source: str) -> Any:
    """Return a safe loader that reads off, on, yes, no and dates as words, limits the values, and takes each key once."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # the base comes from an optional package
        made = 0
        flat: ClassVar[set[int]] = set()

        def count(self, values: int) -> None:
            self.made += values
            if self.made > _MOST_VALUES:
                raise ValueError(f"at most {_MOST_VALUES} values, aliases written out; there are more")

        def flatten_mapping(self, node: Any) -> None:
            if id(node) not in self.flat:  # a second check would mistake keys merged by << for repeated ones
                self.flat.add(id(node))
                _check_keys(self, node, source)
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


def _check_keys(loader: Any, node: Any, source: str) -> None:
    """Raise `UsageError` if a mapping has a key twice, or a key that is no scalar."""
    keys = set()
    for key_node, _ in node.value:
        if key_node.tag.endswith((":merge", ":value")):  # << and = are no keys of the mapping itself
            continue
        location = f"{source}, line {key_node.start_mark.line + 1}: "
        if key_node.id != "scalar":
            raise UsageError(f"{location}expected a word as key; got a {key_node.id}.")
        key = str(loader.construct_object(key_node, deep=True))
        if key in keys:
            raise UsageError(f"{location}expected each key once; {key!r} comes twice.")
        keys.add(key)


def _from_yaml(loader: Any, node: Any, path: str) -> Node:
    loader.count(1)
    location = f"{path}, line {node.start_mark.line + 1}: "
    if not node.tag.endswith(_PLAIN[node.id]):
        raise UsageError(f"{location}expected YAML without types of its own; got {node.tag!r}.")
    if node.id == "sequence":
        return Node([_from_yaml(loader, part, path) for part in node.value], location)
    if node.id == "scalar":
        value = loader.construct_object(node)
        check_characters(location.removesuffix(": "), value)
        return Node(value, location)
    loader.flatten_mapping(node)
    parts: dict[str, Node] = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        check_characters(location.removesuffix(": "), key)
        part = _from_yaml(loader, value_node, path)
        parts[key] = Node(part.value, f"{path}, line {key_node.start_mark.line + 1}: ")
    return Node(parts, location)


def _variants(node: Node, path: str) -> Iterator[tuple[Node, dict[str, Any]]]:
    if isinstance(node.value, list):
        if not node.value:
            raise UsageError(f"{node.location}{path}: expected a list with at least one entry; it is empty.")
        for number, entry in enumerate(node.value):
            if isinstance(entry.value, list):
                yield entry, {path: entry.plain()}
            else:
                for configuration, chosen in _variants(entry, path):
                    yield configuration, {path: number if isinstance(entry.value, dict) else entry.value, **chosen}
    elif isinstance(node.value, dict):
        names = list(node.value)
        parts = [list(_variants(node.value[name], f"{path}.{name}" if path else name)) for name in names]
        for combination in itertools.product(*parts):
            values = {name: part for name, (part, _) in zip(names, combination, strict=True)}
            yield Node(values, node.location), {key: value for _, chosen in combination for key, value in chosen.items()}
    else:
        yield node, {}
