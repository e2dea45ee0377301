"""Policies of the user's own: `as_policy` makes one of a function or a trained model, `load_own` finds one by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from gym_text import TextSpec
from gym_text.errors import UsageError
from gym_text_policies.backends.own_models import instance_of, object_of, source_of
from gym_text_policies.policies.stable_baselines import normaliser
from gym_text_policies.policy import Policy, PolicyWrapper, decision_of, text_spec
from gym_text_policies.records import Decision, Turn


def as_policy(player: Any, env: gym.Env[Any, Any], *, name: str | None = None, seed: int = 0) -> Policy:
    """Make a policy from a function of the observation, or from a trained stable-baselines3 model.

    Args:
        player: A callable ``obs -> action``, or an object with stable-baselines3's ``predict``, which plays its most probable
            action. A policy is returned unchanged. If the object has an attribute ``config`` that is a mapping, records identify it
            by this mapping as well.
        env: The environment to play, for its `text_spec`.
        name: Its name in records, by default the function's or the class's. Two different players need two names.
        seed: Seed of the policy.

    Raises:
        UsageError: If `player` is neither.
    """
    if isinstance(player, Policy):
        return player
    function: Callable[[Mapping[str, Any]], Any] = player
    if hasattr(player, "predict"):
        function = _predicting(player)
    elif not callable(player):
        raise UsageError(f"player: expected a callable obs -> action, or an object with predict(); got {player!r}.")
    config = getattr(player, "config", None)
    identity = {"kind": "function", "name": name or getattr(player, "__qualname__", type(player).__qualname__), "seed": seed}
    identity |= {"config": dict(config)} if isinstance(config, Mapping) and config else {}
    return _FunctionPolicy(function, text_spec(env), seed, identity)


def _predicting(model: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function from an observation to a model's most probable action, in the form of the model's training."""
    statistics = model.get_vec_normalize_env() if hasattr(model, "get_vec_normalize_env") else None
    normalised = normaliser(model, f"player {type(model).__name__}", statistics)
    is_bare = isinstance(getattr(model, "observation_space", None), spaces.Box | spaces.Discrete | spaces.Tuple)

    def best_action(obs: Mapping[str, Any]) -> Any:
        seen = np.asarray(obs["observation"]) if is_bare and "observation" in obs else obs
        return model.predict(normalised(seen), deterministic=True)[0]

    return best_action


class _FunctionPolicy(Policy):
    """A function from an observation to the environment's action."""

    def __init__(self, function: Callable[[Mapping[str, Any]], Any], spec: TextSpec, seed: int, identity: dict[str, Any]) -> None:
        super().__init__(spec, seed=seed)
        self._function, self._identity = function, identity

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        return [decision_of(self._function(turn.obs), self.spec, turn.obs) for turn in turns]

    @property
    def config(self) -> dict[str, Any]:
        return self._identity


def load_own(name: str, env: gym.Env[Any, Any], seed: int, options: Mapping[str, Any]) -> Policy:
    """Return a policy of the user's own.

    Args:
        name: ``module:Name``. The module is installed, or lies in the folder from which a command is called. Name is a subclass of
            `Policy`, a policy, a function of the observation, or an object with stable-baselines3's ``predict``. Records identify
            the policy by this name, the content of the module's file, and the policy's ``config``. Files that the module reads or
            imports count only if their digests are in the config, see `file_digest`.
        env: The environment to play.
        seed: Seed of the policy; a class is called as ``Name(spec, seed=seed, **options)``.
        options: Keyword-only arguments of the class.

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
        player = instance_of(player, name, call, text_spec(env), seed=seed, **options)
    return _NamedPolicy(as_policy(player, env, name=name, seed=seed), name, options)


class _NamedPolicy(PolicyWrapper):
    """Another policy, with its name ``module:Name`` and its options. If the file of the module is edited, it is another."""

    def __init__(self, player: Policy, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(player)
        self._identity = {"name": name, "source": source_of(name), **({"options": dict(options)} if options else {})}

    @property
    def config(self) -> dict[str, Any]:
        return {"kind": "own", **self._identity, "player": self.player.config}
