"""`EpisodeStore`: a folder of episodes that survives crashes and is found again."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gym_text import UsageError
from gym_text_policies.records import Episode

_logger = logging.getLogger(__name__)


class EpisodeStore:
    """Episodes as JSON lines in ``FOLDER/episodes.jsonl``; the configuration they belong to in ``FOLDER/config.json``.

    A record is whole or absent: each is written by one call and synced to disk, and a last line that a crash tore is cut off
    when the folder is opened. Where a key was written twice the last record counts.

    Args:
        folder: Made if it does not exist.
        config: What all episodes of the folder share; plain JSON.

    Raises:
        UsageError: If the folder belongs to another configuration (the keys that differ are named), or a line within the
            file is no record.
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "episodes.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        if config is not None:
            self._claim(json.loads(json.dumps(config)))
        self._places: dict[str, tuple[int, bool]] = {}  # key -> (offset of its line, whether it ended in error)
        self._read_places()

    def append(self, episode: Episode) -> None:
        """Write an episode to disk."""
        line = json.dumps(episode.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
        with self.path.open("ab") as file:
            offset = file.tell()
            file.write(line.encode("utf-8", errors="backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        self._places[episode.key] = (offset, episode.error is not None)

    def has(self, key: str, *, retry_errors: bool = False) -> bool:
        """Return whether the episode of `key` is stored; with `retry_errors`, one that ended in error does not count."""
        place = self._places.get(key)
        return place is not None and not (retry_errors and place[1])

    def episodes(self, keys: Iterable[str] | None = None) -> Iterator[Episode]:
        """Yield the stored episodes of `keys` (those not stored are passed over), or all, one at a time."""
        wanted = self._places if keys is None else [key for key in keys if key in self._places]
        if not wanted:
            return
        with self.path.open("rb") as file:
            for key in wanted:
                file.seek(self._places[key][0])
                yield Episode.from_json(json.loads(file.readline()))

    def __len__(self) -> int:
        return len(self._places)

    def _claim(self, config: dict[str, Any]) -> None:
        """Write the folder's configuration, or compare with it."""
        path = self.folder / "config.json"
        if path.exists():
            stored = json.loads(path.read_text("utf-8"))
            differing = sorted(key for key in stored.keys() | config.keys() if stored.get(key) != config.get(key))
            if differing:
                shown = "; ".join(f"{key}: stored {stored.get(key)!r}, given {config.get(key)!r}" for key in differing)
                raise UsageError(
                    f"{self.folder}: expected the configuration stored there; these keys differ: {shown}. Name another folder."
                )
        else:
            write_atomically(path, json.dumps(config, indent=2, sort_keys=True) + "\n")

    def _read_places(self) -> None:
        if not self.path.exists():
            return
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    record = json.loads(line) if line.endswith(b"\n") else None
                    if record is not None:
                        self._places[record["key"]] = (offset, record["error"] is not None)
                except (ValueError, KeyError, TypeError) as error:
                    if file.read(1):
                        raise UsageError(f"{self.path}, line {number}: expected an episode; got {line[:60]!r} ({error}).") from None
                    record = None
                if record is None:
                    break
                offset += len(line)
        torn = self.path.stat().st_size - offset
        if torn:
            _logger.warning(
                "%s: cut off a record of %d bytes that was not written whole; its episode will be played again.", self.path, torn
            )
            os.truncate(self.path, offset)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)
