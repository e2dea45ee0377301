"""`Policy`, the interface of everything that plays, and what identifies a policy, an environment and an episode in records."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import TextSpec, UsageError
from gym_text.descriptions import missing_fields
from gym_text.errors import InvalidActionError
from gym_text_policies.records import Decision, Turn

_NAMES, _CONTENT = ("model", "base"), ("content", "commit")
"""Keys of a language model's configuration: its names, and what identifies its weights."""
_WITHOUT_EFFECT = ("HumanRendering",)
"""Wrappers that change nothing in an episode. The episode's key does not depend on them."""


class Policy(ABC):
    """Anything that plays: it gets turns and returns decisions.

    A policy is also a callable ``policy(obs) -> action``, and has stable-baselines3's ``predict``.

    Args:
        spec: The environment's description for players: ``env.get_wrapper_attr("text_spec")``.
        seed: Seed of all random numbers of the policy.
    """

    def __init__(self, spec: TextSpec, *, seed: int = 0) -> None:
        self.spec = spec
        self.seed = operator.index(seed)
        self._own_turns = itertools.count()  # outside `rollout`: seeds the draws of each turn

    @property
    def remote(self) -> bool:
        """Whether the policy waits for a provider. If so, `rollout` is fastest with many workers and num_envs=1."""
        return False

    @abstractmethod
    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Decide an action for each turn. The decision of a turn does not depend on the other turns.

        Raises:
            PolicyError: If the policy, or the provider of its model, fails.
        """

    def check(self, names: Sequence[str] = ()) -> None:  # noqa: B027  most ask nobody
        """Check before a run whether the policy can decide. A language model's server is asked one short question.

        Args:
            names: The actions that can be chosen in the run's first state, if the game lists them.

        Raises:
            UsageError: If it cannot decide; the message says how to repair it.
        """

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """All settings that the policy's decisions depend on, as plain JSON, without secrets."""

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the wrappers that this policy needs. By default there are none."""
        return env

    def __call__(self, obs: Mapping[str, Any]) -> Any:
        """Decide on one observation, outside `rollout`, and return the environment's action."""
        turn = self._own_turn(obs)
        return self.spec.encode(self.decide([turn])[0].action, dict(obs))

    def _own_turn(self, obs: Mapping[str, Any], step: int | None = None) -> Turn:
        """Return a turn outside `rollout`. Its step number is `step`, else the number of turns so far."""
        number = next(self._own_turns)
        return Turn(obs, np.random.default_rng([self.seed, number]), step=number if step is None else step)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """Decide with the interface of a stable-baselines3 model, so that its ``evaluate_policy`` accepts any policy.

        Args:
            observation: One observation, or a batch: a dict of arrays of length n.
            state: The state that the last call returned, or None.
            episode_start: Which of the n episodes begin now, bool of shape (n,).
            deterministic: Ignored. A policy's own settings say whether it samples.

        Returns:
            The action, or the n actions (shape (n, …); strings in an object array), and the step number of each episode.
        """
        batched = np.ndim(observation["text"]) > 0
        rows = _unstack(observation) if batched else [observation]
        steps = np.zeros(len(rows), dtype=int) if state is None else np.where(episode_start, 0, state)
        turns = [self._own_turn(obs, int(steps[i])) for i, obs in enumerate(rows)]
        actions = [self.spec.encode(d.action, dict(t.obs)) for d, t in zip(self.decide(turns), turns, strict=True)]
        if not batched:
            return actions[0], steps + 1
        return np.array(actions, dtype=object if self.spec.encoding == "text" else None), steps + 1


class PolicyWrapper(Policy):
    """A policy around another one, as `gymnasium.Wrapper` is one around an environment. It plays as the other does."""

    def __init__(self, player: Policy) -> None:
        super().__init__(player.spec, seed=player.seed)
        self.player = player

    @property
    def remote(self) -> bool:
        """Whether the other policy waits for a provider."""
        return self.player.remote

    @property
    def config(self) -> dict[str, Any]:
        """The other policy's configuration."""
        return self.player.config

    def check(self, names: Sequence[str] = ()) -> None:
        """Check the other policy."""
        self.player.check(names)

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers."""
        return self.player.wrap(env)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Let the other policy decide."""
        return self.player.decide(turns)


def _unstack(observation: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{key: values[i] for key, values in observation.items()} for i in range(len(observation["text"]))]


def text_spec(env: gym.Env[Any, Any]) -> TextSpec:
    """Return the `TextSpec` of an environment.

    Raises:
        UsageError: If it has none, or its observations have no text, no goal, or not what the spec tells of them.
    """
    if missing := missing_fields(env):
        raise UsageError(
            f"env: expected an environment with a text_spec, and Dict observations with its fields, 'text' and 'goal' among them; "
            f"got {env}, which has no {', '.join(missing)}. DescribeObservation gives it a text, a goal and a spec."
        )
    spec: TextSpec = env.get_wrapper_attr("text_spec")
    return spec


def decision_of(action: Any, spec: TextSpec, obs: Mapping[str, Any]) -> Decision:
    """Return the decision for an action of the environment.

    An index beyond the valid actions is an unusable answer without a name. It is played: the game answers it and counts a step.

    Raises:
        InvalidActionError: If the environment does not take the action.
    """
    try:
        return Decision(spec.decode(action, dict(obs)))
    except InvalidActionError:
        if spec.encoding != "index" or np.ndim(action) or np.asarray(action).dtype.kind not in "iu" or action < 0:
            raise
    return Decision("", valid=False, invalid="no action")


def recorded(observation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the observation of a record as the environment gave it, with tuples in place of JSON's lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in observation.items()}


def check_lists_actions(spec: TextSpec, what: str) -> None:
    """Raise `UsageError` if something, `what`, needs the names of the actions in a game that takes any words."""
    if not spec.lists_actions:
        raise UsageError(f"{what}: expected a game that lists its actions; this one takes any words. Take mode='text' for a model.")


def environment_config(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return what identifies an environment in records: id, keyword arguments, limit, wrappers, and a hash of its `TextSpec`.

    One that neither this package nor Gymnasium registers has ``module``, the module to import. One in which a model plays as well
    has ``player``, which identifies the model.

    Raises:
        UsageError: If the environment was not made by ``gym.make``, or has an argument that records cannot name.
    """
    spec = env.spec
    if spec is None:
        raise UsageError(f"env: expected one made by gym.make, which can be named in records; got {env}.")
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    wrappers = [[wrapper.name, wrapper.kwargs] for wrapper in spec.additional_wrappers if wrapper.name not in _WITHOUT_EFFECT]
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    others = {} if module.partition(".")[0] in ("", "gym_text", "gymnasium") else {"module": module}
    player = getattr(env.unwrapped, "identity", None)
    return {
        "id": spec.id,
        **others,
        **({"player": dict(player)} if player else {}),
        "kwargs": json.loads(json.dumps(kwargs, default=_named)),
        "max_episode_steps": spec.max_episode_steps,
        "wrappers": json.loads(json.dumps(wrappers, default=_named)),
        "text_spec": hashlib.sha256(text_spec(env).to_json().encode()).hexdigest()[:16],
    }


def _named(value: Any) -> str:
    """Return a text for an argument that is not JSON: the name of a function, or a hash of a `TextSpec`."""
    if isinstance(value, TextSpec):
        return hashlib.sha256(value.to_json().encode()).hexdigest()[:16]
    if callable(value):
        kind = type(value)  # a bound method of a built-in type has no module, a partial function no name
        return f"{getattr(value, '__module__', kind.__module__)}.{getattr(value, '__qualname__', kind.__qualname__)}"
    raise UsageError(f"env: expected arguments that can be named in records; got {value!r}.")


def episode_key(environment: Mapping[str, Any], policy: Mapping[str, Any], seed: int) -> str:
    """Return the key under which an episode is stored: 32 hexadecimal digits.

    If a language model's configuration has ``content`` or ``commit``, the key does not depend on the names of model and base.
    """
    text = json.dumps([environment, by_content(policy), seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def by_content(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's configuration without the names of language models whose weights it identifies."""
    names = _NAMES if "backend" in config and config.keys() & set(_CONTENT) else ()
    return {key: by_content(value) if isinstance(value, Mapping) else value for key, value in config.items() if key not in names}


def turn_rngs(environment: Mapping[str, Any], policy_seed: int, seed: int) -> Callable[[int], np.random.Generator]:
    """Return a function from a step to the random generator of its turn. Equal arguments give equal generators.

    `environment` is what identifies the environment; the seeds are the policy's and the episode's.
    """
    words = int.from_bytes(hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).digest()[:8])
    return lambda step: np.random.default_rng([policy_seed, words, seed, step])


def tempered(probabilities: Sequence[float], temperature: float) -> np.ndarray:
    """Return the probabilities to the power of 1 / temperature, rescaled to sum to 1. The temperature is above 0.

    `top_p`, `top_k` and `min_p` limit the tokens of words and thoughts; among valid actions any may be drawn.
    """
    # scaled so that the most probable choice has weight 1: else all weights could round to 0
    weights: np.ndarray = (np.array(probabilities) / max(probabilities)) ** (1 / temperature)
    shares: np.ndarray = weights / weights.sum()
    return shares
