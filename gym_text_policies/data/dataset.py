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
from gym_text_policies.files.json_data import check_environment, checked, checked_message, is_finite
from gym_text_policies.files.run_folders import writing
from gym_text_policies.files.safe_files import check_folder
from gym_text_policies.prompts.tools import called_action

ROLES = ("system", "user", "assistant")
_OPTIONAL = ("thoughts", "tool", "options", "shares")
"""Fields that a record may lack: where no row has them."""
_SHOWN = 60
"""Most characters of a value that an error shows."""


def write_rows(rows: Sequence[Row], folder: str | Path) -> None:
    """Save rows as a Hugging Face dataset in place of what is in the folder, which stays until the dataset is complete.

    Raises:
        StoreError: If the folder cannot be written.
    """
    datasets = import_extra("datasets", "train")
    folder = Path(folder)
    unused = {name for name in _OPTIONAL if not any(getattr(row, name) for row in rows)}
    records = [{name: value for name, value in dataclasses.asdict(row).items() if name not in unused} for row in rows]

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
    fields |= {name: tuple(map(tuple, record.get(name) or ())) for name in ("options", "shares")}
    try:
        kept = ("role", "content", "call") if fields["tool"] else ("role", "content")
        messages = tuple({key: said[key] for key in kept if said.get(key) is not None} for said in fields["messages"])
        row = checked(Row(**{**fields, "messages": messages, "labels": tuple(fields["labels"])}))
        for name, value, expected, fits in _expected(row):
            if not fits:
                raise ValueError(f"{name}: expected {expected}; got {repr(value)[:_SHOWN]}")
        return row
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"row {number}: {error}") from None


def _expected(row: Row) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield the parts of a row whose types alone do not say enough: name, value, what is expected, and whether it is that."""
    roles = (*ROLES, "tool") if row.tool else ROLES
    said = row.messages and all(checked_message(message)["role"] in roles for message in row.messages)
    yield "messages", row.messages, f"texts of {', '.join(roles)}", said
    learnt = len(row.labels) == len(row.messages) and all(isinstance(label, str) for label in row.labels)
    expected = "a text for each message, the first empty and not all"
    yield "labels", row.labels, expected, learnt and not row.labels[0] and any(row.labels)
    before = [isinstance(text, str) and (label or not text) for text, label in zip(row.thoughts, row.labels, strict=False)]
    fits = len(row.thoughts) in (0, len(row.labels)) and all(before)
    yield "thoughts", row.thoughts, "a text for each message, empty where the label is", fits
    fits = len(row.options) in (0, len(row.labels)) and all(isinstance(name, str) for names in row.options for name in names)
    yield "options", row.options, "texts for each message", fits
    shares = [
        not own or (len(own) == len(names) and all(map(is_finite, own)))
        for own, names in zip(row.shares, row.options, strict=False)
    ]
    yield "shares", row.shares, "a number for each option, or none", len(shares) == len(row.shares) and all(shares)
    data = json.loads(row.environment)
    named = isinstance(data, dict) and isinstance(data.get("id"), str) and isinstance(data.get("kwargs"), dict)
    yield "environment", row.environment, "a JSON object with id and kwargs", named
    check_environment(data)
    yield "history", row.history, "a number or all", row.history == "all" or re.fullmatch("[0-9]{1,6}", row.history)
    if row.tool:
        match json.loads(row.tool):
            case {"name": str(), "description": str(), "parameters": {"properties": {"action": dict(), **more}}}:
                is_function = not more
            case _:
                is_function = False
        expected = "a function with name and description, texts, and parameters, which have the one property action, as JSON"
        yield "tool", row.tool, expected, is_function
        calls = [message.get("call", "") for message in row.messages if message["role"] == "assistant"]
        wrong = next((call for call in (*calls, *filter(None, row.labels)) if called_action(call) is None), None)
        yield "messages, labels", wrong, "calls with an action, as JSON", wrong is None
        called = next((message for message in row.messages if message["role"] != "assistant" and "call" in message), None)
        yield "messages", called, "calls of the role assistant alone", called is None


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
