"""Training data in OpenAI's fine-tuning format, and the call that submits it and waits."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gym_text.errors import PolicyError, UsageError, import_extra
from gym_text_policies.store import write_atomically
from gym_text_policies.training.rows import Row, read_rows

_OVER = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class ExportConfig:
    """Write training data in OpenAI's fine-tuning format, and submit it if a model is named."""

    data: str = "runs/data/rows"
    """Dataset of gym-text collect: a folder, or hf:OWNER/NAME of the hub."""
    file: str = "runs/data/openai.jsonl"
    """File to write."""
    submit_to: str = ""
    """OpenAI model to fine-tune on it; empty: none. The key is read from OPENAI_API_KEY."""
    base_url: str = ""
    """Another server of the same protocol."""
    suffix: str = "gym-text"
    """Part of the tuned model's name."""
    poll: float = 30.0
    """Seconds between two looks at the job's status."""
    timeout: float = 86_400.0
    """Most seconds to wait; the job itself goes on."""


def openai_lines(rows: Sequence[Row]) -> list[str]:
    """Return rows as lines of JSON: chats, in which only messages of weight 1 are learnt.

    A decision whose label differs from the message that was played becomes a chat of its own.
    """
    lines = []
    for row in rows:
        messages: list[dict[str, Any]] = []
        for place, (message, label) in enumerate(zip(row.messages, row.labels, strict=True)):
            if message["role"] != "assistant":
                messages.append(dict(message))
                continue
            if label and label != message["content"]:
                before = [{**m, "weight": 0} if m["role"] == "assistant" else m for m in row.messages[:place]]
                lines.append(json.dumps({"messages": [*before, {"role": "assistant", "content": label, "weight": 1}]}))
            messages.append({**message, "weight": int(bool(label) and label == message["content"])})
        if any(message.get("weight") for message in messages):
            lines.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return lines


def submit(
    file: str | Path, model: str, *, base_url: str = "", suffix: str = "gym-text", poll: float = 30, timeout: float = 86_400
) -> str:
    """Upload a file, fine-tune a model of OpenAI on it, wait, and return the tuned model's name.

    Raises:
        PolicyError: If the job fails, or is not done in time.
    """
    openai = import_extra("openai", "openai")
    try:
        client = openai.OpenAI(base_url=base_url or None)
        with Path(file).open("rb") as data:
            uploaded = client.files.create(file=data, purpose="fine-tune")
        job = client.fine_tuning.jobs.create(model=model, training_file=uploaded.id, suffix=suffix)
        end = time.monotonic() + timeout
        while job.status not in _OVER:
            if time.monotonic() > end:
                raise PolicyError(f"fine-tuning {job.id}: expected an end within {timeout:g} s; it is {job.status}, and goes on.")
            time.sleep(poll)
            job = client.fine_tuning.jobs.retrieve(job.id)
    except openai.OpenAIError as error:
        raise PolicyError(f"fine-tuning: {type(error).__name__}: {error}") from error
    if job.status != "succeeded" or not job.fine_tuned_model:
        reason = job.error.message if job.error else "no reason given"
        raise PolicyError(f"fine-tuning {job.id}: expected success; it is {job.status}: {reason}.")
    return str(job.fine_tuned_model)


def run(config: ExportConfig) -> str:
    """Write the file, submit it if the settings say so, and return the result in one line."""
    path = Path(config.file)
    if path.exists():
        raise UsageError(f"{path}: expected a new file; it is there already. Name another one, or remove it.")
    lines = openai_lines(read_rows(config.data))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(lines) + "\n")
    if not config.submit_to:
        return f"{len(lines)} chats: {path}"
    options: dict[str, Any] = {"base_url": config.base_url, "suffix": config.suffix, "poll": config.poll, "timeout": config.timeout}
    return f"The tuned model: openai:{submit(path, config.submit_to, **options)}"
