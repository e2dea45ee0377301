"""Keys and passwords are kept out of every file that is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET_NAME = re.compile(r"(^|_)(key|secret|password|authorization|token|credentials?)$", re.IGNORECASE)
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*@")
"""User and password before the host of an address, anywhere in a text."""
_HIDDEN = "(not kept)"


def without_secrets(data: Any) -> Any:
    """Return plain data without secrets: values named like ``key``, passwords in addresses, keys of environment variables."""
    if isinstance(data, Mapping):
        return {name: _HIDDEN if _SECRET_NAME.search(str(name)) else without_secrets(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(without_secrets(part) for part in data)
    if not isinstance(data, str):
        return data
    data = _PASSWORD.sub("", data)
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            data = data.replace(value, _HIDDEN)
    return data
