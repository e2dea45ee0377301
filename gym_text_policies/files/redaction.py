"""Keys and passwords are kept out of every error and of every file that is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET_NAME = re.compile(r"(^|_)(key|secret|password|authorization|token|credentials?)$", re.IGNORECASE)
"""Names in data whose values are secrets."""
_SECRET_VARIABLE = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTHORIZATION)S?(?![A-Z])(?!.*_(FILE|PATH|DIR)$)|_(PWD|PAT)$"
)
"""Names of environment variables, in capitals, whose values are secrets: such as OPENAI_API_KEY, PGPASSWORD and KEY_2."""
_SHORTEST = 8
"""Least characters of a secret. A shorter value is too likely to occur in a text by chance."""
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*@")
"""User and password before the host of an address, anywhere in a text."""
_HIDDEN = "(not kept)"


def hide_keys(text: str, *in_use: str | None) -> str:
    """Return a text without the values of the environment variables that are named like a secret.

    Args:
        text: Any text. Cut it only afterwards: the rest of a key that was cut is not recognised.
        in_use: More secrets, whatever their variables are called.
    """
    for secret in _secrets(in_use):
        text = text.replace(secret, _HIDDEN)
    return text


def without_keys(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with `hide_keys` applied to all its texts, except its ``key``, which identifies it in a store."""
    text = json.dumps(record, ensure_ascii=False)
    if not any(json.dumps(secret, ensure_ascii=False)[1:-1] in text for secret in _secrets()):
        return record  # as nearly always
    return {name: value if name == "key" else _in_texts(value) for name, value in record.items()}


def without_secrets(data: Any) -> Any:
    """Return plain data without secrets: values named like ``key``, passwords in addresses, keys of environment variables."""
    if isinstance(data, Mapping):
        return {name: _HIDDEN if _SECRET_NAME.search(str(name)) else without_secrets(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(without_secrets(part) for part in data)
    return hide_keys(_PASSWORD.sub("", data)) if isinstance(data, str) else data


def _secrets(more: tuple[str | None, ...] = ()) -> list[str]:
    """Return all secrets, the longest first, as one may begin with another."""
    named = [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name.upper())]
    return sorted({value for value in (*named, *more) if value and len(value) >= _SHORTEST}, key=len, reverse=True)


def _in_texts(data: Any) -> Any:
    if isinstance(data, dict):
        return {hide_keys(str(name)): _in_texts(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_in_texts(part) for part in data]
    return hide_keys(data) if isinstance(data, str) else data
