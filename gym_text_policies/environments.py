"""Environments by one string: ``BabyAIText-v0?task=goto&num_dists=2`` is an id with keyword arguments."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import HumanRendering, TimeLimit

import gym_text  # noqa: F401  registers the environments
from gym_text.descriptions import DESCRIBED, description_of
from gym_text.errors import MissingDependencyError, UsageError, check_options, unknown_choice
from gym_text.lunar_lander import import_box2d
from gym_text.wrappers import DescribeObservation

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
            if not all(part.isidentifier() for part in module.split(".")):
                raise ImportError(f"{module!r} is no module's name")
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"environment {name!r}: expected a module that registers it before the colon; {error}.") from error
    if bare not in gym.registry:
        raise unknown_choice("environment", env_id, [known for known, spec in gym.registry.items() if _speaks(spec)])
    arguments: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not key.isidentifier() or not equals or key in arguments:
            raise UsageError(f"environment {name!r}: expected {bare}?key=value&key=value, each key once; got {pair!r}.")
        arguments[key] = _value(value)
    return bare, arguments


def check_no_fold(option: str, environments: Iterable[str], fold: str) -> None:
    """Raise `UsageError` if the name of an environment that is played in a certain fold names one itself."""
    for name in environments:
        if "fold" in parse_environment(name)[1]:
            raise UsageError(f"{option}: expected the {fold} fold alone; got {name!r}. Leave the fold out.")


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
    parameters = _parameters(env_id)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters if parameter.name != "render_mode"]
        check_options(f"environment {name!r}", arguments, dict.fromkeys([*known, "fold", *_OF_MAKE]))
    return functools.partial(make_environment, env_id, **arguments)


def make_environment(env_id: str, **arguments: Any) -> gym.Env[Any, Any]:
    """Make an environment that a language model can play: where it has no words of its own, `DescribeObservation` gives it some.

    A ``fold`` goes to the environment, if it takes one, else to the wrapper. An environment that is registered without a limit and
    may go on for ever gets one from its description.

    Args:
        env_id: A registered id.
        arguments: Of `gym.make`, and of the environment.

    Raises:
        UsageError: If nothing can be said of it, or it does not take the arguments.
    """
    fold = None if _takes_fold(env_id) else arguments.pop("fold", None)
    if str(gym.registry[env_id].entry_point).startswith("gymnasium.envs.box2d."):
        import_box2d()
    shown = arguments.get("render_mode") == "human" and not _has_window(env_id)
    try:
        env = gym.make(env_id, **arguments | ({"render_mode": "rgb_array"} if shown else {}))
    except (TypeError, gym.error.UnregisteredEnv) as error:
        raise UsageError(f"environment {env_id}: expected arguments and a version that it has; {error}.") from error
    except gym.error.DependencyNotInstalled as error:
        raise MissingDependencyError(f"environment {env_id}: {error}") from error
    env = HumanRendering(env) if shown else env
    if not env.has_wrapper_attr("text_spec"):
        limit = description_of(env).limit
        if limit and env.spec and env.spec.max_episode_steps is None:
            env = TimeLimit(env, limit)
        return DescribeObservation(env, fold=fold)
    if fold is not None:
        raise UsageError(f"environment {env_id}: expected no fold, which it does not take; got {fold!r}.")
    return env


def remake_environment(record: Mapping[str, Any], **arguments: Any) -> gym.Env[Any, Any]:
    """Make the environment that an episode was played in, without the wrappers of its policy.

    Args:
        record: ``episode.environment``.
        arguments: More of them: a `render_mode`.
    """
    described: Mapping[str, Any] = next((kwargs for name, kwargs in record["wrappers"] if name == "DescribeObservation"), {})
    limits = {"max_episode_steps": record["max_episode_steps"]} if record["max_episode_steps"] else {}
    folds = {"fold": described["fold"]} if described.get("fold") else {}
    return make_environment(record["id"], **record["kwargs"], **limits, **folds, **arguments)


def playable_ids(*, gymnasium: bool) -> list[str]:
    """Return the ids of our environments; with `gymnasium` also its own that have a description, each in its newest version."""
    ours = [name for name, spec in gym.registry.items() if str(spec.entry_point).startswith("gym_text.")]
    others: dict[str, EnvSpec] = {}
    for spec in gym.registry.values() if gymnasium else ():
        known = others.get(spec.name)
        if spec.id not in ours and _speaks(spec) and (known is None or (known.version or 0) < (spec.version or 0)):
            others[spec.name] = spec
    return ours + [spec.id for spec in others.values()]


def _speaks(spec: EnvSpec) -> bool:
    """Whether an environment is ours, or has a description."""
    module, _, name = str(spec.entry_point).partition(":")
    return module.startswith("gym_text.") or (module.startswith("gymnasium.envs.") and name in DESCRIBED)


def _parameters(env_id: str) -> list[inspect.Parameter]:
    """Return the parameters of what makes an environment."""
    entry = gym.registry[env_id].entry_point
    creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return list(inspect.signature(creator).parameters.values()) if creator else []


def _has_window(env_id: str) -> bool:
    """Whether an environment opens a window of its own; for the others a wrapper does."""
    entry = gym.registry[env_id].entry_point
    creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    return "human" in getattr(creator, "metadata", {}).get("render_modes", ())


def _takes_fold(env_id: str) -> bool:
    """Whether an environment has folds of its own; Gymnasium's have none, whatever else some of them take."""
    if str(gym.registry[env_id].entry_point).startswith("gymnasium."):
        return False
    return any(p.name == "fold" or p.kind is p.VAR_KEYWORD for p in _parameters(env_id))


def _value(text: str) -> Any:
    """Return the Python literal that a text is, or else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
