"""Jinja's immutable sandbox for templates by other people: they read their variables, and change nothing.

Like transformers' sandbox of chat templates, it does not limit loops: a hostile template can make a process hang, but do no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateRuntimeError
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gym_text.errors import UsageError
from gym_text_policies.files.safe_files import check_regular

_LONGEST = 1_000_000
"""Most characters of a text that a template makes."""
_LARGEST_FILE = 1_000_000
"""Most bytes of a template's file."""
_OF_ARRAYS = frozenset(("T", "item", "max", "mean", "min", "ndim", "round", "shape", "size", "sum", "tolist"))
"""What a template may use of NumPy's arrays, whose other methods write files and change numbers."""
ERRORS = (TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a template can raise: it is a program."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, with a bound on the length of a text.

    Args:
        folders: Where templates may include others from.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        super().__init__(
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            loader=_TemplateFiles(list(folders)),
        )

    def joined(self, parts: Iterable[str]) -> str:
        """Return a rendered text.

        Raises:
            TemplateError, or another of `ERRORS`: If it cannot be rendered, or is too long.
        """
        texts, length = [], 0
        for part in parts:
            length += len(part)
            if length > _LONGEST:
                raise TemplateRuntimeError(f"expected a text of at most {_LONGEST:,} characters; it is longer")
            texts.append(part)
        return "".join(texts)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may use an attribute."""
        if isinstance(obj, np.ndarray | np.generic) and attr not in _OF_ARRAYS:
            return False
        return super().is_safe_attribute(obj, attr, value)


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
