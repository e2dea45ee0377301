"""`load_backend`: from one string to a language model."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import check_options, import_extra, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.threads import settle_threads


def load_backend(model: str | Backend, *, others: Collection[str] = (), when_asked: bool = False, **options: Any) -> Backend:
    """Return a language model by its name.

    Args:
        model: In this process: ``smollm2`` (the embedded model), ``hf:OWNER/NAME``, the folder of a model or an adapter, or
            ``adapters/NAME`` (an adapter that ships). By a provider's client: ``openai:MODEL``, ``ollama:MODEL``,
            ``tensorzero:FUNCTION`` or ``tensorzero:FUNCTION::VARIANT``. For tests: ``scripted:go left|go right``, which gives these
            answers in turn. A `Backend` is returned as it is.
        others: Names of options that the caller takes itself; an error for an unknown option lists them too.
        when_asked: Whether the weights of a model in this process are read when it is first asked, not now.
        options: Of the backend's class; for a provider also those of `RemoteOptions`.

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
        settle_threads()
        for module in ("torch", "transformers"):
            import_extra(module, "local")
        from gym_text_policies.backends.local.loading import load_transformers, load_when_asked

        check_options(model, options, [*others, *list(inspect.signature(load_transformers).parameters)[1:]])
        return load_when_asked(model, **options) if when_asked else load_transformers(model, **options)
    known = ["random", "gold", "controller", "smollm2", "hf:OWNER/NAME", "adapters/NAME", "a folder", "module:Name", "sb3:FILE"]
    raise unknown_choice("model", model, [*known, "openai:MODEL", "ollama:MODEL", "tensorzero:FUNCTION", "scripted:A|B"])


def _remote(provider: str, model: str, options: Mapping[str, Any], others: Collection[str]) -> Backend:
    from gym_text_policies.backends.providers.options import SHARED_OPTIONS
    from gym_text_policies.backends.providers.remote import RemoteBackend

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
