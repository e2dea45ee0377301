"""Make the environment of a stored episode again. A record chooses the game; it imports no module and reads no file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from gym_text.errors import UsageError
from gym_text.registration import HEAVY, WORDS
from gym_text_policies.environments import import_module, make_environment, module_and_id, parse_environment

_SHIPPED = ("gym_text", "gymnasium")
_MOST = 2000
"""Most characters of all arguments together."""


def import_modules(names: Iterable[str]) -> None:
    """Import the modules that the user names, so that their environments are registered.

    Raises:
        UsageError: If one cannot be imported.
    """
    for name in names:
        import_module(name, f"import {name!r}: expected a module")


def remake_environment(record: Mapping[str, Any], *, imports: Iterable[str] = (), **arguments: Any) -> gym.Env[Any, Any]:
    """Make the environment of a stored episode, without the wrappers of its policy. Only `imports` are imported.

    Args:
        record: ``episode.environment``.
        imports: Modules whose environments may be made beside those that ship.
        arguments: More keyword arguments, such as `render_mode`.

    Raises:
        UsageError: If another module registers it, or its arguments do more than choose a game.
    """
    imports = tuple(imports)
    import_modules(imports)
    _check_owner_and_arguments(record, imports)
    described: Mapping[str, Any] = next((kwargs for name, kwargs in record["wrappers"] if name == "DescribeObservation"), {})
    limits = {"max_episode_steps": record["max_episode_steps"]} if record["max_episode_steps"] else {}
    folds = {"fold": described["fold"]} if described.get("fold") else {}
    return make_environment(record["id"], **record["kwargs"], **limits, **folds, **arguments)


def check_owner(record: Mapping[str, Any], imports: Iterable[str] = ()) -> None:
    """Raise `UsageError` unless a record's environment is registered by a package that ships, or by one of `imports`."""
    owner = owner_of(record["id"])
    if not any(_is_in(owner, name) for name in (*_SHIPPED, *imports)):
        module = owner or record.get("module")
        repair = f"Name that module in imports, as in --import {module}." if module else "No module is known to register it."
        raise UsageError(f"environment {record['id']}: expected one that ships with this package or with Gymnasium. {repair}")


def check_chooses_game(environment: str, imports: Iterable[str] = ()) -> None:
    """Raise `UsageError` unless an environment's name from elsewhere only chooses a game. Only `imports` are imported.

    Args:
        environment: Its id, with arguments after a question mark.
        imports: Modules whose environments may be named beside those that ship.
    """
    imports = tuple(imports)
    module, env_id = module_and_id(environment)
    if module and not any(_is_in(module, name) for name in imports):
        check_owner({"id": environment.partition("?")[0], "module": module})
    import_modules(imports)
    _, arguments = parse_environment(environment)
    _check_owner_and_arguments({"id": env_id, "kwargs": arguments}, imports)


def _check_owner_and_arguments(record: Mapping[str, Any], imports: Iterable[str]) -> None:
    check_owner(record, imports)
    if _is_in(owner_of(record["id"]), *_SHIPPED):
        check_plain(record["id"], record["kwargs"])


def owner_of(env_id: str) -> str:
    """Return the module of an environment's class, or an empty text if nothing registers the id."""
    spec: EnvSpec | None = gym.registry.get(env_id)
    if spec is None:
        return ""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))


def check_plain(env_id: str, arguments: Mapping[str, Any]) -> None:
    """Raise `UsageError` unless the arguments of a shipped environment only choose a game: no policy, no file, no size."""
    for name, value in arguments.items():
        words = name in WORDS and (name != "opponent" or value == "random")
        if name in HEAVY or not _is_plain(value, words=words):
            raise UsageError(f"environment {env_id}: expected arguments that only choose a game; got {name}={str(value)[:100]!r}.")
    if len(json.dumps(dict(arguments))) > _MOST:
        raise UsageError(f"environment {env_id}: expected arguments of {_MOST} characters at most; got more.")


def _is_plain(value: Any, *, words: bool) -> bool:
    """Whether a value is a number, None, a text if `words` allows it, or a list of these."""
    if isinstance(value, list | tuple):
        return all(_is_plain(part, words=words) for part in value)
    return value is None or isinstance(value, bool | int | float) or (words and isinstance(value, str))


def _is_in(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
