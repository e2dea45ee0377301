"""`AnswerCache`: a file of answers, so that no request is paid for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gym_text.errors import StoreError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.records import Tokens


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

    Args:
        folder: The folder, which is made if it does not exist.

    Raises:
        StoreError: If the folder cannot be written, or its file is damaged or not a cache of answers.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "answers.sqlite"
        self._lock = threading.Lock()
        self._requested: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        with self._failures():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # the timeout is for another process that writes
            self._table = sqlite3.connect(self._path, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            self._execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            self._execute("SELECT key, answer FROM answers LIMIT 1")
        except StoreError:
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
            turn = self._requested.setdefault(key, threading.Lock())
        with turn:
            row = self._execute("SELECT answer FROM answers WHERE key = ?", key)
            if row is not None:
                with self._failures():
                    fields = json.loads(row[0])
                    rows = (fields["tokens"] or {}).items()
                    tokens = {said: Tokens(**{name: tuple(row[name]) for name in row}) for said, row in rows}
                    stored = Answer(**fields | {"tokens": tokens or None})
                return replace(stored, tokens_cached=stored.tokens_in, cost=0.0, reference=None)
            answer = ask()
            if answer.finish in (None, "stop") and (answer.text is None or (answer.arguments or answer.text).strip()):
                self._execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", key, json.dumps(asdict(answer)))
            return answer

    def close(self) -> None:
        """Close the file."""
        self._table.close()

    def _execute(self, statement: str, *values: str) -> Any:
        """Execute a statement, and return its first row; None if there is none."""
        with self._failures(), self._lock:
            return self._table.execute(statement, values).fetchone()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self._path}: the cache of answers cannot be used ({error}). Make room, give write permission, let another run "
                "that writes into it end, or name another folder. If the file is damaged or another, remove it: its answers are "
                "asked again."
            ) from None
