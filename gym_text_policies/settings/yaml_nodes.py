"""YAML files as nodes that know their line, so that an error can say in which line a mistake is.

YAML is loaded safely. Only true and false are booleans, as in YAML 1.2; off and no are words. A mapping has each key once; a key
that ``<<`` merges may be replaced. A list stands for several configurations, one for each entry. A list within a list is a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra


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
    """Parse a YAML text; errors name `source` as its origin, and are those of `read_yaml`."""
    yaml = import_extra("yaml", "bench")
    try:
        loader = _loader(yaml)(text)
        root = loader.get_single_node()
        return Node(None, f"{source}, line 1: ") if root is None else _from_yaml(loader, root, source, set())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{source}, line {line}: expected YAML; {error.problem or error.context}.") from error
    except UsageError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, ArithmeticError) as error:
        # PyYAML's own code raises the last three on `!!int ''`, `!!bool x` and the like
        raise UsageError(f"{source}: expected YAML; {' '.join(str(error).split())}.") from error


def changed(node: Node, path: Sequence[str], value: Node) -> Node:
    """Return a node in which a value stands at a path of keys."""
    if not path:
        return value
    parts = dict(node.value) if isinstance(node.value, dict) else {}
    parts[path[0]] = changed(parts.get(path[0], Node(None)), path[1:], value)
    return Node(parts, node.location)


def from_plain(value: Any) -> Node:
    """Return a plain value as nodes; their location is empty."""
    if isinstance(value, Mapping):
        return Node({str(key): from_plain(part) for key, part in value.items()})
    return Node([from_plain(part) for part in value]) if isinstance(value, (list, tuple)) else Node(value)


def variants(node: Node, path: str = "") -> Iterator[tuple[Node, dict[str, Any]]]:
    """Yield the configurations that a node stands for, each with the list entries that were chosen, by their paths.

    >>> [chosen for _, chosen in variants(from_plain({"a": {"b": [1, 2]}, "c": 3}))]
    [{'a.b': 1}, {'a.b': 2}]

    Raises:
        UsageError: If a list is empty.
    """
    if isinstance(node.value, list):
        if not node.value:
            raise UsageError(f"{node.location}{path}: expected a list with at least one entry; it is empty.")
        for number, entry in enumerate(node.value):
            if isinstance(entry.value, list):
                yield entry, {path: entry.plain()}
            else:
                for configuration, chosen in variants(entry, path):
                    yield configuration, {path: number if isinstance(entry.value, dict) else entry.value, **chosen}
    elif isinstance(node.value, dict):
        names = list(node.value)
        parts = [list(variants(node.value[name], f"{path}.{name}" if path else name)) for name in names]
        for combination in itertools.product(*parts):
            values = {name: part for name, (part, _) in zip(names, combination, strict=True)}
            yield Node(values, node.location), {key: value for _, chosen in combination for key, value in chosen.items()}
    else:
        yield node, {}


def _loader(yaml: Any) -> Any:
    """Return a safe loader that reads off, on, yes, no and dates as words."""
    kept = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if not tag.endswith(":timestamp") and (first in "tTfF" or not tag.endswith(":bool"))
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": kept})


def _from_yaml(loader: Any, node: Any, source: str, merged: set[int]) -> Node:
    """Return PyYAML's node as one of ours; `merged` has the mappings whose ``<<`` is merged already."""
    location = f"{source}, line {node.start_mark.line + 1}: "
    if node.id != "scalar" and not node.tag.endswith((":seq", ":map")):
        raise UsageError(f"{location}expected YAML without types of its own; got {node.tag!r}.")
    if node.id == "sequence":
        return Node([_from_yaml(loader, part, source, merged) for part in node.value], location)
    if node.id == "scalar":
        return Node(loader.construct_object(node), location)
    if id(node) not in merged:
        merged.add(id(node))
        _check_keys(node, source)
        loader.flatten_mapping(node)
    parts: dict[str, Node] = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        part = _from_yaml(loader, value_node, source, merged)
        parts[key] = Node(part.value, f"{source}, line {key_node.start_mark.line + 1}: ")
    return Node(parts, location)


def _check_keys(node: Any, source: str) -> None:
    """Raise `UsageError` if a mapping has a key twice."""
    keys = [key for key, _ in node.value if not key.tag.endswith(":merge")]
    for number, key in enumerate(keys):
        if key.value in [other.value for other in keys[:number]]:
            raise UsageError(f"{source}, line {key.start_mark.line + 1}: expected each key once; {key.value!r} comes twice.")
