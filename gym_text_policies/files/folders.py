"""Replace a folder as a whole.

If the process is killed, the old folder or the new folder exists, or the old folder has another name. `restore_folders` gives the
old folder its name back.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gym_text_policies.files.run_folders import writing

_NEW, _OLD = ".partial", ".replaced"
"""Endings of the name of a folder that is being written, and of a folder that is being replaced."""


def replace_folder(folder: Path, save: Callable[[Path], None]) -> None:
    """Replace a folder by one that `save` fills.

    A folder that is not empty cannot be replaced in one step. So the old folder is renamed first. If the process is killed then,
    `restore_folders` gives the old folder its name back. If `save` fails, the old folder stays.

    Args:
        folder: The folder; it need not exist.
        save: Writes the files into the folder that it is given.

    Raises:
        StoreError: If the folder cannot be made or replaced.
    """
    new, old = (folder.with_name(folder.name + ending) for ending in (_NEW, _OLD))
    with writing(folder):
        _restore(old)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
    try:
        save(new)
    except Exception:
        shutil.rmtree(new, ignore_errors=True)  # frees room on a full disk
        raise
    with writing(folder):
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def restore_folders(parent: Path) -> None:
    """Give the old folders in `parent` their names back if a killed process left no new folder in their place."""
    for old in sorted(parent.glob(f"*{_OLD}")):
        _restore(old)


def whole_folders(parent: Path, pattern: str) -> list[Path]:
    """Return the folders within another whose names match a pattern, without those that are being written or replaced."""
    return [path for path in parent.glob(pattern) if path.suffix not in (_NEW, _OLD)]


@contextlib.contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Turn the errors of the system and of safetensors into `StoreError` while tensors are written."""
    from safetensors import SafetensorError

    with writing(path):
        try:
            yield
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _restore(old: Path) -> None:
    folder = old.with_name(old.name.removesuffix(_OLD))
    if old.exists() and not folder.exists():
        os.replace(old, folder)
    shutil.rmtree(old, ignore_errors=True)
