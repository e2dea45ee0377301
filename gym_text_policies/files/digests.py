"""`file_digest`: identify a file or a folder by its content."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.files.user_cache import recall, remember

_SETTLED = 2e9
"""Least age in nanoseconds of a file's last change for its digest to be kept: two quick changes may have the same time stamp."""


def file_digest(path: str | Path) -> str:
    """Return a digest of a file's content: the first 16 hexadecimal digits of its SHA-256.

    The digest does not depend on a file's name, folder and times. It is kept in the user's cache folder, and the file is read again
    only if its path, device, inode, size or times of change differ.

    Args:
        path: A file, or a folder. The digest of a folder depends on the names and contents of its files, hidden files left out.

    Raises:
        UsageError: If there is no such file, or it cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        return _digest(path)
    files = {str(file.relative_to(path).as_posix()): file for file in path.rglob("*") if file.is_file()}
    return digest_of({name: file for name, file in files.items() if not any(part.startswith(".") for part in name.split("/"))})


def digest_of(files: Mapping[str, Path]) -> str:
    """Return one digest of several files, each by its name and its content.

    Raises:
        UsageError: If one cannot be read.
    """
    lines = "".join(f"{name} {_digest(files[name])}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        facts = _facts(check_regular(path))
        cached = recall("digests", facts)
        if isinstance(cached, str):
            return cached
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        if facts == _facts(path) and time.time_ns() - max(facts["modified"], facts["changed"]) > _SETTLED:
            remember("digests", facts, digest)
    except OSError as error:
        raise UsageError(f"{path}: expected a file that can be read; {error.strerror or error}.") from error
    return digest


def _facts(path: Path) -> dict[str, Any]:
    """Return facts of which one changes when the file's content changes: no program can set back ``st_ctime``."""
    entry = os.stat(path)
    return {
        "path": os.fsdecode(path.resolve()),
        "device": entry.st_dev,
        "inode": entry.st_ino,
        "size": entry.st_size,
        "modified": entry.st_mtime_ns,
        "changed": entry.st_ctime_ns,
    }
