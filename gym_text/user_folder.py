"""The user's cache folder, for files that take long to make; a temporary folder for a user without a home."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
from pathlib import Path

from gym_text.errors import import_extra

_logger = logging.getLogger(__name__)


def user_folder(extra: str) -> Path | None:
    """Return ``gym-text`` in the user's cache folder, which may not exist yet; None if the user has no home.

    Args:
        extra: The extra that the error names if platformdirs is not installed.
    """
    import_extra("platformdirs", extra)
    from platformdirs import user_cache_path

    try:
        folder: Path = user_cache_path("gym-text")
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # older versions of platformdirs return "~/.cache" if they cannot expand ~


def cache_folder(name: str, extra: str) -> Path:
    """Return the path of a folder in the user's cache folder.

    If that folder does not exist and cannot be made, the path is in a temporary folder, which is deleted when the process ends.

    Args:
        name: The folder's name.
        extra: The extra that the error names if platformdirs is not installed.
    """
    user = user_folder(extra)
    if user is not None and ((user / name).is_dir() or _can_be_written(user)):
        return user / name
    return _temporary(str(user or "the user's cache folder")) / name


def _can_be_written(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@functools.cache
def _temporary(wanted: str) -> Path:
    folder = tempfile.mkdtemp(prefix="gym-text-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _logger.warning(
        "%s cannot be written, so files are kept in %s until the process ends. XDG_CACHE_HOME can name another folder.",
        *(wanted, folder),
    )
    return Path(folder)
