"""Keys of providers: the environment variable that holds one, and the hosts that it belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gym_text.errors import UsageError
from gym_text_policies.backends.provider_table import PROVIDERS

NO_KEY = "none"
"""What a client gets in place of a key if it requires one."""
_HOSTS = {
    "ANTHROPIC_API_KEY": "api.anthropic.com",
    "DEEPSEEK_API_KEY": "api.deepseek.com",
    "GEMINI_API_KEY": "generativelanguage.googleapis.com",
    "GROQ_API_KEY": "api.groq.com",
    "MISTRAL_API_KEY": "api.mistral.ai",
    "OPENROUTER_API_KEY": "openrouter.ai",
    "TOGETHER_API_KEY": "api.together.xyz",
    "XAI_API_KEY": "api.x.ai",
}
"""The host that each key belongs to, for servers with the protocol of a provider in `PROVIDERS`."""
_ADDRESS = re.compile(r"(https?)://([A-Za-z0-9.-]+)(:\d+)?(/[\w.~/-]*)?")
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


def belongs(variable: str, address: object, also: Mapping[str, str]) -> bool:
    """Return whether the key in a variable may go to an address.

    Args:
        variable: The variable.
        address: The server's.
        also: For each variable the hosts that the user allows to get its key, as one text: hosts with commas between them, each
            with a port or without.
    """
    parts = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if parts is None:
        return False
    host, port = parts[2].lower(), parts[3] or ""
    allowed = also.get(variable, "").lower().split(",")
    return host in allowed or f"{host}{port}" in allowed or (parts[1] == "https" and host == host_of(variable))


def host_of(variable: str) -> str:
    """Return the host that a key belongs to, or an empty text if that is not known."""
    return next((row.key_host for row in PROVIDERS.values() if row.key_variable == variable), "") or _HOSTS.get(variable, "")
