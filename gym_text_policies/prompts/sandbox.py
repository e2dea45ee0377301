"""A sandbox for templates by other people: they read their variables, change nothing, and come to an end.

Jinja's immutable sandbox refuses code that changes lists and dictionaries, or that reaches beyond a template's variables. It bounds
neither how long a template runs nor how much text it makes. Here each turn of a loop, each call and each filter is counted as work.
If the size of the work follows from its arguments, it is counted before it is done.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateRuntimeError, nodes
from jinja2.loaders import split_template_path
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gym_text.errors import UsageError
from gym_text_policies.files.safe_files import check_regular

_MOST_WORK = 200_000
"""Most turns of loops, calls and filters of one text."""
_LONGEST = 1_000_000
"""Most characters of a text that a template makes, and most characters and items of a list, those of inner lists included."""
_MOST_AT_ONCE = 100_000_000
"""Most characters that one call could make, by the sizes of its two largest arguments."""
_UNIT = 10_000
"""Characters that count as much as a turn of a loop."""
_COUNTED = 200
"""Items and characters of a list whose counting is as much as a turn of a loop."""
_LARGEST_FILE = 1_000_000
"""Most bytes of a template's file."""
_MOST_BITS = 10_000
"""Most binary digits of a whole number."""
_OF_ARRAYS = frozenset(("T", "item", "max", "mean", "min", "ndim", "round", "shape", "size", "sum", "tolist"))
"""What a template may use of NumPy's arrays, whose other methods write files and change numbers."""
ERRORS = (TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a template can raise: it is a program."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox with bounds on work and size.

    Args:
        folders: Where templates may include others from.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, folders: Iterable[Path]) -> None:
        super().__init__(
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # no expression is computed before the template is rendered
            loader=_TemplateFiles(list(folders)),
        )
        self._done = threading.local()
        self.globals.pop("lipsum")
        for name, function in self.filters.items():
            self.filters[name] = self._bounded(name, function)
        self.filters |= {"_turns": self._turns, "_sized": self._sized, "_read": self._read}

    def joined(self, parts: Iterable[str]) -> str:
        """Return a rendered text.

        Raises:
            TemplateError, or another of `ERRORS`: If it cannot be rendered, or is too long or too much work.
        """
        self._done.work = 0
        made, length = [], 0
        for part in parts:
            length += len(part)
            if length > _LONGEST:
                raise TemplateRuntimeError(f"expected a text of at most {_LONGEST:,} characters; it is longer")
            made.append(part)
        return "".join(made)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or a method that a template calls."""
        name = getattr(obj, "__name__", "")
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)  # Jinja wraps the method format
        self._check(name, (owner, *args, *kwargs.values()))
        return self._sized(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right``."""
        if operator == "%" and isinstance(left, str):
            self._check("format", (left, *(right if isinstance(right, tuple) else (right,))))
        whole = [abs(value) for value in (left, right) if isinstance(value, int)]
        if operator == "*" and len(whole) == 1:
            self._check("*", (left, right))
        if len(whole) == 2 and whole[0].bit_length() * (whole[1] if operator == "**" else 1) + whole[1].bit_length() > _MOST_BITS:
            raise TemplateRuntimeError(f"expected whole numbers of at most {_MOST_BITS:,} binary digits; got larger ones")
        return self._sized(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may use an attribute."""
        if isinstance(obj, np.ndarray | np.generic) and attr not in _OF_ARRAYS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and add filters that count its loops, its assignments, and what it compares and slices."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, "_turns")
        for block in tree.find_all(nodes.AssignBlock):
            block.filter = _filtered(block.filter, "_sized")
        for output in tree.find_all(nodes.Assign):
            output.node = _filtered(output.node, "_sized")
        for left in tree.find_all(nodes.Compare):
            left.expr = _filtered(left.expr, "_read")
        for right in tree.find_all(nodes.Operand):
            right.expr = _filtered(right.expr, "_read")
        for item in tree.find_all(nodes.Getitem):
            if isinstance(item.arg, nodes.Slice):
                item.node = _filtered(item.node, "_read")
        tree.set_environment(self)
        return tree

    def _spend(self, work: int) -> None:
        self._done.work = getattr(self._done, "work", 0) + work
        if self._done.work > _MOST_WORK:
            raise TemplateRuntimeError(f"expected at most {_MOST_WORK:,} turns of loops and calls; it is more work")

    def _check(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Count a call, and refuse one that could make too much."""
        sizes = sorted(map(_size, arguments))[-2:]
        most = functools.reduce(lambda product, size: product * max(1, size), sizes, 1)
        widths = "".join(value for value in arguments if isinstance(value, str)) if name in ("format", "format_map") else ""
        if most > _MOST_AT_ONCE or re.search(r"\d{5}", widths):
            raise TemplateRuntimeError(f"expected smaller texts and numbers; got {name or 'a call'} of too large ones")
        self._spend(1 + most // _UNIT)

    def _sized(self, value: Any) -> Any:
        """Return a value if it is not too large."""
        size = _held(value, {})
        if size > _LONGEST:
            raise TemplateRuntimeError(f"expected at most {_LONGEST:,} characters or items; got {size:,}")
        if not isinstance(value, str):
            self._spend(size // _COUNTED)
        return value

    def _read(self, value: Any) -> Any:
        """Count what a comparison or a slice reads."""
        self._spend(_held(value, {}) // _COUNTED)
        return value

    def _turns(self, items: Any) -> Any:
        """Count the turns of a loop."""
        if hasattr(items, "__len__"):
            self._spend(len(items))
            return items
        return self._counted(iter(items))

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self._spend(1)
            yield item

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter whose work is counted."""

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            arguments = (*(arg for arg in args if not isinstance(arg, Environment | Context)), *kwargs.values())
            self._check(name, arguments)
            if name == "sum" and any(isinstance(value, list | tuple) for value in arguments[1:]):
                raise TemplateRuntimeError("expected a number as the start of sum; got a list, which sum would copy for each item")
            return self._sized(function(*args, **kwargs))

        return counted


class _TemplateFiles(FileSystemLoader):
    """Templates in files, which are regular files of the folders themselves."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Return the source of a template that another one includes."""
        if not template.endswith(".jinja"):
            raise TemplateError(f"expected to include .jinja files; got {template!r}")
        for folder in map(Path, self.searchpath):
            check_file(folder / Path(*split_template_path(template)), folder)
        return super().get_source(environment, template)


def check_file(path: Path, folder: Path) -> None:
    """Raise `UsageError` if a template's file is no regular file in a folder, or too large. One that does not exist passes."""
    if check_regular(path, folder).exists() and path.stat().st_size > _LARGEST_FILE:
        raise UsageError(f"{path}: expected a template of at most {_LARGEST_FILE:,} bytes; it has {path.stat().st_size:,}.")


def _filtered(value: Any, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None)


def _held(value: Any, held: dict[int, int]) -> int:
    """Return the number of characters and items that a value holds. A list that it holds twice counts twice.

    Args:
        value: A text, a list, a tuple or a dictionary; anything else holds nothing.
        held: Identity of a list, tuple or dictionary -> its size. Sizes that are computed here are added.
    """
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list | tuple | dict):
        return 0
    if id(value) not in held:
        parts = value.values() if isinstance(value, dict) else value
        held[id(value)] = len(value) + sum(_held(part, held) for part in parts)
    return held[id(value)]


def _size(value: Any) -> int:
    """Return the size of an argument: its length, or the number itself."""
    if isinstance(value, bool | float) or value is None:
        return 0
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, str | bytes | list | tuple | dict) else 0
