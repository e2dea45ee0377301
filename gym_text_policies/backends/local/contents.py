"""`content_of`: what identifies the model behind a name: a digest of its files, or the commit of its repository on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local import smollm2
from gym_text_policies.files.digests import digest_of, file_digest

EMBEDDED = "smollm2"
_READ = (".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken", ".bpe", ".spm", ".codes", ".vocab")
"""Ends of the names of files that transformers may read: configuration, weights, tokenizer, template. It runs no ``.py`` file."""
_UNREAD = ("training.json", "trainer_state.json")
"""Records of training, which change nothing of the model."""
_INDEX = "model.safetensors.index.json"


def content_of(base: str) -> tuple[str, str]:
    """Return what identifies a model that is not an adapter: the digest of its files, or else its commit on the hub.

    Both are empty for the embedded model, as long as its wheel has the file that this package knows.

    Args:
        base: ``smollm2``, ``hf:OWNER/NAME``, a name on the hub, or a folder.

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
    parts = {part: folder / part for part in _parts(folder / _INDEX) if (folder / part).is_file()}
    return digest_of(files | templates | parts)


def _parts(index: Path) -> set[str]:
    """Return the files of weights that an index names; they may lie in subfolders."""
    try:
        return set(map(str, json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()  # if there is an index, transformers says what is wrong with it


def _commit(base: str) -> str:
    """Return the commit of a repository on the hub; without a connection, the commit of the copy in the hub's cache."""
    hub: Any = import_extra("transformers.utils.hub", "local")
    name = base.removeprefix("hf:")
    try:
        file = hub.cached_file(name, "config.json")
        commit = hub.extract_commit_hash(file, None)
    except (OSError, ValueError) as error:
        raise UsageError(f"model {base!r}: expected one that can be loaded; {' '.join(str(error).split())[:300]}") from error
    if not commit:
        raise UsageError(f"model {base!r}: expected a snapshot of the hub, named by its commit; got {file!r}.")
    return str(commit)


def check_names_no_code(config: Any, name: str) -> None:
    """Raise `UsageError` if a model's configuration names a repository of kernels: transformers would load and run its code.

    Args:
        config: As transformers reads it.
        name: Of the model, for the error.
    """
    for part in (config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", ()))):
        for kind in ("attn_implementation", "experts_implementation"):
            chosen = getattr(part, f"_{kind}", None)
            if isinstance(chosen, str) and not chosen.replace("_", "").isalnum():
                raise UsageError(f"model {name!r}: expected a configuration that names no code; got {kind}={chosen!r}. Remove it.")
