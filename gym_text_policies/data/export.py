"""`export`: training data as chats in OpenAI's form, for TRL, and for trainers of decision models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_choice
from gym_text_policies.data.calls import as_openai_reads, as_template_reads, said_in, template_tools
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.preferences import preference_pairs
from gym_text_policies.data.questions import typed_questions
from gym_text_policies.data.rows import Row, answer_message
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.records import Message

Format = Literal["openai", "trl-sft", "trl-dpo", "systemone"]


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Write training data in other trainers' forms: chats as OpenAI has them, TRL's, or that of decision models."""

    format: Format = "openai"
    """Form of the file: openai (chats); trl-sft (a prompt and a completion for each answer); trl-dpo (a prompt, and the better and
    the worse answer of two episodes of a level); systemone (a state, a question with its options, and the right one)."""
    data: tuple[str, ...] = ("runs/data/rows",)
    """Datasets of gym-text collect: folders, or hf:OWNER/NAME of the hub."""
    file: str | None = None
    """File to write. By default it is named after the format, as in runs/data/openai.jsonl."""

    def __post_init__(self) -> None:
        check_choice("format", self.format, get_args(Format))


def openai_chats(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows as chats for OpenAI, in which only messages of weight 1 are learnt.

    Answers of the player stand in the player's own words, also where later prompts show them. If another label differs from the
    message that was played, the label becomes the last message of a separate chat. Thoughts are left out: the format has none.
    Calls of a tool are OpenAI's, and such a chat also has ``tools``.
    """
    chats = []

    def add(messages: Sequence[Message], weights: Sequence[int], tool: str) -> None:
        chats.append(as_openai_reads(messages, tool))
        for message, weight in zip(chats[-1]["messages"], weights, strict=True):
            if message["role"] == "assistant":
                message["weight"] = weight

    for row in rows:
        messages = row.messages
        if row.own_labels and not row.tool:
            messages = tuple(said | {"content": label or said["content"]} for said, label in zip(messages, row.labels, strict=True))
        learnt = [int(bool(label) and label == said_in(said)) for said, label in zip(messages, row.labels, strict=True)]
        for number, label in enumerate(row.labels):
            if label and not learnt[number]:
                add([*messages[:number], answer_message(label, calls=bool(row.tool))], [0] * number + [1], row.tool)
        if any(learnt):
            add(messages, learnt, row.tool)
    return chats


def completions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each answer of rows as a ``prompt`` and the ``completion`` to learn, as TRL's `SFTTrainer` and others read them.

    What a player did instead stands in later prompts, which do not count in the loss. A thought is ``reasoning_content`` of the
    completion. If the answers are calls of a tool, there are also ``tools``, as JSON in a text.
    """
    records = []
    for messages, answer, thought, tool in (example for row in rows for example in row.examples()):
        said = answer_message(answer, calls=bool(tool)) | ({"reasoning_content": thought} if thought else {})
        *prompt, completion = as_template_reads([*messages, said], tool)
        records.append({"prompt": prompt, "completion": [completion], **template_tools(tool)})
    return records


_RECORDS = {
    **{"openai": (openai_chats, "chats"), "trl-sft": (completions, "answers"), "trl-dpo": (preference_pairs, "pairs")},
    "systemone": (typed_questions, "questions"),
}
"""By the format what makes the records of its lines, and what a line is."""


def run(config: ExportConfig) -> str:
    """Write the file, and return the result in one line."""
    path = Path(config.file or f"runs/data/{config.format}.jsonl")
    if path.exists():
        raise UsageError(f"{path}: expected a new file; it is there already. Name another one, or remove it.")
    records_of, unit = _RECORDS[config.format]
    records = records_of([row for source in config.data for row in read_rows(source)])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
    return f"{len(records)} {unit}: {path}"
