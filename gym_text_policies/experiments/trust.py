"""`Trust`: what a configuration file may do beyond naming data. A file may come from anybody; a command line comes from the user.

Unless the command line allows it, a file may not name code or a server that receives an API key. Code is a module with an
environment, a policy or an opponent, or a file that contains code. The check comes before any value of the file is used, and before
any thread or process receives one. Values from the command line, or from mappings of a Python caller, have no location and are not
checked.
"""

from __future__ import annotations

import ast
import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.backends.own_models import is_own
from gym_text_policies.backends.provider_table import PROVIDERS, prefixes
from gym_text_policies.backends.providers.keys import belongs, host_of
from gym_text_policies.environments import is_module, module_and_id
from gym_text_policies.experiments.yaml_files import Node, from_plain
from gym_text_policies.policies.config import MODES

_logger = logging.getLogger(__name__)
_MODE = re.compile(rf"\s*,\s*({'|'.join(MODES)})$")
"""The mode that may follow an opponent's name."""
_PLACES = (("experiment", "name"), ("experiment", "parent"))
"""(section, key) of texts that are names of folders, even if they look like the name of a module."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a file may name besides data."""

    imports: tuple[str, ...] = field(default=(), metadata={"option": "import", "internal": True})
    """Code that the YAML file may name: modules (my_games), and files that contain code or decide where keys are sent (sb3:ppo.zip,
    a gateway's configuration), spelled as in the YAML file. Code that the command line names needs no permission."""
    key_hosts: Mapping[str, str] = field(default_factory=dict, metadata={"internal": True})
    """Servers that the YAML file may let receive an API key, as in OPENAI_API_KEY=llm.example.org. Otherwise a key is
    sent only to the provider that issued it."""

    @property
    def trust(self) -> Trust:
        """The two fields of this class, without those of a subclass."""
        return Trust(imports=self.imports, key_hosts=self.key_hosts)

    def checked(self, node: Node) -> Node:
        """Return the values of a file, changed so that a server gets no key of another provider.

        Args:
            node: The values. No list in it stands for several configurations, and a value that is in no file has no location.

        Raises:
            UsageError: If the file names code that is not allowed, or a server that may not receive a key.
        """
        for key, leaf, name in _named(node):
            if leaf.location:
                self._check_code(name, leaf, key)
        return self._without_keys(node, "")

    def _check_code(self, name: str, leaf: Node, key: str) -> None:
        if not any(name == allowed or name.startswith(f"{allowed}.") for allowed in self.imports):
            raise UsageError(
                f"{leaf.location}{key}: {leaf.value!r} runs code of {name}. A file needs permission for that; "
                f"--import {name} allows it."
            )

    def _without_keys(self, node: Node, provider: str) -> Node:
        if isinstance(node.value, list):
            return Node([self._without_keys(part, provider) for part in node.value], node.location)
        if not isinstance(node.value, dict):
            return node
        parts: Mapping[str, Node] = node.value
        provider = next((name for key in ("backend", "model") if (name := _provider(parts.get(key)))), provider)
        if parts.keys() & {"base_url", "key_variable"}:
            parts = self._with_own_key(parts, provider)
        return Node({key: self._without_keys(part, provider) for key, part in parts.items()}, node.location)

    def _with_own_key(self, parts: Mapping[str, Node], provider: str) -> Mapping[str, Node]:
        """Return a backend's options, changed so that its server gets no key of another provider."""
        address, named = parts.get("base_url"), parts.get("key_variable")
        in_file = next((part for part in (address, named) if part is not None and part.location), None)
        if in_file is None or (named is not None and named.value is None):
            return parts
        row = PROVIDERS.get(provider)
        own_variable = row.key_variable if row else ""
        variable = str(named.value) if named is not None else own_variable
        default = (os.environ.get(row.address_variable) or row.address) if row else ""
        address_given = (address.plain() if address is not None else None) or default
        addresses = address_given if isinstance(address_given, list) else [address_given]
        if variable == own_variable and address_given == default:
            return parts
        others = [url for url in addresses if not belongs(variable, url, self.key_hosts)]
        if not others:
            return parts
        host = re.sub(r"^\w+://|[/?#].*$", "", str(others[0])) or "HOST"
        allow = f"--key-hosts {variable}={host}"
        if named is not None:
            owner = f"belongs to {host_of(variable)}" if host_of(variable) else "belongs to no provider that is known"
            raise UsageError(f"{in_file.location}key_variable: {variable} {owner} and does not go to {host}; {allow} allows it.")
        if os.environ.get(variable):
            _logger.warning(
                "%sno key is sent to %s, because only the file names this server; %s sends the key.", in_file.location, host, allow
            )
        return {**parts, "key_variable": Node(None)}


TRUST_OPTIONS = tuple(field.name for field in dataclasses.fields(Trust))
"""Names of the two fields."""


def imports_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the `Trust.imports` with which a configuration can be read from a file."""
    return tuple(sorted({name for _, _, name in _named(from_plain(config))}))


def code_in(text: str, key: str = "") -> Iterator[str]:
    """Yield the code that a text names if it is the name of an environment, a policy or an opponent: modules, or ``sb3:FILE``.

    >>> list(code_in("my_games:Maze-v0?opponent=my_policies:Mine,choose")), list(code_in("openai:gpt-6-luna"))
    (['my_games', 'my_policies'], [])

    Args:
        text: A value of a file.
        key: Its key.
    """
    environment = key in ("name", "environment")
    if any(key in row.trusted_options for row in PROVIDERS.values()) or (text.startswith("sb3:") and not environment):
        yield text
        return
    name, _, query = text.partition("?")
    for policy in (text, _MODE.sub("", text)):
        if is_own(policy):
            yield policy.partition(":")[0]
            break
    else:
        module, _ = module_and_id(name)
        if module and is_module(module) and (environment or name.partition(":")[0] not in prefixes()):
            yield module
    for pair in query.split("&") if query else ():
        yield from code_in(_literal(pair.partition("=")[2]))


def _named(node: Node) -> Iterator[tuple[str, Node, str]]:
    """Yield (key, value, name of the code) for each value that names code."""
    for section, key, leaf in _leaves(node):
        if isinstance(leaf.value, str) and (section, key) not in _PLACES:
            for name in code_in(leaf.value, key):
                yield key, leaf, name


def _leaves(node: Node, section: str = "", key: str = "") -> Iterator[tuple[str, str, Node]]:
    """Yield (section, key, scalar). A model beside a ``backend`` that is a provider gets its prefix, as in ``openai:MODEL``."""
    if isinstance(node.value, dict):
        backend = node.value.get("backend", Node(None)).value
        for name, part in node.value.items():
            whole = name == "model" and isinstance(backend, str) and backend in prefixes()
            yield from _leaves(Node(f"{backend}:{part.value}", part.location) if whole else part, key, name)
    elif isinstance(node.value, list):
        for part in node.value:
            yield from _leaves(part, section, key)
    else:
        yield section, key, node


def _provider(node: Node | None) -> str:
    name = node.value.partition(":")[0] if node is not None and isinstance(node.value, str) else ""
    return name if name in PROVIDERS and PROVIDERS[name].key_variable else ""


def _literal(text: str) -> str:
    """Return the value of an argument in an environment's name if it is a text, else an empty text."""
    try:
        value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str) else ""
