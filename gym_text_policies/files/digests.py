"""`file_digest`: identify a file or a folder by its content."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from gym_text.errors import UsageError
from gym_text.user_folder import cache_folder
from gym_text_policies.files.safe_files import check_regular, replacing

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
        state = _state(check_regular(path))
        if (known := _kept(state)) is not None:
            return known
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        entry = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: expected a file that can be read; {error.strerror or error}.") from error
    if state == _state(path) and time.time_ns() - max(entry.st_mtime_ns, entry.st_ctime_ns) > _SETTLED:
        with contextlib.suppress(OSError, ValueError, ImportError):  # a full disk, no home, no platformdirs
            folder = cache_folder("digests", "local")
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / state) as record:
                record.write(digest.encode())
    return digest


def _kept(state: str) -> str | None:
    """Return the digest of a file in a state, if it is kept."""
    try:
        digest = (cache_folder("digests", "local") / state).read_text("utf-8")
    except (OSError, ValueError, ImportError):
        return None
    return digest if re.fullmatch("[0-9a-f]{16}", digest) else None


def _state(path: Path) -> str:
    """Return a text that changes when the file's content changes: no program can set back ``st_ctime``."""
    entry = path.stat()
    facts = (os.fsdecode(path.resolve()), entry.st_dev, entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns)
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
