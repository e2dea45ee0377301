"""`EpisodeStore`: the episodes of a run folder as lines of JSON, each identified by a key. A crash costs no stored episode."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from gym_text.errors import UsageError, check_choice, import_extra
from gym_text_policies.environments import environment_name
from gym_text_policies.files.json_data import without_surrogates
from gym_text_policies.files.redaction import without_keys
from gym_text_policies.files.run_folders import NO_LINK, RunFolder, writing
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.records import Episode, player_within

_logger = logging.getLogger(__name__)
Rows = Literal["episodes", "decisions"]
_SUMS = ("tokens_in", "tokens_out", "tokens_reasoning", "model_calls", "simulator_steps")
COLUMNS: dict[Rows, dict[str, type]] = {
    "episodes": {
        **dict.fromkeys(("key", "environment", "policy", "environment_config", "policy_config"), str),
        **{"seed": int, "level": int, "outcome": str, "won": bool, "return": float, "length": int, "invalid": int},
        **dict.fromkeys((*_SUMS, "thoughts_cut"), int),
        **{"seconds": float, "cost": float, "error": str},
    },
    "decisions": {
        **{"key": str, "environment": str, "policy": str, "seed": int, "level": int, "step": int, "action": str},
        **{"probability": float, "probabilities": str, "probability_kind": str, "reward": float, "score": float},
        **dict.fromkeys(("terminated", "truncated", "success", "failure", "action_was_valid"), bool),
        **{"gold_action": str, "valid": bool, "invalid": str, "retries": int, "finish": str, "completion": str, "reasoning": str},
        **{"thought_cut": bool, "visits": str, "values": str, "tokens_cached": int, **dict.fromkeys(_SUMS, int)},
        **{"seconds": float, "cost": float, "observation": str},
    },
}
"""The columns of each kind of rows, and their types."""
_DTYPES = {str: "string", int: "Int64", float: "float64", bool: "boolean"}
"""Types of pandas in which values may be missing."""
_PLAIN_BEGIN = re.compile(rb'\{"key": "([0-9a-f]{32})", ')
_PLAIN_END = b', "error": null}\n'
"""First and last bytes of an episode's line without an error. Within a JSON string the quotes would be escaped."""


class Record(Protocol):
    """A record that a store keeps."""

    @property
    def key(self) -> str:
        """Identifies the record."""

    @property
    def error(self) -> str | None:
        """The error that ended the episode, or None."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON data, ``key`` and ``error`` among it."""


R = TypeVar("R", bound=Record)


class RecordStore(Generic[R]):
    """Records as JSON lines in one file of a run folder, made of JSON data by `from_json`.

    A record is whole or absent, because one call writes it and syncs it to disk. After a crash the last line may be no record: the
    store leaves it out with a warning, and cuts it off before the next record is written. Of two records with one key the last one
    counts. Other processes may read while one writes. A folder without a configuration is locked at the first `append`.

    Raises:
        UsageError: If a line within the file is no record.
    """

    def __init__(self, run: RunFolder, file_name: str, from_json: Callable[[dict[str, Any]], R]) -> None:
        self.run = run
        self.path = run.path / file_name
        self._from_json = from_json
        self._index: dict[str, tuple[int, bool]] = {}  # key -> (offset of its line, whether the record has an error)
        self._lines = 0
        self._end = 0  # bytes of the whole records that have been read or written
        with run.freed_by_errors():
            self._read_index()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.path

    def append(self, record: R) -> None:
        """Write a record to disk, without API keys.

        Raises:
            StoreError: If another process writes into the folder, or the disk is full; what was stored before stays whole.
        """
        line = json.dumps(without_keys(record.to_json()), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", errors="backslashreplace")
        if not self.run.is_locked:
            self.run.lock()
            self._read_index()
        with writing(self.path):
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | NO_LINK, 0o666)
            try:
                _write(file, data, self._end)
            finally:
                os.close(file)
        self._index[record.key] = (self._end, record.error is not None)
        self._end += len(data)
        self._lines += 1

    def has(self, key: str, *, retry_errors: bool = False) -> bool:
        """Return whether the record of `key` is stored; with `retry_errors`, one with an error does not count."""
        entry = self._index.get(key)
        return entry is not None and not (retry_errors and entry[1])

    def records(self, keys: Iterable[str] | None = None) -> Iterator[R]:
        """Yield the stored records of `keys`, or all, one at a time; keys that are not stored are skipped.

        Raises:
            UsageError: If a record is damaged.
        """
        wanted = list(self._index) if keys is None else [key for key in keys if key in self._index]
        if not wanted:
            return
        with self.path.open("rb") as file:
            for key in wanted:
                offset = self._index[key][0]
                file.seek(offset)
                line = file.readline()
                try:
                    record = self._from_json(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    raise _damaged(f"{self.path}, at byte {offset}", line, error) from None
                yield record

    def __iter__(self) -> Iterator[R]:
        return self.records()

    def __len__(self) -> int:
        return len(self._index)

    def __bool__(self) -> bool:
        return True  # an empty store is a store, as in `if store`

    def close(self) -> None:
        """Let other processes write into the folder. The stored records can still be read."""
        self.run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_index(self) -> None:
        """Read the records that were written since the last call. A last line that is none is cut off if this store may write."""
        if not self.path.exists():
            return
        with check_regular(self.path).open("rb") as file:
            file.seek(self._end)
            for line in file:
                key, failed = None, False
                try:
                    if line.endswith(_PLAIN_END) and (begin := _PLAIN_BEGIN.match(line)):
                        key = begin[1].decode()  # many times faster than parsing the whole line, which `records` does
                    elif line.endswith(b"\n"):
                        key, failed = _key_of(json.loads(line))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    if file.read(1):
                        raise _damaged(f"{self.path}, line {self._lines + 1}", line, error) from None
                if key is None:
                    break
                self._index[key] = (self._end, failed)
                self._end += len(line)
                self._lines += 1
        if self.path.stat().st_size > self._end:
            _logger.warning("%s: the last line is no whole record and is left out; its episode will be played again.", self.path)
            if self.run.is_locked:
                with writing(self.path):
                    os.truncate(self.path, self._end)


class EpisodeStore(RecordStore[Episode]):
    """The episodes of a run folder, in ``FOLDER/episodes.jsonl``.

    Args:
        folder: Made if it does not exist.
        config: Settings that all episodes of the folder share; see `RunFolder`.

    Raises:
        UsageError: If the folder belongs to another configuration, or a line in the middle of the file is no record.
        StoreError: If another process writes into the folder, or the folder cannot be written.
    """

    file_name: ClassVar[str] = "episodes.jsonl"

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(RunFolder(folder, config), self.file_name, Episode.from_json)

    def episodes(self, keys: Iterable[str] | None = None) -> Iterator[Episode]:
        """Yield the stored episodes of `keys`, or all; see `records`. ``for episode in store`` yields all, too."""
        return self.records(keys)

    def to_pandas(self, rows: Rows = "episodes") -> Any:
        """Return the stored episodes as a `pandas.DataFrame`: a row for each episode, or for each decision with its probabilities.

        The columns have the names of the fields of `Episode`, `Step` and `Decision`; ``return`` and ``won`` are the table's, and
        `won` is missing after an error and where the environment does not say what a success is. Mappings, such as the
        probabilities, are JSON.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        check_choice("rows", rows, tuple(COLUMNS))
        pandas = import_extra("pandas", "pandas")
        frame = pandas.DataFrame(_flat_rows(self, rows), columns=list(COLUMNS[rows]))
        return frame.astype({name: _DTYPES[kind] for name, kind in COLUMNS[rows].items()})


def _key_of(record: Any) -> tuple[str, bool]:
    """Return a record's key and whether it has an error; raise TypeError or KeyError if it is no record."""
    if not isinstance(record, dict):
        raise TypeError(f"a JSON {type(record).__name__}")
    key, error = record["key"], record["error"]
    if not isinstance(key, str) or not isinstance(error, str | None):
        raise TypeError("key and error: expected strings")
    return key, error is not None


def _damaged(where: str, line: bytes, error: Exception) -> UsageError:
    reason = f"no {error}" if isinstance(error, KeyError) else str(error)
    return UsageError(f"{where}: expected an episode; got {line[:60]!r} ({reason[:200]}). Restore the line, or delete it.")


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


def _player(policy: Mapping[str, Any]) -> str:
    """Return the model of a policy, or of the policy that plays within one that mixes actions or looks ahead; else its name."""
    policy = player_within(policy)
    return str(policy.get("model") or policy.get("name") or policy.get("kind", ""))


def _flat_rows(episodes: Iterable[Episode], rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield a row of `COLUMNS` for each episode or for each decision."""
    for episode in episodes:
        shared: dict[str, Any] = {"environment": environment_name(episode.environment), "policy": _player(episode.policy)}
        if rows == "episodes":
            parts: Iterable[tuple[Any, ...]] = [(episode,)]
            won = episode.outcome == "won" if episode.tells_success and episode.error is None else None
            shared |= {"environment_config": episode.environment, "policy_config": episode.policy}
            shared |= {"won": won, "return": episode.total_reward}
        else:
            parts = [(step, step.decision, episode) for step in episode.steps]
        for number, part in enumerate(parts):
            row = shared | {"step": number}
            if rows == "decisions" and (chances := part[1].probabilities) is not None:
                row["probability"] = chances.get(part[1].action)
            yield {name: _cell(row[name] if name in row else _of(part, name)) for name in COLUMNS[rows]}


def _of(part: Iterable[Any], name: str) -> Any:
    return next((getattr(record, name) for record in part if hasattr(record, name)), None)


def _cell(value: Any) -> Any:
    """Return a value for a table: a mapping as JSON, a text without halves of characters, which a model may have written."""
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return without_surrogates(value)
