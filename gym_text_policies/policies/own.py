"""`load_own`: a policy of the user's own, by its module and its name in the module."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.own_models import module_of, object_of, source_of
from gym_text_policies.policy import Policy, as_policy, text_spec
from gym_text_policies.records import Decision, Turn


def load_own(name: str, env: gym.Env[Any, Any], seed: int = 0, deterministic: bool | None = None) -> Policy:
    """Return a policy of the user's own.

    Args:
        name: ``module:Name``. The module is installed, or lies in the folder from which a command is called. Name is a subclass of
            `Policy`, a policy, a function of the observation, or an object with stable-baselines3's ``predict``. Records identify
            the policy by this name, the content of the module's file, and the policy's ``config``. Files that the module reads or
            imports count only if their digests are in the config, see `file_digest`.
        env: The environment to play.
        seed: Seed of the policy; a class is called as ``Name(spec, seed=seed)``.
        deterministic: Of an object with ``predict``; see `as_policy`.

    Raises:
        UsageError: If there is no such module or name, or Name is none of these.
    """
    try:
        player = object_of(name)
    except AttributeError:
        raise _unknown(name, name.partition(":")[2], module_of(name)) from None
    if isinstance(player, type):
        player = _made(player, name, env, seed)
    policy = as_policy(player, env, name=name, seed=seed, deterministic=deterministic)
    return OwnPolicy(policy, name, source_of(name))


def _unknown(name: str, path: str, module: ModuleType) -> UsageError:
    """Return the error for a name that a module does not have. The error lists the names in the module that may be meant."""
    members = vars(module).items()
    known = [member for member, value in members if not member.startswith("_") and _may_play(value, module.__name__)]
    if known:
        return unknown_choice(f"policy {name!r}", path, known)
    return UsageError(
        f"policy {name!r}: expected a policy or a function of the module {module.__name__}; it has none; got {path!r}."
    )


def _may_play(value: object, module: str) -> bool:
    """Return whether an object may be meant as a policy or a model, unlike those that the module only imports."""
    if isinstance(value, type):
        return issubclass(value, Policy | Backend) and value.__module__ == module
    here = getattr(value, "__module__", module) == module
    return isinstance(value, Policy | Backend) or hasattr(value, "predict") or (here and callable(value))


class OwnPolicy(Policy):
    """Another policy, with its name and the digest of its module in its identity.

    Args:
        player: The other policy.
        name: Its name, ``module:Name``.
        source: Digest of the module's file. If the file is edited, the policy is another one.
    """

    def __init__(self, player: Policy, name: str, source: str) -> None:
        super().__init__(player.spec, seed=player.seed)
        self._player, self._name, self._source = player, name, source

    @property
    def remote(self) -> bool:
        """Whether the other policy waits for a provider."""
        return self._player.remote

    @property
    def config(self) -> dict[str, Any]:
        """Its name, the digest of its module's file, and the other policy's configuration."""
        return {"kind": "own", "name": self._name, "source": self._source, "player": self._player.config}

    def check(self) -> None:
        """Check the other policy."""
        self._player.check()

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers."""
        return self._player.wrap(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Let the other policy decide."""
        return self._player.decide(turns)


def _made(kind: type, name: str, env: gym.Env[Any, Any], seed: int) -> Policy:
    """Return an instance of a user's class."""
    if not issubclass(kind, Policy):
        raise UsageError(f"policy {name!r}: expected a subclass of Policy, a function or an object; got the class {kind.__name__}.")
    spec = text_spec(env)
    try:
        inspect.signature(kind).bind(spec, seed=seed)
    except TypeError as error:
        raise UsageError(f"policy {name!r}: expected a class that {kind.__name__}(spec, seed=0) makes; {error}.") from None
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UsageError(
            f"policy {name!r}: expected a class that implements {missing}; it does not. Implement what `Policy` leaves abstract."
        )
    policy: Policy = kind(spec, seed=seed)
    return policy
