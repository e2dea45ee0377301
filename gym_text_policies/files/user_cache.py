"""Results that are computed once for each user, as small JSON records in the user's cache folder, and in this process.

A record is ignored if it is damaged or has other facts. If the folder is missing or cannot be written,
results are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gym_text.user_folder import cache_folder
from gym_text_policies.files.safe_files import replacing

_recalled: dict[tuple[str, str], Any] = {}
"""(kind, facts) -> value, in this process."""


def recall(kind: str, facts: Mapping[str, Any]) -> Any:
    """Return the value that `remember` stored under the same facts, or None."""
    text = json.dumps(facts, sort_keys=True)
    if (kind, text) not in _recalled:
        try:
            record = json.loads(_path(kind, text).read_text("utf-8"))
            if record["facts"] != json.loads(text):
                return None
            _recalled[kind, text] = record["value"]
        except (OSError, ImportError, ValueError, KeyError, TypeError, RecursionError):
            return None
    return _recalled[kind, text]


def remember(kind: str, facts: Mapping[str, Any], value: Any) -> None:
    """Store a value under the facts from which it was computed. The record is written whole, or not at all.

    Args:
        kind: Name of the subfolder.
        facts: All that the value depends on, as plain JSON.
        value: Plain JSON, not None.
    """
    text = json.dumps(facts, sort_keys=True)
    _recalled[kind, text] = value
    with contextlib.suppress(OSError, ValueError, ImportError):  # no home, a full disk, no platformdirs
        path = _path(kind, text)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps({"facts": facts, "value": value}).encode())


def _path(kind: str, text: str) -> Path:
    return cache_folder(kind, "local") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
