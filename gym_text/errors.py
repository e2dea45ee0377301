"""The errors of both packages.

::

    GymTextError
    ├── UsageError (ValueError)                    a wrong argument, level, seed or parameter
    │   └── InvalidActionError                     an action of the wrong type or outside the action space
    ├── StepOrderError (gymnasium ResetNeeded)     step before reset, or after the end
    ├── MissingDependencyError (ImportError)       an extra is not installed; the message is the pip line
    ├── BudgetError                                the next call to a provider could pass the run's limit on money or tokens
    ├── StoreError (OSError)                       a run folder in use by another run, full, or read-only
    ├── ClusterError (RuntimeError)                the cluster has no room, or its workers die
    ├── RunError (RuntimeError)                    every episode of a run ended in an error
    └── EpisodeError (RuntimeError)                this episode cannot go on, others can
        ├── EngineError                            the game engine failed
        └── PolicyError                            the policy or its model provider failed

Any exception that an environment or a policy raises ends that episode as ``error`` and is recorded. An exception that would end
every other episode as well ends the run: a policy's wrong setting (``UsageError``), a missing package, a spent budget, or a folder
that cannot be written.
"""

from __future__ import annotations

import difflib
import importlib
import operator
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any

from gymnasium.error import ResetNeeded


class GymTextError(Exception):
    """Base of every error that `gym_text` and `gym_text_policies` raise on purpose."""


class UsageError(GymTextError, ValueError):
    """A wrong argument. The message says what was expected, what came and how to repair it."""


class InvalidActionError(UsageError):
    """An action of the wrong type or outside the action space."""


class StepOrderError(GymTextError, ResetNeeded):
    """`step` was called before `reset`, or after the episode had ended."""


class MissingDependencyError(GymTextError, ImportError):
    """A package of an optional extra is not installed."""


class BudgetError(GymTextError):
    """The next call to a provider could pass the run's limit on money or tokens; a resumed run goes on from here."""


class StoreError(GymTextError, OSError):
    """A run folder cannot be written: another run writes it, the disk is full, or it is read-only. Stored episodes stay whole."""


class ClusterError(GymTextError, RuntimeError):
    """A cluster cannot play: it is not running, has no room, or its workers die."""


class RunError(GymTextError, RuntimeError):
    """Every episode of a run ended in an error, so there is no result."""


class EpisodeError(GymTextError, RuntimeError):
    """This episode cannot go on; the run can."""


class EngineError(EpisodeError):
    """The game engine failed."""


class PolicyError(EpisodeError):
    """The policy, or the provider of its model, failed to decide."""


def unknown_choice(what: str, value: object, choices: Iterable[str], *, preferred: Iterable[str] = ()) -> UsageError:
    """Return the error for a value that is not among the choices; it suggests similar choices, those of `preferred` first."""
    choices = list(choices)
    near = [close for names in (list(preferred), choices) for close in difflib.get_close_matches(str(value), names, n=3)]
    near = list(dict.fromkeys(near))[:3]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    shown = ", ".join(map(repr, choices[:12])) + (f", … ({len(choices)} in all)" if len(choices) > 12 else "")
    return UsageError(f"{what}: expected one of {shown}; got {value!r}.{hint}")


def check_options(what: str, options: Collection[str], known: Collection[str]) -> None:
    """Raise `UsageError` unless all `options` are known. The message shows no values, as one may be a secret key."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            hint += " Keys are read from environment variables only." if "key" in name.lower() else ""
            raise UsageError(f"{what}: got an unknown option {name!r}.{hint} Options: {', '.join(known) or 'none'}.")


def check_choice(what: str, value: Any, choices: Collection[str]) -> None:
    """Raise `UsageError` unless `value` is one of `choices`."""
    if value not in choices:
        raise unknown_choice(what, value, choices)


def check_int(what: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int; raise `UsageError` unless it is an integer in [low, high]."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise UsageError(f"{what}: expected an integer from {low} to {high}; got {value!r} ({type(value).__name__}).")
    if not low <= number <= high:
        raise UsageError(f"{what}: expected an integer from {low} to {high}; got {number}.")
    return number


def check_bool(what: str, value: object) -> bool:
    """Return `value`; raise `UsageError` unless it is a bool. ``yes`` and ``no`` in YAML arrive here as strings."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}: expected True or False; got {value!r}.")
    return value


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an optional extra, or say in one line how to install it.

    Raises:
        MissingDependencyError: If the module's package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingDependencyError(
            f"{error.name!r} is not installed. Run: pip install 'gym-text[{extra}]'", name=error.name
        ) from None
