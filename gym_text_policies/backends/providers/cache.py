"""`AnswerCache`: answers on disk, so that no request is paid twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gym_text.errors import import_extra
from gym_text_policies.backends.base import Answer
from gym_text_policies.records import Tokens


class AnswerCache:
    """Answers in a folder, as JSON. Several runs may share it, and nothing in it expires.

    Args:
        folder: Made if it does not exist.
        extra: The extra to name if diskcache is not installed.
    """

    def __init__(self, folder: str | Path, extra: str) -> None:
        diskcache = import_extra("diskcache", extra)
        self._disk = diskcache.Cache(str(folder), disk=diskcache.JSONDisk, eviction_policy="none")
        self._asked: dict[str, Future[Answer]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, ask: Callable[[], Answer]) -> Answer:
        """Return the stored answer, or ask and store it. A thread that asks the same meanwhile waits for that answer.

        A stored answer costs nothing, all its input tokens count as cached, and it belongs to no episode of the provider.
        """
        with self._lock:
            stored = self._disk.get(key)
            if stored is not None:
                return _again(_restored(stored))
            asked = self._asked.get(key)
            if asked is None:
                mine = self._asked[key] = Future()
        if asked is not None:
            return _again(asked.result())
        try:
            answer = ask()
            self._disk.set(key, asdict(answer))
            mine.set_result(answer)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._asked[key]
        return answer

    def close(self) -> None:
        """Close the files."""
        self._disk.close()


def _restored(stored: dict[str, Any]) -> Answer:
    """Return an answer as it was before it became JSON."""
    kept = stored.get("tokens") or {}
    tokens = {text: Tokens(**{name: tuple(values) for name, values in own.items()}) for text, own in kept.items()}
    return Answer(**{**stored, "tokens": tokens or None})


def _again(answer: Answer) -> Answer:
    return replace(answer, tokens_cached=answer.tokens_in, cost=0.0, reference=None)
