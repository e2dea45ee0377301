"""Policies of the user's own: `as_policy` makes one of a function or a trained model, `load_own` finds one by its name."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import TextSpec
from gym_text.errors import UsageError
from gym_text_policies.backends.own_models import instance_of, object_of, source_of
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
    draws = deterministic is False
    if predicts:
        function: Callable[[Mapping[str, Any]], Any] = lambda obs: player.predict(obs, deterministic=not draws)[0]  # noqa: E731
    elif callable(player):
        function = player
    else:
        raise UsageError(f"player: expected a callable obs -> action, or an object with predict(); got {player!r}.")
    config = getattr(player, "config", None)
    identity = {"kind": "function", "name": name or getattr(player, "__qualname__", type(player).__qualname__), "seed": seed}
    identity |= {"config": dict(config)} if isinstance(config, Mapping) and config else {}
    identity |= {"deterministic": False} if draws else {}
    return _FunctionPolicy(function, text_spec(env), seed, identity, draws=draws)


class _FunctionPolicy(Policy):
    """A function from an observation to the environment's action. If it draws, the turn's generator alone decides what."""

    def __init__(
        self, function: Callable[[Mapping[str, Any]], Any], spec: TextSpec, seed: int, identity: dict[str, Any], *, draws: bool
    ) -> None:
        super().__init__(spec, seed=seed)
        self._function, self._identity, self._draws = function, identity, draws

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        decisions = []
        for turn in turns:
            with drawing_from(turn.rng) if self._draws else nullcontext():
                action = self._function(turn.obs)
            decisions.append(Decision(self.spec.decode(action, dict(turn.obs))))
        return decisions

    @property
    def config(self) -> dict[str, Any]:
        return self._identity


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
    player = object_of(name)
    if isinstance(player, type):
        if not issubclass(player, Policy):
            raise UsageError(
                f"policy {name!r}: expected a subclass of Policy, a function or an object; got the class {player.__name__}."
            )
        call = f"a class that {player.__name__}(spec, seed=0) makes"
        player = instance_of(player, name, call, text_spec(env), seed=seed)
    policy = as_policy(player, env, name=name, seed=seed, deterministic=deterministic)
    return OwnPolicy(policy, name, source_of(name))


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
