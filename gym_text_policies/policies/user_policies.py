"""Policies of the user's own: `as_policy` makes one of a function or a trained model, `load_own` finds one by its name."""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import TextSpec
from gym_text.errors import UsageError, unknown_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.backends.own_models import module_of, object_of, source_of
from gym_text_policies.policy import Policy, PolicyWrapper, text_spec
from gym_text_policies.records import Decision, Turn

_one_at_a_time = threading.RLock()


@contextmanager
def drawing_from(rng: np.random.Generator, space: Any = None) -> Iterator[None]:
    """Seed the global random generators from `rng` while the block runs, so that its draws depend on `rng` alone.

    These are the generators of Python, NumPy and torch. Afterwards they have their former states. One thread at a time runs a
    block.

    Args:
        rng: The generator.
        space: A space that may be sampled as well, such as a model's `action_space`.
    """
    seed = int(rng.integers(2**32))
    torch = sys.modules.get("torch")
    with _one_at_a_time:
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        if hasattr(space, "seed"):
            space.seed(seed)
        try:
            if torch is None:
                yield
            else:
                gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
                with torch.random.fork_rng(gpus):
                    torch.manual_seed(seed)
                    yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def as_policy(
    player: Any, env: gym.Env[Any, Any], *, name: str | None = None, seed: int = 0, deterministic: bool | None = None
) -> Policy:
    """Make a policy from a function of the observation, or from a trained stable-baselines3 model.

    Args:
        player: A callable ``obs -> action``, or an object with stable-baselines3's ``predict``. A policy is returned unchanged.
            If the object has an attribute ``config`` that is a mapping, records identify it by this mapping as well.
        env: The environment to play, for its `text_spec`.
        name: Its name in records, by default the function's or the class's. Two different players need two names.
        seed: Seed of the policy.
        deterministic: For an object with ``predict``: False draws its actions, True (the default) plays the most probable action.

    Raises:
        UsageError: If `player` is neither, or is given `deterministic` and has no ``predict`` that takes it.
    """
    predicts = not isinstance(player, Policy) and hasattr(player, "predict")
    if deterministic is not None and not predicts:
        raise UsageError(f"deterministic: expected it for an object with stable-baselines3's predict alone; got {player!r}.")
    if isinstance(player, Policy):
        return player
    kind, draws = _FunctionPolicy, deterministic is False
    if predicts:
        function: Callable[[Mapping[str, Any]], Any] = lambda obs: player.predict(obs, deterministic=not draws)[0]  # noqa: E731
        kind = _DrawingPolicy if draws else kind
    elif callable(player):
        function = player
    else:
        raise UsageError(f"player: expected a callable obs -> action, or an object with predict(); got {player!r}.")
    default = getattr(player, "__qualname__", type(player).__qualname__)
    config = getattr(player, "config", None)
    return kind(function, name or default, text_spec(env), seed, dict(config) if isinstance(config, Mapping) else {})


class _FunctionPolicy(Policy):
    """A function from an observation to the environment's action."""

    def __init__(
        self, function: Callable[[Mapping[str, Any]], Any], name: str, spec: TextSpec, seed: int, more: Mapping[str, Any]
    ) -> None:
        super().__init__(spec, seed=seed)
        self._function = function
        self._name = name
        self._more = more

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        return [Decision(self.spec.decode(self._act(turn), dict(turn.obs))) for turn in turns]

    def _act(self, turn: Turn) -> Any:
        return self._function(turn.obs)

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "function", "name": self._name, "seed": self.seed, **({"config": self._more} if self._more else {})}


class _DrawingPolicy(_FunctionPolicy):
    """A function that draws at random. The draws depend only on the generator of the turn."""

    def _act(self, turn: Turn) -> Any:
        with drawing_from(turn.rng):
            return super()._act(turn)

    @property
    def config(self) -> dict[str, Any]:
        return {**super().config, "deterministic": False}


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


class OwnPolicy(PolicyWrapper):
    """Another policy, with its name and the digest of its module in its identity.

    Args:
        player: The other policy.
        name: Its name, ``module:Name``.
        source: Digest of the module's file. If the file is edited, the policy is another one.
    """

    def __init__(self, player: Policy, name: str, source: str) -> None:
        super().__init__(player)
        self._name, self._source = name, source

    @property
    def config(self) -> dict[str, Any]:
        """Its name, the digest of its module's file, and the other policy's configuration."""
        return {"kind": "own", "name": self._name, "source": self._source, "player": self.player.config}


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
