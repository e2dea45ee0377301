"""`file_digest`: by what a file or a folder is told from others, which is its content."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gym_text.errors import UsageError
from gym_text_policies.user_cache import recall, remember

_logger = logging.getLogger(__name__)
_SETTLED = 2.0
"""Seconds after its last change from which a file's digest is kept: clocks of file systems do not tell two quick changes apart."""
_LARGE = 2_000_000_000
"""Bytes of a file from which it is said that hashing takes a while."""


def file_digest(path: str | Path) -> str:
    """Return a digest of a file's content: the first 16 hexadecimal digits of its SHA-256.

    A file's name, place and times do not count. Each file is read once: its digest is kept in the user's cache folder, and found
    there while path, inode, size and the times of change are the same.

    Args:
        path: A file; or a folder, whose files count with their content and their names in it, hidden ones left out.

    Raises:
        UsageError: If there is no such file, or it cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        return _digest(path)
    names = {str(one.relative_to(path).as_posix()): one for one in path.rglob("*") if one.is_file()}
    return digest_of({name: one for name, one in names.items() if not any(part.startswith(".") for part in name.split("/"))})


def digest_of(files: Mapping[str, Path]) -> str:
    """Return one digest of several files, each by its name and its content.

    Raises:
        UsageError: If one cannot be read.
    """
    lines = "".join(f"{name} {_digest(files[name])}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _digest(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: expected a regular file; it is none.")
    try:
        facts = _facts(path)
        known = recall("digests", facts)
        if isinstance(known, str) and len(known) == 16:
            return known
        if path.stat().st_size > _LARGE:
            _logger.info("%s: its content is hashed, which takes a while; once, as long as it does not change.", path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        if facts == _facts(path) and time.time() - max(path.stat().st_mtime, path.stat().st_ctime) > _SETTLED:
            remember("digests", facts, digest)
    except OSError as error:
        raise UsageError(f"{path}: expected a file that can be read; {error.strerror or error}.") from error
    return digest


def _facts(path: Path) -> dict[str, str | int]:
    """Return what changes where a file's content does. The time of its last change of state cannot be set back."""
    entry = os.stat(path)
    return {
        "path": os.fsdecode(path.resolve()),
        "device": entry.st_dev,
        "inode": entry.st_ino,
        "size": entry.st_size,
        "modified": entry.st_mtime_ns,
        "changed": entry.st_ctime_ns,
    }
