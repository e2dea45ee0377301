"""Files in a folder that somebody else may have made: only its regular files are read, and nothing is written through a link."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from gym_text.errors import UsageError

_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL, and surrogates, into which Python decodes a word that is no UTF-8."""
_ABANDONED = 3600.0
"""Seconds without a write after which a partial file is taken for one that a killed process has left."""


def check_characters(what: str, value: Any) -> None:
    """Raise `UsageError` if a text, alone or within plain data, has characters that a file or its name cannot have.

    Args:
        what: Name of the data, for the error.
        value: Plain data.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            check_characters(what, [str(key), part])
    elif isinstance(value, list | tuple):
        for part in value:
            check_characters(what, part)
    elif isinstance(value, str) and _UNUSABLE.search(value):
        raise UsageError(f"{what}: expected a text in Unicode, without the character NUL; got {value[:100]!a}.")


def check_regular(path: Path, root: Path | None = None) -> Path:
    """Return a path that can be opened without harm.

    A pipe or a device would be read for ever, and a link can lead to any file of the reader.

    Args:
        path: The file. A file that does not exist passes; opening it will raise the error.
        root: The folder in which it has to lie, all links followed. None: anywhere.

    Raises:
        UsageError: If it is no regular file, or lies outside `root`.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: expected a regular file; it is a {_kind(mode)}.")
    if root is not None and not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{path}: expected a file in {root}; it is a link out of it.")
    return path


def is_regular(path: Path, root: Path | None = None) -> bool:
    """Return whether a file is there, and passes `check_regular`."""
    try:
        return path.is_file() and check_regular(path, root) == path
    except (OSError, UsageError):  # links that lead to one another, or a folder that cannot be searched
        return False


def check_folder(folder: Path) -> None:
    """Raise `UsageError` if a folder contains anything but regular files and folders, before another library reads it.

    Hidden files and folders are not checked.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (name for name in names if not name.startswith(".")):
            check_regular(Path(parent) / name)


def subfolder(folder: Path, name: str) -> Path:
    """Return a subfolder to write into. It is made if it does not exist.

    Raises:
        UsageError: If it is a link out of the folder.
    """
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{path}: expected a folder in {folder}; it is a link out of it. Remove the link.")
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends; if it fails, the old one stays.

    Until then the new file lies beside the old one, as ``NAME.partial``, or under a name of its own if another writer has that one:
    of two writers the one who ends last counts. No link is followed.
    """
    file = _partial(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else the name may reach the disk before the content does
        os.replace(file.name, path)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


def _partial(path: Path) -> BinaryIO:
    """Create the file that will take the place of `path`, after the one that a killed process has left was removed."""
    partial = path.with_name(path.name + ".partial")
    with contextlib.suppress(FileNotFoundError):
        if time.time() - partial.lstat().st_mtime > _ABANDONED:
            partial.unlink()
    try:
        return partial.open("xb")
    except FileExistsError:
        return path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial").open("xb")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "device")
