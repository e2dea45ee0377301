"""`AnswerCache`: a file of answers, so that no request is paid for twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from gym_text.errors import StoreError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.checks import check_answer
from gym_text_policies.records import Tokens

_FILE = "answers.sqlite"
_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(Answer)}

_TABLE = "CREATE TABLE answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"
_OF_OTHERS = bytes.fromhex("d9d505f920a163d7")
"""A journal that names another file ends with these bytes. SQLite would delete that other file
(https://www.sqlite.org/fileformat.html)."""
_MOST_BYTES = 2**26
"""Most bytes of a stored answer."""
_PATIENCE = 60.0
"""Seconds to wait while another process writes."""
_FIRST_FIELDS = (
    *("text", "finish", "probabilities", "probability_kind", "tokens_in", "tokens_cached", "tokens_out", "turns_dropped", "cost"),
    *("reference", "tokens"),
)
"""The fields of an answer that every stored one has. Later fields are stored only where they differ from their defaults."""
_LATER_SETTINGS = ("think", "think_tokens", "top_p", "top_k", "min_p", "tool", "picture")
"""Settings of a request that are a part of its key only where they are given, so that answers stored before are found."""
_REPAIR = "Remove the file (its answers are then asked for again), or name another folder."


def key_of_request(config: Mapping[str, Any], request: Request) -> str:
    """Return the key of a request to a model with this configuration. The request's episode is no part of it."""
    asked = asdict(replace(request, episode=""))
    del asked["probabilities"]  # a provider gives all probabilities or none
    for name in _LATER_SETTINGS:
        if asked[name] is None:
            del asked[name]
    if request.picture is not None:
        asked["picture"] = hashlib.sha256(request.picture).hexdigest()
    parts = [config, asked, _FIRST_FIELDS]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class AnswerCache:
    """Answers in a folder, as a table of JSON in one SQLite file. Several processes may share it. Nothing in it expires.

    Only plain data is read. A file with more than this table, such as a view or a trigger, is refused; so is a damaged answer.

    Args:
        folder: The folder, which is made if it does not exist.

    Raises:
        StoreError: If the folder cannot be written, or its file is damaged or not a cache of answers.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / _FILE
        self._pending: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()
        with self._failures():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._check_file()
            self._table = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            with self._failures():
                self._open_table()
        except BaseException:
            self._table.close()
            raise

    def get(self, key: str, ask: Callable[[], Answer]) -> Answer:
        """Return the stored answer to a request, or ask for it and store it. Another thread with the same request waits for it.

        A stored answer costs nothing, all its input tokens count as cached, and it belongs to no episode of the provider. An empty
        answer, one that was cut, and a refusal are not stored.

        Raises:
            StoreError: If the file is damaged or cannot be written.
        """
        with self._lock:
            stored = self._read(key)
            if stored is not None:
                return _reused(stored)
            pending = self._pending.get(key)
            if pending is None:
                future = self._pending[key] = Future()
        if pending is not None:
            return _reused(pending.result())
        try:
            answer = ask()
            if _is_whole(answer):
                self._write(key, answer)
            future.set_result(answer)
        except BaseException as error:
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._pending[key]
        return answer

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._table.close()

    def _check_file(self) -> None:
        """Raise `StoreError` if the file, or a file of SQLite's beside it, is not a regular file or leads to another file."""
        for path in self._path.parent.glob(f"{_FILE}*"):
            try:
                is_regular = stat.S_ISREG(path.lstat().st_mode)
            except FileNotFoundError:  # another process has just removed its journal
                continue
            if not is_regular:
                raise StoreError(f"{path}: expected a file; got a link, a folder or a device. {_REPAIR}")
        journal = self._path.with_name(f"{_FILE}-journal")
        with contextlib.suppress(FileNotFoundError), journal.open("rb") as file:
            file.seek(max(0, journal.stat().st_size - len(_OF_OTHERS)))
            if file.read() == _OF_OTHERS:
                raise StoreError(f"{journal}: expected the journal of {_FILE} alone; it names another file. {_REPAIR}")

    def _open_table(self) -> None:
        """Make the table if it is not there; raise `StoreError` if the file contains something else."""
        self._table.execute("PRAGMA trusted_schema = OFF")
        self._table.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        self._table.execute("BEGIN IMMEDIATE")
        with self._table:  # commits
            statements = [row[0] for row in self._table.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
            if not statements:
                self._table.execute(_TABLE)
            elif statements != [_TABLE]:
                raise StoreError(f"{self._path}: expected a cache of answers; got another database. {_REPAIR}")

    def _read(self, key: str) -> Answer | None:
        with self._failures():
            row = self._table.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            return _restored(json.loads(row[0]))
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise StoreError(
                f"{self._path}: expected an answer; got {str(row[0])[:60]!r} ({str(error)[:200]}). {_REPAIR}"
            ) from None

    def _write(self, key: str, answer: Answer) -> None:
        kept = {name: value for name, value in asdict(answer).items() if name in _FIRST_FIELDS or value != _DEFAULTS[name]}
        text = json.dumps(kept, allow_nan=False)
        with self._lock, self._failures():
            self._table.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors of the system and of SQLite into `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"{self._path}: the cache of answers cannot be used ({error}). Make room, give write permission, let another run "
                "that writes into it end, or name another folder."
            ) from None
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self._path}: expected a cache of answers; the file is damaged or another ({error}). {_REPAIR}"
            ) from None
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self._path.parent}: the cache of answers cannot be written ({error}). Name a folder that can be made."
            ) from None


def _is_whole(answer: Answer) -> bool:
    """Return whether an answer may be used again: it is not empty, not cut, and not a refusal."""
    return answer.finish in (None, "stop") and (answer.text is None or bool((answer.arguments or answer.text).strip()))


def _restored(stored: Any) -> Answer:
    """Return the answer that a stored JSON object stands for; raise TypeError or ValueError if it is not an answer."""
    if not isinstance(stored, dict) or not set(_FIRST_FIELDS) <= stored.keys() <= _DEFAULTS.keys():
        raise TypeError("not the fields of an answer")
    tokens = {text: Tokens(**{name: tuple(row) for name, row in rows.items()}) for text, rows in (stored["tokens"] or {}).items()}
    return check_answer(Answer(**{**stored, "tokens": tokens or None}))


def _reused(answer: Answer) -> Answer:
    """Return a stored answer with the cost of reading it from the cache: nothing."""
    return replace(answer, tokens_cached=answer.tokens_in, cost=0.0, reference=None)
