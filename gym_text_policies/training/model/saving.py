"""Writing adapters and tensors. Only finite numbers are written. A folder appears under its name only when it is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local.adapters import BASE, CONFIG, RECORD, TEMPLATE, WEIGHTS, record_of
from gym_text_policies.files.folders import replace_folder, writing_tensors
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.training.model.finite import check_weights


def save_adapter(
    model: Any, folder: str | Path, record: Mapping[str, Any], *, name: str = "default", replace: bool = False
) -> None:
    """Save an adapter: 16-bit safetensors, its configuration, and its record; the folder is written whole or not at all.

    Raises:
        UsageError: If the folder is not empty, and `replace` does not allow that.
        RunError: If a weight is not finite.
        StoreError: If the folder cannot be written.
    """
    torch = import_extra("torch", "train")
    weights, config, template = adapter_of(model, name)
    content = getattr(model, "base_content", "")
    record = {**record, BASE: content} if content else record
    weights = {key: tensor.to(torch.float16) for key, tensor in weights.items()}
    write_adapter(folder, weights, config, template, record, replace=replace)


def made(folder: str | Path, what: str = "adapter") -> str:
    """Return the sentence that a command prints about the folder it has made."""
    said = [f"The {what}: {folder}; load_policy takes this folder as a model."]
    for row in record_of(str(folder)).get("test", ()) if what == "adapter" else ():
        success = "" if row["success"] is None else f"success {row['success']:.2f}, "
        said.append(f"{row['environment']}, {row['episodes']} episodes of the test fold: {success}return {row['return']:.3g}.")
    return "\n".join(said)


def adapter_of(model: Any, name: str = "default") -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the weights of a model's adapter in full precision, its configuration, and its chat template if it has one.

    The configuration names the base as the user does.
    """
    peft = import_extra("peft", "train")
    weights = peft.get_peft_model_state_dict(model, adapter_name=name)
    config = model.peft_config[name].to_dict() | {"inference_mode": True, "base_model_name_or_path": model.base_name}
    config["target_modules"] = sorted(config["target_modules"])
    plain = {key: value for key, value in config.items() if isinstance(value, str | int | float | bool | list | dict | None)}
    return weights, plain, getattr(model, "chat_template", "")


def write_adapter(
    folder: str | Path,
    weights: Mapping[str, Any],
    config: Mapping[str, Any],
    template: str,
    record: Mapping[str, Any],
    *,
    replace: bool = False,
) -> None:
    """Write the files of an adapter; the folder is written whole or not at all.

    Args:
        folder: The new folder.
        weights: Tensors by peft's names.
        config: Configuration of peft, in which ``base_model_name_or_path`` is a name that `load_base` takes.
        template: A chat template that replaces the base's, or an empty text.
        record: How the model is prompted, and how the adapter was made.
        replace: Whether the folder may exist already. Its files stay until the new folder is complete.

    Raises:
        UsageError: If the folder is not empty, and `replace` does not allow that.
        RunError: If a weight is not finite.
        StoreError: If the folder cannot be written.
    """
    folder = Path(folder)
    if not replace and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: expected a new folder; there is something in it. Name another one, or remove it.")
    replace_folder(folder, lambda target: write_files(target, weights, config, template, record))


def write_files(
    folder: Path, weights: Mapping[str, Any], config: Mapping[str, Any], template: str, record: Mapping[str, Any]
) -> None:
    """Write the files of an adapter into a folder; see `write_adapter` for the arguments and errors."""
    write_tensors(weights, folder / WEIGHTS)
    write_atomically(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    if template:
        write_atomically(folder / TEMPLATE, template)
    write_atomically(folder / RECORD, json.dumps(record, indent=2) + "\n")


def write_tensors(tensors: Mapping[str, Any], path: Path) -> None:
    """Write tensors as safetensors.

    Raises:
        RunError: If a tensor is not finite.
        StoreError: If the file cannot be written.
    """
    import_extra("torch", "train")
    from safetensors.torch import save_file

    check_weights(path, tensors)
    with writing_tensors(path):
        save_file({key: tensor.contiguous().cpu() for key, tensor in tensors.items()}, path)
