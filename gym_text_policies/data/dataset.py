"""Rows as a Hugging Face dataset, in a folder or on the hub: written whole, and checked when they are read.

A dataset may come from anywhere. So each field of each record is checked, and `UsageError` names the first mistake in one sentence.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.data.rows import Row
from gym_text_policies.files.folders import replace_folder
from gym_text_policies.files.json_data import check_environment, checked
from gym_text_policies.files.run_folders import writing
from gym_text_policies.files.safe_files import check_folder
from gym_text_policies.prompts.tools import called_action

ROLES = ("system", "user", "assistant")
_OPTIONAL = ("thoughts", "tool")
"""Fields that a record may lack: where no row has thoughts, a tool or the player's own answers."""
_SHOWN = 60
"""Most characters of a value that an error shows."""


def write_rows(rows: Sequence[Row], folder: str | Path, *, replace: bool = False) -> None:
    """Save rows as a Hugging Face dataset; the folder is written whole or not at all.

    Args:
        rows: The rows.
        folder: The new folder.
        replace: Whether the folder may exist already. Its files stay until the new folder is complete.

    Raises:
        UsageError: If there are no rows, or the folder exists, and `replace` does not allow that.
        StoreError: If the folder cannot be written.
    """
    datasets = import_extra("datasets", "train")
    folder = Path(folder)
    if not rows:
        raise UsageError(f"{folder}: expected rows to learn from; got none. Play more episodes, or lower the threshold.")
    if folder.exists() and not replace:
        raise UsageError(f"{folder}: expected a new folder; it is there already. Name another one, or remove it.")

    records = [dataclasses.asdict(row) for row in rows]
    unused = {name for name in ("thoughts", "tool") if not any(getattr(row, name) for row in rows)}
    records = [{name: value for name, value in record.items() if name not in unused} for record in records]

    def save(target: Path) -> None:
        with _no_progress_bars(datasets), writing(folder):
            datasets.Dataset.from_list(records).save_to_disk(target)

    replace_folder(folder, save)


def read_rows(source: str | Path) -> list[Row]:
    """Read rows from a folder, or from the hub as ``hf:OWNER/NAME``.

    Raises:
        UsageError: If there are no rows, or a record is no row.
    """
    datasets = import_extra("datasets", "train")
    try:
        with _no_progress_bars(datasets):
            if str(source).startswith("hf:"):
                data = datasets.load_dataset(str(source).removeprefix("hf:"), split="train")
            else:
                check_folder(Path(source))
                data = datasets.load_from_disk(str(source))
        rows = [_row(number, record) for number, record in enumerate(data)]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # of datasets and pyarrow as well
        hint = f" Its rows are in {source}/rows." if (Path(source) / "rows").is_dir() else ""
        raise UsageError(f"{source}: expected a dataset that gym-text collect has made; {error}.{hint}") from error
    if not rows:
        raise UsageError(f"{source}: expected rows to learn from; got none.")
    return rows


def _row(number: int, record: Mapping[str, Any]) -> Row:
    """Return a record of a dataset as a row; raise ValueError, with the record's number, if the record is no row."""
    fields = {field.name: record[field.name] for field in dataclasses.fields(Row) if field.name not in _OPTIONAL}
    fields |= {"thoughts": tuple(record.get("thoughts") or ()), "tool": record.get("tool") or ""}
    try:
        _check_conversation(fields["messages"], fields["labels"], (*ROLES, "tool") if fields["tool"] else ROLES)
        _check_thoughts(fields["thoughts"], fields["labels"])
        _check_origin(fields["environment"], fields["history"])
        _check_calls(fields["tool"], fields["messages"], fields["labels"])
        kept = ("role", "content", "call") if fields["tool"] else ("role", "content")
        messages = tuple({key: said[key] for key in kept if said.get(key) is not None} for said in fields["messages"])
        return checked(Row(**{**fields, "messages": messages, "labels": tuple(fields["labels"])}))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"row {number}: {error}") from None


def _check_conversation(messages: Any, labels: Any, roles: Sequence[str]) -> None:
    """Raise ValueError or TypeError unless messages are texts of known roles, and each has a label, not all of them empty."""
    if not messages or not all(_is_message(message, roles) for message in messages):
        raise ValueError(f"messages: expected texts of {', '.join(roles)}; got {str(messages)[:_SHOWN]}")
    if not all(isinstance(label, str) for label in labels) or len(labels) != len(messages) or labels[0] or not any(labels):
        raise ValueError(f"labels: expected a text for each message, the first empty and not all; got {str(labels)[:_SHOWN]}")


def _check_thoughts(thoughts: Any, labels: Any) -> None:
    """Raise ValueError unless there are no thoughts, or a text for each message, empty where there is no label."""
    pairs = list(zip(thoughts, labels, strict=False))
    fit = len(thoughts) in (0, len(labels)) and all(isinstance(text, str) and (label or not text) for text, label in pairs)
    if not fit:
        raise ValueError(f"thoughts: expected a text for each message, empty where the label is; got {str(thoughts)[:_SHOWN]}")


def _check_calls(tool: Any, messages: Any, labels: Any) -> None:
    """Raise ValueError or TypeError unless `tool` is empty, or the JSON of a function, and the answers alone are calls of it."""
    if not tool:
        return
    match json.loads(tool):
        case {"name": str(), "description": str(), "parameters": {"properties": {"action": dict(), **others}}} if not others:
            pass
        case _:
            expected = "a function with name and description, texts, and parameters, which have the one property action, as JSON"
            raise ValueError(f"tool: expected {expected}; got {tool[:_SHOWN]!r}")
    calls = [message.get("call") for message in messages if message["role"] == "assistant"]
    if wrong := [call for call in (*calls, *filter(None, labels)) if not isinstance(call, str) or called_action(call) is None]:
        raise ValueError(f"messages, labels: expected calls with an action, as JSON; got {str(wrong[0])[:_SHOWN]!r}")
    if wrong := [message for message in messages if message["role"] != "assistant" and message.get("call") is not None]:
        raise ValueError(f"messages: expected calls of the role assistant alone; got {str(wrong[0])[:_SHOWN]}")


def _check_origin(environment: Any, history: Any) -> None:
    """Raise ValueError or TypeError unless `environment` is JSON with an id, and `history` is a number of steps or all."""
    data = json.loads(environment)
    if not isinstance(data, dict) or not isinstance(data.get("id"), str) or not isinstance(data.get("kwargs"), dict):
        raise ValueError(f"environment: expected a JSON object with id and kwargs; got {environment[:_SHOWN]!r}")
    check_environment(data)
    if history != "all" and not re.fullmatch("[0-9]{1,6}", str(history)):
        raise ValueError(f"history: expected a number or all; got {str(history)[:_SHOWN]!r}")


def _is_message(message: Any, roles: Sequence[str]) -> bool:
    return isinstance(message, Mapping) and message.get("role") in roles and isinstance(message.get("content"), str)


@contextlib.contextmanager
def _no_progress_bars(datasets: Any) -> Iterator[None]:
    """Let datasets draw no progress bars while the block runs."""
    was_on = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if was_on:
            datasets.enable_progress_bars()
