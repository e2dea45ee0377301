"""What may be a key is kept out of all that is written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_SECRET_NAME = re.compile(r"(^|_)(key|secret|password|authorization|token|credentials?)$", re.IGNORECASE)
_HIDDEN = "(not kept)"


def without_secrets(data: Any) -> Any:
    """Return plain data without what may be a key: values of such names, passwords in addresses, and the environment's own keys."""
    if isinstance(data, Mapping):
        return {name: _HIDDEN if _SECRET_NAME.search(str(name)) else without_secrets(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(without_secrets(part) for part in data)
    if not isinstance(data, str):
        return data
    if "@" in data and "://" in data:
        parts = urlsplit(data)
        data = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            data = data.replace(value, _HIDDEN)
    return data
