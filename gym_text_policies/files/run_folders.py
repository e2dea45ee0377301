"""`RunFolder`: a folder that belongs to one configuration, and into which one process writes; and how files are written into it."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies.files.redaction import without_keys
from gym_text_policies.files.safe_files import check_regular, replacing

if sys.platform != "win32":
    import fcntl

_logger = logging.getLogger(__name__)
_CONFIG, _LOCK = "config.json", ".lock"
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag with which `os.open` refuses a link: somebody else's folder may have a link where this process writes."""


class RunFolder:
    """A folder that belongs to one configuration, and into which one process at a time writes.

    ``FOLDER/config.json`` holds the configuration. ``FOLDER/.lock`` is the lock; the operating system releases it when the process
    ends, also if it is killed. A folder with a configuration is locked from the start, any other folder by `lock`. The lock holds
    until `close` or the end of the ``with`` block. If nothing was written into a new folder by then, its configuration is removed:
    so a command that failed at its start can be given again with other settings.

    Args:
        folder: Made if it does not exist.
        config: The settings that all runs into the folder share, as plain JSON. With None no settings are compared.

    Raises:
        UsageError: If the folder belongs to another configuration; the error names the keys that differ.
        StoreError: If another process writes into the folder, or it cannot be written.
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        self.path = Path(folder)
        self._lock: weakref.finalize[Any, Any] | None = None
        self._is_new = False
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if config is not None:
            plain = json.loads(json.dumps(config))
            self.lock()
            with self.freed_by_errors():
                self._claim(without_keys(plain))

    @property
    def is_locked(self) -> bool:
        """Whether this process may write."""
        return self._lock is not None

    def lock(self) -> None:
        """Keep other processes from writing into the folder.

        Raises:
            StoreError: If another process writes into it, or it cannot be written.
        """
        with writing(self.path):
            file = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o666)
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, repair = os.pread(file, 200, 0).decode("utf-8", "replace") or "another process", "Let it end"
            os.close(file)
            if holder == _this_process():
                holder, repair = "a store of this process", "Close it, by its close() or a with block"
            raise StoreError(
                f"{self.path}: expected a folder that no other run writes into; {holder} does. {repair}, or name another folder."
            ) from None
        except OSError as error:  # a file system without locks
            _logger.warning("%s cannot be locked (%s). Let no two runs write into it at the same time.", self.path, error.strerror)
        with suppress(OSError):  # on a full disk the lock holds, but its owner stays unnamed
            os.ftruncate(file, 0)
            os.pwrite(file, _this_process().encode(), 0)
        self._lock = weakref.finalize(self, os.close, file)

    def close(self) -> None:
        """Let other processes write into the folder; remove the configuration of a new folder that is empty."""
        if self._lock is None:
            return
        if self._is_new and {entry.name for entry in self.path.iterdir()} <= {_CONFIG, _LOCK}:
            (self.path / _CONFIG).unlink(missing_ok=True)
        self._lock()
        self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def freed_by_errors(self) -> Iterator[None]:
        """Close the folder if the block raises. A notebook would keep the error, and with it the folder and its lock."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _claim(self, config: dict[str, Any]) -> None:
        """Write the folder's configuration, or compare with it."""
        path = self.path / _CONFIG
        if not path.exists():
            write_atomically(path, json.dumps(config, indent=2, sort_keys=True) + "\n")
            self._is_new = True
            return
        try:
            stored = json.loads(check_regular(path).read_bytes())
            both = {key: (stored.get(key), config[key]) for key in sorted(config) if stored.get(key) != config[key]}
        except (ValueError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}: expected a JSON object ({error}). Restore the file, or name another folder.") from None
        if both:
            shown = "; ".join(f"{key}: stored {before!r}, given {now!r}" for key, (before, now) in both.items())
            raise UsageError(
                f"{self.path}: expected the configuration stored there; these keys differ: {shown}. Name another folder."
            )


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old file or the new one, never a part of it.

    Half of a surrogate pair, which a model or a policy may have said and UTF-8 cannot hold, becomes a question mark.

    Raises:
        StoreError: If the file cannot be written; the old file stays.
    """
    data = text.encode("utf-8", "replace")
    with writing(path), replacing(path) as file:
        file.write(data)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's errors into `StoreError`: what happened, and the repair."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            repair = "What was stored before is whole. Make room, and the same command goes on from there."
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            repair = "A file stands there. Name another folder."
        else:
            repair = "Name a folder that can be written."
        raise StoreError(f"{path}: expected to write there; {error.strerror}. {repair}") from error


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
