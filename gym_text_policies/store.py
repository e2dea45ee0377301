"""`EpisodeStore`: a folder of episodes that survives crashes and is found again."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies.records import Episode

if sys.platform != "win32":
    import fcntl

_logger = logging.getLogger(__name__)
_PLAIN_BEGIN = re.compile(rb'\{"key": "([0-9a-f]{32})", ')
_PLAIN_END = b', "error": null}\n'
"""How a record of an episode without error begins and ends; within a text of JSON the quotes would be escaped."""


class EpisodeStore:
    """Episodes as JSON lines in ``FOLDER/episodes.jsonl``; the configuration they belong to in ``FOLDER/config.json``.

    A record is whole or absent: each is written by one call and synced to disk, and a last line that a crash tore is cut off
    before the next is written. Where a key was written twice the last record counts.

    One process at a time writes: a store with a configuration from when it is made, any other from its first `append`, until
    `close`, the end of its ``with`` block, or the end of the process, however it ends. Reading is free, while another writes, too.

    Args:
        folder: Made if it does not exist.
        config: What all episodes of the folder share; plain JSON.

    Raises:
        UsageError: If the folder belongs to another configuration (the keys that differ are named), or a line within the
            file is no record.
        StoreError: If another process writes into the folder, or it cannot be written.
    """

    file_name: ClassVar[str] = "episodes.jsonl"
    record: ClassVar[type[Any]] = Episode
    """What a line holds: anything with ``key``, ``error``, ``to_json`` and ``from_json``."""

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / self.file_name
        self._lock: weakref.finalize[Any, Any] | None = None
        self._places: dict[str, tuple[int, bool]] = {}  # key -> (offset of its line, whether it ended in error)
        self._lines = 0
        self._end = 0  # bytes of the whole records that have been read or written
        with _writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            self._lock_folder()
            self._claim(json.loads(json.dumps(config)))
        self._read_places()

    def append(self, episode: Episode) -> None:
        """Write an episode to disk.

        Raises:
            StoreError: If another process writes into the folder, or the disk is full; what was stored before stays whole.
        """
        line = json.dumps(episode.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", errors="backslashreplace")
        if self._lock is None:
            self._lock_folder()
            self._read_places()
        with _writing(self.path):
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                _write(file, data, self._end)
            finally:
                os.close(file)
        self._places[episode.key] = (self._end, episode.error is not None)
        self._end += len(data)
        self._lines += 1

    def has(self, key: str, *, retry_errors: bool = False) -> bool:
        """Return whether the episode of `key` is stored; with `retry_errors`, one that ended in error does not count."""
        place = self._places.get(key)
        return place is not None and not (retry_errors and place[1])

    def episodes(self, keys: Iterable[str] | None = None) -> Iterator[Episode]:
        """Yield the stored episodes of `keys` (those not stored are passed over), or all, one at a time.

        Raises:
            UsageError: If a record is damaged.
        """
        wanted = list(self._places) if keys is None else [key for key in keys if key in self._places]
        if not wanted:
            return
        with self.path.open("rb") as file:
            for key in wanted:
                offset = self._places[key][0]
                file.seek(offset)
                line = file.readline()
                try:
                    episode = self.record.from_json(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    raise _damaged(f"{self.path}, at byte {offset}", line, error) from None
                yield episode

    def __len__(self) -> int:
        return len(self._places)

    def __bool__(self) -> bool:
        return True  # an empty store is a store, as in `if store`

    def close(self) -> None:
        """Let others write into the folder. What is stored can still be read."""
        if self._lock is not None:
            self._lock()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _lock_folder(self) -> None:
        """Take the lock of the folder, which the system gives back when this process ends, however it ends."""
        path = self.folder / ".lock"
        with _writing(self.folder):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _flock(file, self.folder)
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        except StoreError:
            os.close(file)
            raise
        except OSError:  # a full disk: who holds the lock goes unnamed
            pass
        self._lock = weakref.finalize(self, os.close, file)

    def _claim(self, config: dict[str, Any]) -> None:
        """Write the folder's configuration, or compare with it."""
        path = self.folder / "config.json"
        if not path.exists():
            write_atomically(path, json.dumps(config, indent=2, sort_keys=True) + "\n")
            return
        try:
            stored = json.loads(path.read_bytes())
            differing = sorted(key for key in config if stored.get(key) != config[key])
        except (ValueError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path}: expected a JSON object ({error}). Restore the file, or name another folder.") from None
        if differing:
            shown = "; ".join(f"{key}: stored {stored.get(key)!r}, given {config.get(key)!r}" for key in differing)
            raise UsageError(
                f"{self.folder}: expected the configuration stored there; these keys differ: {shown}. Name another folder."
            )

    def _read_places(self) -> None:
        """Read what has been written since the last time; cut off a torn record if this store may write."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                key, failed = None, False
                try:
                    if line.endswith(_PLAIN_END) and (begin := _PLAIN_BEGIN.match(line)):
                        key = begin[1].decode()  # many times as fast as reading it all, which `episodes` does
                    elif line.endswith(b"\n"):
                        key, failed = _key_of(json.loads(line))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    if file.read(1):
                        raise _damaged(f"{self.path}, line {self._lines + 1}", line, error) from None
                if key is None:
                    break
                self._places[key] = (self._end, failed)
                self._end += len(line)
                self._lines += 1
        torn = self.path.stat().st_size - self._end
        if torn and self._lock is not None:
            _logger.warning(
                "%s: cut off a record of %d bytes that was not written whole; its episode will be played again.", self.path, torn
            )
            with _writing(self.path):
                os.truncate(self.path, self._end)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part.

    Raises:
        StoreError: If it cannot be written; the old one stays.
    """
    partial = path.with_name(path.name + ".partial")
    with _writing(path):
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # else the name may reach the disk before the text does
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def _key_of(record: Any) -> tuple[str, bool]:
    """Return a record's key and whether its episode ended in error; raise TypeError or KeyError if it is no record."""
    if not isinstance(record, dict):
        raise TypeError(f"a JSON {type(record).__name__}")
    key, error = record["key"], record["error"]
    if not isinstance(key, str) or not isinstance(error, str | None):
        raise TypeError("key and error: expected strings")
    return key, error is not None


def _damaged(place: str, line: bytes, error: Exception) -> UsageError:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
    return UsageError(f"{place}: expected an episode; got {line[:60]!r} ({reason[:200]}). Restore the line, or delete it.")


def _write(file: int, data: bytes, offset: int) -> None:
    """Append all of `data` and sync it to disk, or leave the file as long as it was."""
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except BaseException:  # Ctrl-C as well: the next record follows here
        os.ftruncate(file, offset)
        raise


def _flock(file: int, folder: Path) -> None:
    """Lock an open file for this process alone; raise `StoreError` if another one has."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 200, 0).decode("utf-8", "replace") or "another process"
        raise StoreError(
            f"{folder}: expected a folder that no other run writes into; {holder} does. Let it end, or name another folder."
        ) from None
    except OSError as error:  # a file system without locks
        _logger.warning("%s cannot be locked (%s); see to it that no two runs write into it.", folder, error.strerror)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
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
