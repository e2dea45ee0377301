"""Keys of providers: the environment variable that holds one, and the hosts that it belongs to."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from gym_text.errors import UsageError
from gym_text_policies.backends.provider_table import PROVIDERS, Provider
from gym_text_policies.settings.yaml_nodes import Node

_logger = logging.getLogger(__name__)
NO_KEY = "none"
"""What a client gets in place of a key if it requires one."""
_HOSTS = {
    "ANTHROPIC_API_KEY": "api.anthropic.com",
    "DEEPSEEK_API_KEY": "api.deepseek.com",
    "FIREWORKS_API_KEY": "api.fireworks.ai",
    "GEMINI_API_KEY": "generativelanguage.googleapis.com",
    "GROQ_API_KEY": "api.groq.com",
    "MISTRAL_API_KEY": "api.mistral.ai",
    "OPENROUTER_API_KEY": "openrouter.ai",
    "TOGETHER_API_KEY": "api.together.xyz",
    "TYPESAFE_API_KEY": "api.typesafe.ai",
    "XAI_API_KEY": "api.x.ai",
}
"""The host that each key belongs to, for servers with the protocol of a provider in `PROVIDERS`."""
_ADDRESS = re.compile(r"https://([A-Za-z0-9.-]+)(:\d+)?(/[\w.~/-]*)?")
"""An address that all clients read in the same way."""


def key_of(variable: str | None) -> str | None:
    """Return the key in an environment variable; None if it is not set, or no variable is named.

    Raises:
        UsageError: If this is not the name of a variable (it may be a key, so it is not shown), or its value cannot be a key.
    """
    if variable is None:
        return None
    if not isinstance(variable, str) or not re.fullmatch(r"[A-Z][A-Z0-9_]*", variable):
        raise UsageError("key_variable: expected the name of an environment variable, such as OPENAI_API_KEY; got another text.")
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{variable}: expected a key of plain characters in this environment variable; got others.")
    return key or None


def client_key(provider: str, variable: str | None) -> str | None:
    """Return the key to give to a provider's client.

    Without a key it is `NO_KEY` if the client would otherwise take one from the environment by itself.
    """
    return key_of(variable) or (NO_KEY if os.environ.get(PROVIDERS[provider].key_variable) else None)


def without_foreign_keys(settings: Mapping[str, Node]) -> Mapping[str, Node]:
    """Return a language model's settings, changed so that a file alone sends a key only to the provider that the key belongs to.

    Another server that a file names gets no key, unless its address stands in the provider's environment variable, such as
    OPENAI_BASE_URL; a warning says so. What the command line or a Python caller names has no location, and gets any key.

    Raises:
        UsageError: If the file names another file that says where keys go.
    """
    words = (settings.get(name, Node(None)).value for name in ("backend", "model"))
    provider = next((row for word in words if isinstance(word, str) and (row := PROVIDERS.get(word.partition(":")[0]))), None)
    options = settings.get("options", Node(None))
    if provider is None or not isinstance(options.value, dict):
        return settings
    for name in provider.trusted_options:
        if name in options.value and (where := options.value[name].location):
            raise UsageError(f"{where}{name}: expected it on the command line or from Python, because it says where keys go.")
    named, address = (options.value.get(name) for name in ("key_variable", "base_url"))
    where = next((part.location for part in (address, named) if part is not None and part.location), "")
    variable = provider.key_variable if named is None else named.value
    if not where or not variable:
        return settings
    usual = os.environ.get(provider.address_variable) or provider.address
    given = (address.plain() if address is not None else None) or usual
    if _belongs(str(variable), given, provider):
        return settings
    if os.environ.get(str(variable)):
        host = re.sub(r"^\w+://|[/?#].*$", "", str(given)) or "this server"
        _logger.warning(
            "%sno key is sent to %s, because only a file says so, and the key in %s is not known to be for it; to send one, give "
            "base_url and key_variable by --set or --options.",
            *(where, host, variable),
        )
    return {**settings, "options": Node({**options.value, "key_variable": Node(None)}, options.location)}


def _belongs(variable: str, address: object, provider: Provider) -> bool:
    """Return whether the key in a variable may go to an address that a file names."""
    if variable == provider.key_variable and address and address == os.environ.get(provider.address_variable):
        return True
    hosts = _HOSTS | {row.key_variable: row.key_host for row in PROVIDERS.values() if row.key_host}
    parts = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    return parts is not None and parts[1].lower() == hosts.get(variable)
