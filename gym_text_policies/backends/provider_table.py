"""The providers of language models: what may stand before the colon of a model's name, one row each.

The names that commands, YAML files and errors offer, the class that answers, and the key that a server is given all follow from
this table. A new provider needs the file of its class, and a row here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Provider:
    """One row: how a model's name ``provider:MODEL`` is read."""

    backend: str
    """``module:Class`` of the backend, which is called with the model and its options. The module is imported only when the
    provider is first used."""
    models: str
    """What stands behind the colon, as help and errors show it."""
    extra: str = ""
    """The extra of this package that installs the provider's client; empty if there is none."""
    key_variable: str = ""
    """Environment variable of the provider's key; empty if it has no key."""
    key_host: str = ""
    """The host that the key belongs to. A file of settings cannot send the key to another host unless the user allows it."""
    address: str = ""
    """The server's address if the user gives none; empty if this package does not know one."""
    address_variable: str = ""
    """Environment variable that replaces this address."""
    trusted_options: tuple[str, ...] = ()
    """Options that name a file which says where requests and keys go. A file of settings may not name one by itself."""

    def load(self) -> Any:
        """Import and return the class."""
        module, _, name = self.backend.partition(":")
        return getattr(importlib.import_module(module), name)


_OURS = "gym_text_policies.backends"
PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        f"{_OURS}.providers.openai:OpenAIBackend",
        models="MODEL",
        extra="openai",
        key_variable="OPENAI_API_KEY",
        key_host="api.openai.com",
        address="https://api.openai.com/v1",
        address_variable="OPENAI_BASE_URL",
    ),
    "ollama": Provider(
        f"{_OURS}.providers.ollama:OllamaBackend",
        models="MODEL",
        extra="ollama",
        key_variable="OLLAMA_API_KEY",
        key_host="ollama.com",
    ),
    "tensorzero": Provider(
        f"{_OURS}.providers.tensorzero:TensorZeroBackend",
        models="FUNCTION",
        extra="tensorzero",
        key_variable="TENSORZERO_API_KEY",
        trusted_options=("config_file",),
    ),
    "scripted": Provider(f"{_OURS}.scripted:ScriptedBackend", models="A|B"),
}
"""The providers, by the word before the colon of a model's name. The last row is for tests: it gives the answers in the model's
name in turn."""


def prefixes() -> tuple[str, ...]:
    """Return the words before the colon of a language model's name."""
    return ("hf", *PROVIDERS)


def model_names() -> tuple[str, ...]:
    """Return the names that a language model may have, as help and errors show them."""
    remote = (f"{prefix}:{provider.models}" for prefix, provider in PROVIDERS.items())
    return ("smollm2", "hf:OWNER/NAME", "a folder", "adapters/NAME", *remote, "module:Name")


def names_for_help() -> str:
    """Return a sentence with the names that a language model may have."""
    return f"Language models: {', '.join(model_names())}."
