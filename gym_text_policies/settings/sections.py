"""Config dataclasses within config dataclasses: settings whose names have dots, such as ``sft.epochs``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gym_text.errors import UsageError


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default value of a field of a dataclass, or `dataclasses.MISSING`."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def with_sections(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords for a config dataclass from settings whose names may have dots.

    A field that is itself a dataclass is a section. Its value is its default, changed by the settings whose names begin with its
    name:
    ``{"sft.epochs": 2}`` gives ``{"sft": SFTConfig(epochs=2)}``.

    Raises:
        UsageError: If a section refuses a value.
    """
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        section, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(section, {})[rest] = value
        else:
            values[name] = value
    fields = {field.name: field for field in dataclasses.fields(kind)} if inner else {}
    for section, settings in inner.items():
        default = default_of(fields[section])
        try:
            values[section] = dataclasses.replace(default, **with_sections(type(default), settings))
        except UsageError as error:
            raise UsageError(f"{section}.{error}") from error
    return values
