"""The environment of a stored episode: made again from its record, which chooses the game, imports no module and reads no file."""

from __future__ import annotations

import json
import sys
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
_FREE_KWARGS = ("expert", "render_mode")
"""Keyword arguments that do not change the game. Records have no render mode."""
_POLICY_WRAPPERS = ("Forks", "GoldAction", "History")
"""Wrappers that policies put on. They do not change the game."""


def make_stored_environment(record: Mapping[str, Any], **arguments: Any) -> gym.Env[Any, Any]:
    """Make the environment of a stored episode, without the wrappers of its policy. No module is imported for it.

    Raises:
        UsageError: If its environment neither ships nor is of a module that this program has imported, or if the arguments of an
            environment that ships do more than choose a game.
    """
    check_owner(record)
    check_plain(record["id"], record["kwargs"])
    described: Mapping[str, Any] = next((kwargs for name, kwargs in record["wrappers"] if name == "DescribeObservation"), {})
    limits = {"max_episode_steps": record["max_episode_steps"]} if record["max_episode_steps"] else {}
    of_wrapper = {name: described[name] for name in ("fold", "success_at") if described.get(name) is not None}
    return make_environment(record["id"], **record["kwargs"], **limits, **of_wrapper, **arguments)


def levels_config(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an environment's record that identifies its levels and their step limit, whoever plays.

    Returns of one level are compared only under one limit: a shorter one may have ended an episode that was as good.
    """
    wrappers = [wrapper for wrapper in environment.get("wrappers", ()) if wrapper[0] not in _POLICY_WRAPPERS]
    kwargs = {key: value for key, value in environment.get("kwargs", {}).items() if key not in _FREE_KWARGS}
    return {**environment, "kwargs": kwargs, "wrappers": wrappers}


def check_owner(record: Mapping[str, Any]) -> None:
    """Raise `UsageError` unless a record's environment is of a package that ships, or of a module that is imported already."""
    owner = owner_of(record["id"])
    if not _is_in(owner, *_SHIPPED) and owner not in sys.modules:
        module = owner or record.get("module")
        repair = f"Import {module} in Python first." if module else "No module is known to register it."
        raise UsageError(f"environment {record['id']}: expected one that ships with this package or with Gymnasium. {repair}")


def check_chooses_game(environment: str, imports: Iterable[str] = ()) -> None:
    """Raise `UsageError` unless an environment's name from elsewhere only chooses a game.

    Only modules of `imports` are imported: those whose environments may be named beside those that ship.
    """
    imports = tuple(imports)
    module, env_id = module_and_id(environment)
    arguments: Mapping[str, Any] = {}
    is_allowed = not module or _is_in(module, *imports)
    if is_allowed:
        for name in imports:
            import_module(name, f"import {name!r}: expected a module")
        _, arguments = parse_environment(environment)
        module = owner_of(env_id)
        is_allowed = _is_in(module, *_SHIPPED, *imports)
    if not is_allowed:
        repair = f"Name that module in imports, as in imports: [{module}]." if module else "No module is known to register it."
        raise UsageError(
            f"environment {environment.partition('?')[0]}: expected one that ships with this package or with Gymnasium. {repair}"
        )
    check_plain(env_id, arguments)


def owner_of(env_id: str) -> str:
    """Return the module of an environment's class, or an empty text if nothing registers the id."""
    spec: EnvSpec | None = gym.registry.get(env_id)
    if spec is None:
        return ""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))


def check_plain(env_id: str, arguments: Mapping[str, Any]) -> None:
    """Raise `UsageError` unless the arguments of an environment that ships only choose a game: no policy, no file, no size."""
    if not _is_in(owner_of(env_id), *_SHIPPED):
        return
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
