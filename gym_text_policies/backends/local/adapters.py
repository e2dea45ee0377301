"""What identifies a model: the digest of its files, or its commit on the hub; for an adapter also its base, and how it is asked."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra, unknown_choice
from gym_text_policies.backends.local import smollm2
from gym_text_policies.files.digests import digest_of, file_digest
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
_SHOWN = 300
"""Most characters of another library's message that an error shows."""
EMBEDDED = "smollm2"
_READ = (".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken", ".bpe", ".spm", ".codes", ".vocab")
"""Ends of the names of files that transformers may read: configuration, weights, tokenizer, template. It runs no ``.py`` file."""
_UNREAD = ("training.json", "trainer_state.json")
"""Records of training, which change nothing of the model."""


def content_of(base: str) -> tuple[str, str]:
    """Return what identifies a model that is not an adapter: the digest of its files, or else its commit on the hub.

    Both are empty for the embedded model, as long as its wheel has the file that this package knows. The base is as in `Source`.

    Raises:
        UsageError: If it cannot be read.
    """
    if base == EMBEDDED:
        digest = file_digest(smollm2.smollm2_file())
        return ("" if digest == smollm2.DIGEST else digest), ""
    folder = Path(base.removeprefix("hf:"))
    return (_folder_digest(folder), "") if folder.is_dir() else ("", _commit(base))


def _folder_digest(folder: Path) -> str:
    """Return a digest of all files in a model's folder that transformers may read."""
    files = {path.name: path for path in folder.iterdir() if path.suffix in _READ and path.name not in _UNREAD and path.is_file()}
    templates = {f"{path.parent.name}/{path.name}": path for path in folder.glob("additional_chat_templates/*.jinja")}
    return digest_of(files | templates)


def _commit(base: str) -> str:
    """Return the commit of a repository on the hub; without a connection, the commit of the copy in the hub's cache."""
    hub: Any = import_extra("transformers.utils.hub", "local")
    name = base.removeprefix("hf:")
    try:
        file = hub.cached_file(name, "config.json")
        return str(hub.extract_commit_hash(file, None))
    except (OSError, ValueError) as error:
        raise UsageError(f"model {base!r}: expected one that can be loaded; {short(error)}") from error


def adapter_folder(name: str | Path) -> Path | None:
    """Return the folder of the adapter that a name stands for; None if the name is not an adapter's.

    The folder of a training run stands for the adapter that the run has made.

    Raises:
        UsageError: If the name begins with ``adapters/``, and there is neither such a folder nor such a shipped adapter.
    """
    name, folder = str(name), Path(name)
    if name.startswith("adapters/") and not folder.is_dir():
        names = [f"adapters/{path.parent.name}" for path in sorted(ADAPTERS.glob(f"*/{CONFIG}"))]
        if name not in names:
            raise unknown_choice("adapter", name, names)
        return ADAPTERS / folder.name
    return next((path for path in (folder, folder / "adapter") if (path / CONFIG).is_file()), None)


def record_of(name: str) -> dict[str, Any]:
    """Return the record of the training of an adapter, or of a model that an adapter was merged into; empty if there is none.

    Raises:
        UsageError: If the record is damaged.
    """
    folder = adapter_folder(name) or Path(name)
    return _json(folder / RECORD, name) if (folder / RECORD).is_file() else {}


@functools.cache
def warn_without_record(name: str) -> None:
    """Log a warning, once, if an adapter's folder does not say how its model was asked in training."""
    if adapter_folder(name) and not record_of(name):
        _logger.warning(
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

    Raises:
        UsageError: If there is no adapter, or it is incomplete.
    """
    folder = adapter_folder(name) or Path(name)
    settings = _json(folder / CONFIG, str(folder))
    base = settings.get("base_model_name_or_path")
    if isinstance(base, str) and _EMBEDDED.fullmatch(Path(base).name):
        base = EMBEDDED
    if not isinstance(base, str) or not base:
        raise UsageError(
            f"adapter {str(folder)!r}: expected base_model_name_or_path in {CONFIG}, the name of its base; got {base!r}."
        )
    if settings.get("megatron_config") or settings.get("megatron_core") not in (None, "megatron.core"):  # peft imports it
        raise UsageError(f"adapter {str(folder)!r}: expected a {CONFIG} that names no code; it has one for Megatron.")
    if not (folder / WEIGHTS).is_file():
        others = ", ".join(sorted(path.name for path in folder.glob("adapter_model.*"))) or "none"
        got = f"expected weights in {WEIGHTS}; got {others}"
        raise UsageError(f"adapter {str(folder)!r}: {got}. Pickles are never loaded; save as safetensors.")
    digest = hashlib.sha256((folder / CONFIG).read_bytes() + (folder / WEIGHTS).read_bytes())
    digest.update(template_of(folder).encode())
    return base, digest.hexdigest()[:16]


def is_adapted(module: Any) -> bool:
    """Return whether a module of a model is one that peft has changed or replaced."""
    return hasattr(module, "base_layer") or hasattr(module, "unload_and_optionally_merge_module")


def template_of(folder: str | Path) -> str:
    """Return the chat template in an adapter's folder; empty if the adapter uses the base's."""
    path = Path(folder) / TEMPLATE
    return read_template(path) if folder and path.exists() else ""


def read_template(path: str | Path) -> str:
    """Return the text of a chat template's file.

    Args:
        path: The file, or ``tools`` for the template with tools that ships; see `TOOLS`.

    Raises:
        UsageError: If it cannot be read, or is empty.
    """
    ships = str(path) == TOOLS.stem
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
        UsageError: If the adapter is incomplete.
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
