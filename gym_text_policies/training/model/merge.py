"""`merge`: an adapter and its base become one model, for programs that take no adapter.

The model's folder keeps the adapter's record. So `load_policy` asks the model as the adapter was asked in training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gym_text.errors import UsageError
from gym_text_policies.backends.local.adapters import RECORD, base_and_adapter, record_of, short, template_of
from gym_text_policies.files.folders import replace_folder, writing_tensors
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.training.model.lora import add_lora, load_base


@dataclass(frozen=True)
class MergeConfig:
    """Merge an adapter into its base and save the model, for programs that cannot load adapters."""

    model: str
    """The adapter: its folder, the folder of the run that made it, or adapters/NAME."""
    folder: str
    """New folder for the model."""


def merge(config: MergeConfig) -> Path:
    """Write the merged model in float32, with its tokenizer, and return its folder.

    Raises:
        UsageError: If there is no such adapter, or the folder exists.
        StoreError: If the folder cannot be written.
    """
    folder = Path(config.folder)
    if folder.exists():
        raise UsageError(f"{folder}: expected a new folder; it is there already. Name another one, or remove it.")
    name, adapter = base_and_adapter(config.model)
    if not adapter:
        raise UsageError(f"model: expected an adapter, as gym-text sft makes it; {config.model!r} is none.")
    base, tokenizer = load_base(name, chat_template=template_of(adapter))
    try:
        merged = add_lora(base, adapter=adapter).merge_and_unload()
    except RuntimeError as error:
        raise UsageError(f"model: expected an adapter that can be merged into its base {name!r}; {short(error)}") from error

    def save(target: Path) -> None:
        with writing_tensors(folder):
            merged.save_pretrained(target)
            tokenizer.save_pretrained(target)
            write_atomically(target / RECORD, json.dumps(record_of(config.model), indent=2) + "\n")

    replace_folder(folder, save)
    return folder
