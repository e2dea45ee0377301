"""Adapters in folders, both those that ship and those that training made: their base, their digest, and how they are asked."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra, unknown_choice
from gym_text_policies.files.safe_files import check_regular

_logger = logging.getLogger(__name__)
ADAPTERS = Path(__file__).parents[2] / "training" / "adapters"
"""The adapters that ship."""
CONFIG, WEIGHTS, RECORD = "adapter_config.json", "adapter_model.safetensors", "training.json"
"""Files of an adapter: peft's configuration, which names the base; the weights; and a record of how it was trained and is asked."""
TEMPLATE = "chat_template.jinja"
"""A file that an adapter may have: a chat template that replaces the base's."""
TOOLS = Path(__file__).with_name("tools.jinja")
"""A chat template with tools, for models whose own has none."""
BASE = "base_content"
"""Key of the record: the digest or the commit of the base that the adapter was trained on."""
_EMBEDDED = re.compile(r"smollm2-135m-instruct-[0-9a-f.]+")
"""Name of the folder, in any user's cache, in which other trainers find the embedded model; see `smollm2_folder`."""
_OF_TRAINERS = ("training_args.bin", "trainer_state.json")
"""Files that transformers' trainers write beside a model."""
_OF_RUNS = ("best", "checkpoint-*", "round-*/sft/adapter")
"""Where a training run keeps adapters other than its last one."""
_MOST_NAMED = 5
_SHOWN = 300
"""Most characters of another library's message that an error shows."""


def adapter_folder(name: str | Path) -> Path | None:
    """Return the folder of the adapter that a name stands for; None if the name is not an adapter's.

    The folder of a training run stands for the adapter that the run has made.

    Raises:
        UsageError: If the name begins with ``adapters/``, and there is neither such a folder nor such a shipped adapter; or if it
            is the folder of a training run that has made no adapter of its own.
    """
    name = str(name)
    shipped = ADAPTERS / name.removeprefix("adapters/")
    if name.startswith("adapters/") and not Path(name).is_dir():
        if name.count("/") > 1 or not (shipped / CONFIG).is_file():
            raise unknown_choice("adapter", name, [f"adapters/{path.parent.name}" for path in sorted(ADAPTERS.glob(f"*/{CONFIG}"))])
        return shipped
    return Path(name) if (Path(name) / CONFIG).is_file() else _adapter_of_run(Path(name))


@functools.cache
def _adapter_of_run(folder: Path) -> Path | None:
    """Return the adapter that a training run has made; None if the folder is not that of a training run."""
    if not folder.is_dir() or "model_type" in _read_json(folder / "config.json"):
        return None
    if (folder / "adapter" / CONFIG).is_file():
        return folder / "adapter"
    others = [path.parent for pattern in _OF_RUNS for path in sorted(folder.glob(f"{pattern}/{CONFIG}"))]
    others = [path for path in others if not path.suffix]  # an adapter that is still being written ends with .partial
    if not others:
        return None
    named = ", ".join(map(str, others[-_MOST_NAMED:]))
    raise UsageError(f"model: expected a model or an adapter; {folder} is the folder of a run. Name one of its adapters: {named}.")


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if there is none."""
    try:
        data = json.loads(check_regular(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def record_of(name: str) -> dict[str, Any]:
    """Return the record of the training of an adapter, or of a model that an adapter was merged into; empty if there is none.

    Raises:
        UsageError: If the record is damaged.
    """
    folder = adapter_folder(name) or Path(name)
    return _json(folder / RECORD, name) if (folder / RECORD).is_file() else {}


@functools.cache
def warn_without_record(name: str) -> None:
    """Log, once, that a folder does not say how its model was asked in training; loudly if a trainer has written it."""
    folder = Path(name)
    if not folder.is_dir() or record_of(name):
        return
    trained = adapter_folder(name) is not None or any((folder / file).is_file() for file in _OF_TRAINERS)
    if trained or (folder / "config.json").is_file():
        _logger.log(
            logging.WARNING if trained else logging.INFO,
            "%s has no record of how it was trained (%s). So it is asked like a model that was not trained here: in words, by the "
            "strategy zero_shot. A model that was trained by calls of a tool needs mode='tool' (--modes tool), and one that was "
            "trained with other prompts needs their strategy and history. trl_record writes the record of a model of TRL.",
            *(name, RECORD),
        )


def warn_other_base(name: str | Path, content: str) -> None:
    """Warn if an adapter was trained on other weights than its base has now; `content` is the base's digest or commit."""
    learnt_on = record_of(str(name)).get(BASE)
    if isinstance(learnt_on, str) and learnt_on != content:
        _logger.warning(
            "adapter %s: its base has other weights (%s) than it was trained on (%s); what it has learnt may not fit them.",
            *(name, content[:16] or "those of the embedded model", learnt_on[:16]),
        )


def read_adapter(name: str | Path) -> tuple[str, str]:
    """Return the name of an adapter's base, and a digest of its configuration, weights and chat template.

    Args:
        name: Its folder, or ``adapters/NAME``.

    Raises:
        UsageError: If there is no adapter, or it is incomplete.
    """
    folder = adapter_folder(name) or Path(name)
    import_extra("torch", "local")
    from safetensors import SafetensorError, safe_open

    settings = _json(folder / CONFIG, str(folder))
    base = settings.get("base_model_name_or_path")
    if isinstance(base, str) and _EMBEDDED.fullmatch(Path(base).name):
        base = "smollm2"
    if not isinstance(base, str) or not base:
        raise UsageError(
            f"adapter {str(folder)!r}: expected base_model_name_or_path in {CONFIG}, the name of its base; got {base!r}."
        )
    if settings.get("megatron_config") or settings.get("megatron_core") not in (None, "megatron.core"):  # peft imports it
        raise UsageError(f"adapter {str(folder)!r}: expected a {CONFIG} that names no code; it has one for Megatron.")
    if not (folder / WEIGHTS).is_file():
        others = ", ".join(sorted(path.name for path in folder.glob("adapter_model.*"))) or "none"
        raise UsageError(
            f"adapter {str(folder)!r}: expected weights in {WEIGHTS}; got {others}. Pickles are never loaded; save as safetensors."
        )
    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        raise UsageError(
            f"adapter {str(folder)!r}: expected a whole {WEIGHTS}; it is cut off or damaged ({short(error)}). Make it anew."
        ) from error
    digest = hashlib.sha256((folder / CONFIG).read_bytes() + (folder / WEIGHTS).read_bytes())
    digest.update(template_of(folder).encode())
    return base, digest.hexdigest()[:16]


def template_of(folder: str | Path) -> str:
    """Return the chat template in an adapter's folder; empty if the adapter uses the base's."""
    path = Path(folder) / TEMPLATE
    return read_template(path) if folder and path.exists() else ""


def read_template(path: str | Path) -> str:
    """Return the text of a chat template's file.

    Args:
        path: The file, or ``tools`` for the template with tools that ships; see `TOOLS`.

    Raises:
        UsageError: If it cannot be read, or is empty; or if it is ``tools``, and the working folder has a file of that name.
    """
    ships = str(path) == TOOLS.stem
    if ships and Path(path).is_file():
        raise UsageError(
            "chat template: expected tools, the one that ships, or a file; the working folder has a file tools, too. Write ./tools "
            "for this file, or rename it to have the one that ships."
        )
    try:
        text = check_regular(TOOLS if ships else Path(path)).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"chat template: expected a file of text; {short(error)}") from error
    if not text.strip():
        raise UsageError(f"chat template: expected a template in {path}; it is empty.")
    return text


def base_and_adapter(model: str) -> tuple[str, str]:
    """Return the name of a model's base, and the folder of its adapter; the latter is empty if the model is a base itself.

    Raises:
        UsageError: If the adapter is incomplete, or `model` is the folder of a run that has made none.
    """
    folder = adapter_folder(model)
    return (read_adapter(folder)[0], str(folder)) if folder else (model, "")


def _json(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(check_regular(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"adapter {name!r}: expected JSON in {path.name}; {short(error)}") from error
    if not isinstance(data, dict):
        raise UsageError(f"adapter {name!r}: expected a JSON object in {path.name}; got {type(data).__name__}.")
    return data


def short(error: BaseException) -> str:
    """Return another library's message in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " …"
