"""Files in a folder that somebody else may have made: only its regular files are read, and nothing is written through a link."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gym_text.errors import UsageError


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
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return path
    if kind != stat.S_IFREG:
        names = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise UsageError(f"{path}: expected a regular file; it is a {names.get(kind, 'device')}.")
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

    Until then the new file lies beside the old one, under a name of its own that ends in ``.partial``: of two writers the one who
    ends last counts. No link is followed.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else the name may reach the disk before the content does
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
