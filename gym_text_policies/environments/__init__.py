"""Environments by one string: ``BabyAIText-v0?task=goto&num_dists=2`` is an id with keyword arguments."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import HumanRendering, TimeLimit

import gym_text  # noqa: F401  registers the environments
from gym_text.descriptions import DESCRIBED, description_of, import_engine, missing_fields
from gym_text.episode_state import Expert
from gym_text.errors import GymTextError, MissingDependencyError, UsageError, check_options, unknown_choice
from gym_text.wrappers import DescribeObservation

_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)*")
"""Pattern of an environment's id. What follows the colon of a URL or a path does not match it."""
_OF_MAKE = ("max_episode_steps", "disable_env_checker", "render_mode")
"""Keyword arguments that `gym.make` itself takes."""
_OF_WRAPPER = {
    "fold": "Training and its data play the folds train and dev: give the environment's class an argument fold.",
    "success_at": "Such an environment says itself what a success is, by info['success'].",
}
"""Keyword arguments that `DescribeObservation` takes if the environment does not, and what is to be done where neither does."""
_OF_ANY_LEVEL = (*_OF_MAKE, "success_at", "expert")
"""Keyword arguments that do not change which level a seed is."""


def parse_environment(name: str) -> tuple[str, dict[str, Any]]:
    """Return the id and the keyword arguments that a name stands for.

    >>> parse_environment("BabyAIText-v0?task=goto&num_dists=2")
    ('BabyAIText-v0', {'task': 'goto', 'num_dists': 2})

    Args:
        name: An id, and after a question mark ``key=value`` pairs with ``&`` between them. A value is a Python literal, or else
            a string. The id may begin with the module that registers it, as in ``my_package:MyText-v0``.

    Raises:
        UsageError: If the id is not registered, a pair is malformed, or a key comes twice.
    """
    env_id, _, query = name.partition("?")
    module, bare = module_and_id(name)
    if module:
        import_module(module, f"environment {name!r}: expected a module that registers it before the colon")
    if bare not in gym.registry:
        raise unknown_choice("environment", env_id, playable_ids(gymnasium=True), preferred=playable_ids(gymnasium=False))
    arguments: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not key.isidentifier() or not equals or key in arguments:
            raise UsageError(f"environment {name!r}: expected {bare}?key=value&key=value, each key once; got {pair!r}.")
        arguments[key] = _value(value)
    return bare, arguments


def names_environment(name: str, environment: str) -> bool:
    """Return whether a name stands for an environment: the ids are equal, and so are all arguments that the name has.

    >>> names_environment("BabyAIText-v0?task=goto", "BabyAIText-v0?max_episode_steps=26&task=goto")
    True
    """
    env_id, wanted = parse_environment(name)
    other, arguments = parse_environment(environment)
    return env_id == other and wanted.items() <= arguments.items()


def environment_name(environment: Mapping[str, Any]) -> str:
    """Return the name of a record's environment, which `parse_environment` reads: its id, arguments, and a limit of its own.

    >>> environment_name({"id": "BabyAIText-v0", "kwargs": {"task": "goto", "num_dists": 2}})
    'BabyAIText-v0?num_dists=2&task=goto'
    """
    kwargs, limit = dict(environment.get("kwargs", {})), environment.get("max_episode_steps")
    registered = gym.registry.get(environment["id"])
    if limit and registered and limit != registered.max_episode_steps:
        kwargs["max_episode_steps"] = limit
    arguments = "&".join(f"{key}={value}" for key, value in sorted(kwargs.items()))
    return f"{environment['id']}?{arguments}" if arguments else str(environment["id"])


def levels_of(environment: str) -> str:
    """Return the name of an environment's levels: with its arguments, but without those that do not change the levels.

    >>> levels_of("BabyAIText-v0?max_episode_steps=9&task=goto")
    'BabyAIText-v0?task=goto'
    """
    env_id, arguments = parse_environment(environment)
    return environment_name({"id": env_id, "kwargs": _of_levels(arguments)})


def level_id(environment: str | Mapping[str, Any], fold: str | None, seed: int) -> str:
    """Return the name of a level, the same in all logs and datasets.

    >>> level_id("BabyAIText-v0?task=goto&max_episode_steps=9", "test", 2)
    'BabyAIText-v0?task=goto test 2'

    `environment` is its name without a fold, or its record, whose fold counts if `fold` is None.
    """
    if isinstance(environment, str):
        return f"{levels_of(environment)} {fold} {seed}"
    kept = _of_levels(environment.get("kwargs", {}))
    described = [(kwargs or {}).get("fold") for name, kwargs in environment.get("wrappers", ()) if name == "DescribeObservation"]
    fold = fold or kept.pop("fold", None) or next(filter(None, described), None)
    return " ".join(filter(None, (environment_name({"id": environment["id"], "kwargs": kept}), fold, str(seed))))


def _of_levels(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key not in _OF_ANY_LEVEL}


def module_and_id(name: str) -> tuple[str, str]:
    """Split ``module:id?arguments``: return the module to import, or an empty text, and the id."""
    whole = name.partition("?")[0]
    module, _, env_id = whole.rpartition(":")
    return (module, env_id) if _ID.fullmatch(env_id) else ("", whole)


def import_module(module: str, what: str) -> ModuleType:
    """Import a module of the user's: an installed one, or one of the current folder.

    `what` is the beginning of the `UsageError` if it cannot be imported: what needs the module, and what was expected.
    """
    try:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ImportError(f"{module!r} is no module's name")
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{what}; {error}. Call from the folder in which the module lies.") from error


def check_no_fold(option: str, environments: Iterable[str], fold: str) -> None:
    """Raise `UsageError` if an environment's name has a fold, because the command itself chooses the fold."""
    for name in environments:
        if "fold" in parse_environment(name)[1]:
            raise UsageError(f"{option}: expected the {fold} fold alone; got {name!r}. Leave the fold out.")


def environment_maker(name: str, **defaults: Any) -> functools.partial[gym.Env[Any, Any]]:
    """Return a function without arguments that makes an environment; arguments in its name replace `defaults`.

    Raises:
        UsageError: If there is no such environment, or it does not take the arguments.
    """
    env_id, arguments = parse_environment(name)
    arguments = defaults | arguments
    parameters = _parameters(env_id)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known = [parameter.name for parameter in parameters if parameter.name != "render_mode"]
        check_options(f"environment {name!r}", arguments, dict.fromkeys([*known, *_OF_WRAPPER, *_OF_MAKE]))
    return functools.partial(make_environment, env_id, **arguments)


def make_environment(name: str, /, **arguments: Any) -> gym.Env[Any, Any]:
    """Make an environment that a language model can play; one without text observations is wrapped in `DescribeObservation`.

    Arguments in the name replace others. A ``fold`` goes to the environment if it takes one, else to the wrapper, and so does
    ``success_at``, the score that is a success. An environment that is registered without a step limit gets the limit of its
    description.

    Raises:
        UsageError: If there is no such environment, it has no description, or it does not take the arguments.
    """
    env_id, named = parse_environment(name)
    arguments |= named
    of_wrapper = {name: arguments.pop(name, None) for name in _OF_WRAPPER if not takes(env_id, name)}
    creator = _creator(env_id)
    entry = str(gym.registry[env_id].entry_point)
    shown = arguments.get("render_mode") == "human" and "human" not in getattr(creator, "metadata", {}).get("render_modes", ())
    try:
        env = gym.make(env_id, **arguments | ({"render_mode": "rgb_array"} if shown else {}))
    except GymTextError:
        raise
    except gym.error.DependencyNotInstalled as error:
        raise MissingDependencyError(f"environment {env_id}: {error}") from error
    except Exception as error:
        foreign = not entry.startswith(("gymnasium.", "gym_text."))  # a mistake in a user's own code keeps its traceback
        if foreign and not isinstance(error, TypeError | gym.error.UnregisteredEnv):
            raise
        raise UsageError(
            f"environment {env_id}: expected arguments and a version that it has; {type(error).__name__}: {error}."
        ) from error
    env = HumanRendering(env) if shown else env  # where the environment opens no window of its own
    if missing_fields(env):
        limit = description_of(env).limit
        if limit and env.spec and env.spec.max_episode_steps is None:
            env = TimeLimit(env, limit)
        return DescribeObservation(env, **of_wrapper)
    for name, value in of_wrapper.items():
        if value is not None:
            raise UsageError(f"environment {env_id}: expected no {name}, because it takes none; got {value!r}. {_OF_WRAPPER[name]}")
    return env


def takes(environment: str, argument: str) -> bool:
    """Return whether an environment takes ``fold``, ``success_at`` or ``expert``.

    Gymnasium's own environments take none, although some accept any keyword.
    """
    env_id, _ = parse_environment(environment)
    if str(gym.registry[env_id].entry_point).startswith("gymnasium."):
        return False
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in _parameters(env_id))


def has_folds(environment: str) -> bool:
    """Return whether an environment, or the wrapper `DescribeObservation` around it, takes ``fold``."""
    try:
        make_environment(environment, fold="train").close()
    except UsageError:
        return False
    return True


def fold_arguments(environment: str, fold: str | None, *, expert: Expert = "off") -> dict[str, Any]:
    """Return the keyword arguments for a fold and, if the environment takes one, for an expert.

    With None as the fold the environment has its own default.
    """
    arguments: dict[str, Any] = {} if fold is None else {"fold": fold}
    return arguments | ({"expert": expert} if takes(environment, "expert") else {})


def playable_ids(*, gymnasium: bool) -> list[str]:
    """Return the ids of our environments; with `gymnasium` also Gymnasium's that have a description, newest versions only."""
    ours = [name for name, spec in gym.registry.items() if str(spec.entry_point).startswith("gym_text.")]
    others: dict[str, EnvSpec] = {}
    for spec in gym.registry.values() if gymnasium else ():
        known = others.get(spec.name)
        if spec.id not in ours and _speaks(spec) and (known is None or (known.version or 0) < (spec.version or 0)):
            others[spec.name] = spec
    return ours + [spec.id for spec in others.values()]


def _speaks(spec: EnvSpec) -> bool:
    """Whether an environment has text observations, or a description that gives it some."""
    module, _, name = str(spec.entry_point).partition(":")
    return module.startswith("gym_text.") or (module.startswith("gymnasium.envs.") and name in DESCRIBED)


def _parameters(env_id: str) -> list[inspect.Parameter]:
    creator = _creator(env_id)
    return list(inspect.signature(creator).parameters.values()) if creator else []


def _creator(env_id: str) -> Any:
    entry = gym.registry[env_id].entry_point
    if not isinstance(entry, str):
        return entry
    import_engine(entry)
    try:
        return load_env_creator(entry)
    except gym.error.DependencyNotInstalled as error:
        raise MissingDependencyError(f"environment {env_id}: {error}") from error


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
