"""`load_backend`: from one string to a language model."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gym_text.errors import check_options, import_extra, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.own_models import is_own, load_own_backend
from gym_text_policies.backends.provider_table import PROVIDERS, model_names
from gym_text_policies.backends.threads import settle_threads

_POLICIES = ("random", "gold", "sb3:FILE")
"""Policies that ask no language model: an error for an unknown name lists them, too."""


def load_backend(model: str | Backend, *, others: Collection[str] = (), when_asked: bool = False, **options: Any) -> Backend:
    """Return a language model by its name.

    Args:
        model: In this process: ``smollm2`` (the embedded model), ``hf:OWNER/NAME``, the folder of a model or an adapter, or
            ``adapters/NAME`` (an adapter that ships). By a provider's client: ``openai:MODEL`` and the other rows of `PROVIDERS`,
            among them ``scripted:go left|go right`` for tests, which gives these answers in turn. Of your own: ``module:Name``,
            see `load_own_backend`. A `Backend` is returned as it is.
        others: Names of options that the caller takes itself; an error for an unknown option lists them too.
        when_asked: Whether the weights of a model in this process are read when it is first asked, not now.
        options: Of the backend's class; for a provider also those of `RemoteOptions`.

    Raises:
        UsageError: If there is no such model, or it does not take the options.
        MissingDependencyError: If the backend's package is not installed.
    """
    if isinstance(model, Backend):
        check_options("policy of a Backend", options, list(others))
        return model
    prefix, _, name = model.partition(":")
    if prefix in PROVIDERS:
        kind = PROVIDERS[prefix].load()
        check_options(model, options, [*others, *kind.option_names()])
        backend: Backend = kind(name, **options)
        return backend
    if model == "smollm2" or prefix == "hf" or model.startswith("adapters/") or Path(model).is_dir():
        settle_threads()
        for module in ("torch", "transformers"):
            import_extra(module, "local")
        from gym_text_policies.backends.local.loading import load_transformers, load_when_asked

        check_options(model, options, [*others, *list(inspect.signature(load_transformers).parameters)[1:]])
        return load_when_asked(model, **options) if when_asked else load_transformers(model, **options)
    if is_own(model) and find_spec(prefix.partition(".")[0]):
        return load_own_backend(model, options, others)
    raise unknown_choice("model", model, [*model_names(), *_POLICIES])
