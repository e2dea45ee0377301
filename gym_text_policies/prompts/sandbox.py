"""Jinja's immutable sandbox for templates by other people: they read their variables, and change nothing.

Like transformers' sandbox of chat templates, it limits neither loops nor texts: a hostile template can make a process hang, but do
no more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gym_text_policies.files.safe_files import check_regular

_OF_ARRAYS = frozenset(("T", "item", "max", "mean", "min", "ndim", "round", "shape", "size", "sum", "tolist"))
"""What a template may use of NumPy's arrays, whose other methods write files and change numbers."""
ERRORS = (TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a template can raise: it is a program."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox.

    Args:
        folders: Where templates may include others from.
    """

    def __init__(self, *folders: Path) -> None:
        super().__init__(
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            loader=_TemplateFiles(folders),
        )

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
            check_regular(folder / Path(*split_template_path(template)), folder)
        return super().get_source(environment, template)
