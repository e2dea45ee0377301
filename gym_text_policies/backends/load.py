"""`load_backend`: from one string to a language model."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import check_options, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.scripted import ScriptedBackend


def load_backend(model: str | Backend, *, others: Collection[str] = (), **options: Any) -> Backend:
    """Return a language model by its name.

    Args:
        model: ``smollm2`` (the embedded one), ``hf:OWNER/NAME``, a folder (of a model or an adapter) or ``adapters/NAME`` (one that
            ships), in this process. ``openai:MODEL``,
            ``ollama:MODEL``, ``tensorzero:FUNCTION`` or ``tensorzero:FUNCTION::VARIANT``, by their clients.
            ``scripted:go left|go right``, answers in turn. Or a `Backend`, returned as it is.
        others: Options that the caller takes itself; they are named where one is misspelt.
        options: Of that backend's class; of the clients also those of `RemoteOptions`.

    Raises:
        UsageError: If there is no such model, or the options are not its own.
        MissingDependencyError: If the backend's package is not installed.
    """
    if isinstance(model, Backend):
        check_options("policy of a Backend", options, list(others))
        return model
    provider, _, name = model.partition(":")
    if provider in ("openai", "ollama", "tensorzero"):
        return _remote(provider, name, options, others)
    if provider == "scripted":
        check_options(model, options, list(others))
        return ScriptedBackend(name.split("|"), model)
    if model == "smollm2" or provider == "hf" or model.startswith("adapters/") or Path(model).is_dir():
        from gym_text_policies.backends.local.models import load_transformers

        check_options(model, options, [*others, *list(inspect.signature(load_transformers).parameters)[1:]])
        return load_transformers(model, **options)
    known = ["random", "gold", "controller", "smollm2", "hf:OWNER/NAME", "adapters/NAME", "a folder"]
    raise unknown_choice("model", model, [*known, "openai:MODEL", "ollama:MODEL", "tensorzero:FUNCTION", "scripted:A|B"])


def _remote(provider: str, model: str, options: Mapping[str, Any], others: Collection[str]) -> Backend:
    from gym_text_policies.backends.providers.remote import SHARED_OPTIONS, RemoteBackend

    kind: type[RemoteBackend]
    if provider == "openai":
        from gym_text_policies.backends.providers.openai import OpenAIBackend as kind
    elif provider == "ollama":
        from gym_text_policies.backends.providers.ollama import OllamaBackend as kind
    else:
        from gym_text_policies.backends.providers.tensorzero import TensorZeroBackend as kind
    own = [name for name in inspect.signature(kind).parameters if name not in ("model", "options")]
    check_options(f"{provider}:{model}", options, [*others, *own, *SHARED_OPTIONS])
    return kind.of(model, options)
