"""`AnswerCache`: a file of answers, so that no request is paid for twice."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gym_text.errors import StoreError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.answer_checks import check_answer
from gym_text_policies.records import Tokens

_FILE = "answers.sqlite"
_TABLE = "CREATE TABLE answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"
_PATIENCE = 60.0
"""Seconds to wait while another process writes."""
_REPAIR = "Remove the file (its answers are then asked for again), or name another folder."


def request_key(config: Mapping[str, Any], request: Request) -> str:
    """Return the key of a request to a model with this configuration. The request's episode is no part of it."""
    # a provider gives all probabilities or none
    fields = asdict(replace(request, episode="", probabilities=True))
    given = {name: value for name, value in fields.items() if value is not None}
    if request.picture is not None:
        given["picture"] = hashlib.sha256(request.picture).hexdigest()
    return hashlib.sha256(json.dumps([config, given], sort_keys=True).encode()).hexdigest()


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
                with self._lock, self._failures():
                    text = json.dumps(asdict(answer), allow_nan=False)
                    self._table.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))
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

    def _open_table(self) -> None:
        """Make the table if it is not there; raise `StoreError` if the file contains something else."""
        self._table.execute("PRAGMA trusted_schema = OFF")
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
            fields = json.loads(row[0])
            rows = fields["tokens"] or {}
            tokens = {text: Tokens(**{name: tuple(values) for name, values in row.items()}) for text, row in rows.items()}
            return check_answer(Answer(**{**fields, "tokens": tokens or None}))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{self._path}: expected an answer; got {str(row[0])[:60]!r} ({str(error)[:200]}). {_REPAIR}"
            ) from None

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors of the system and of SQLite into `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except (sqlite3.OperationalError, OSError, ValueError) as error:
            raise StoreError(
                f"{self._path}: the cache of answers cannot be used ({error}). Make room, give write permission, let another run "
                "that writes into it end, or name another folder."
            ) from None
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self._path}: expected a cache of answers; the file is damaged or another ({error}). {_REPAIR}"
            ) from None


def _is_whole(answer: Answer) -> bool:
    """Return whether an answer may be used again: it is not empty, not cut, and not a refusal."""
    return answer.finish in (None, "stop") and (answer.text is None or bool((answer.arguments or answer.text).strip()))


def _reused(answer: Answer) -> Answer:
    """Return a stored answer with the cost of reading it from the cache: nothing."""
    return replace(answer, tokens_cached=answer.tokens_in, cost=0.0, reference=None)
