"""Environments by one string: ``BabyAIText-v0?task=goto&num_dists=2`` is an id with keyword arguments."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import UsageError, check_options, unknown_choice

_OF_MAKE = ("max_episode_steps", "disable_env_checker", "render_mode")
"""Keyword arguments that `gym.make` takes itself."""


def parse_environment(name: str) -> tuple[str, dict[str, Any]]:
    """Return the id and the keyword arguments that a name means.

    >>> parse_environment("BabyAIText-v0?task=goto&num_dists=2")
    ('BabyAIText-v0', {'task': 'goto', 'num_dists': 2})

    Args:
        name: An id, and after a question mark ``key=value`` pairs with ``&`` between them. A value is a Python literal; what is
            none is a string. The id may begin with the module that registers it, as in ``my_package:MyText-v0``.

    Raises:
        UsageError: If the id is not registered, or a pair is none or comes twice.
    """
    env_id, _, query = name.partition("?")
    module, _, bare = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"environment {name!r}: expected a module that registers it before the colon; {error}.") from error
    if bare not in gym.registry:
        own = [known for known, spec in gym.registry.items() if str(spec.entry_point).startswith("gym_text.")]
        raise unknown_choice("environment", env_id, own)
    arguments: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not key.isidentifier() or not equals or key in arguments:
            raise UsageError(f"environment {name!r}: expected {bare}?key=value&key=value, each key once; got {pair!r}.")
        arguments[key] = _value(value)
    return bare, arguments


def environment_maker(name: str, **defaults: Any) -> functools.partial[gym.Env[Any, Any]]:
    """Return what makes the environment of a name.

    Args:
        name: See `parse_environment`.
        defaults: Keyword arguments for which the name has no others.

    Raises:
        UsageError: If there is no such environment, or the arguments are not its own.
    """
    env_id, arguments = parse_environment(name)
    arguments = defaults | arguments
    entry = gym.registry[env_id].entry_point
    creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    parameters = inspect.signature(creator).parameters.values() if creator else ()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters if parameter.name != "render_mode"]
        check_options(f"environment {name!r}", arguments, [*known, *_OF_MAKE])
    return functools.partial(gym.make, env_id, **arguments)


def _value(text: str) -> Any:
    """Return the Python literal that a text is, or else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
