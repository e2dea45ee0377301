"""`Agent`: a policy for your own loop; it keeps the history of the episode."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from gym_text.errors import check_int
from gym_text.folds import MAX_SEED
from gym_text_policies.files.json_data import plain
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import Depth
from gym_text_policies.policies.parsing import parse_fields
from gym_text_policies.policy import environment_config, turn_rngs
from gym_text_policies.records import Decision, Turn
from gym_text_policies.run.experiment import AgentConfig


class Agent:
    """Decide in your own loop, in an environment without the policy's wrappers.

    A policy that looks ahead needs copies of the game, so play it in ``agent.policy.wrap(env)``.

    >>> import gymnasium as gym, gym_text
    >>> env = gym.make("BabyAIText-v0")
    >>> agent = Agent("scripted:go forward|turn left", env, history=4)
    >>> obs, info = env.reset(seed=0)
    >>> agent.reset(seed=0)
    >>> raw, action = agent.get_action(obs)
    >>> raw["action_name"], action
    ('go forward', 2)

    Args:
        config: The section ``agent`` of an experiment, as an `AgentConfig` or a mapping; or the name of a model.
        env: The environment to play, for its `text_spec`.
        settings: Keys of that section; they replace the config's.
    """

    def __init__(self, config: AgentConfig | Mapping[str, Any] | str, env: gym.Env[Any, Any], **settings: Any) -> None:
        if isinstance(config, str):
            config = {"model": config}
        keys = {**config.to_json(), "backend": config.backend} if isinstance(config, AgentConfig) else dict(config)
        self.config = AgentConfig(**{**keys, **settings})
        player = self.config.player()
        self.policy = load_policy(player, env)
        self._environment = environment_config(self.policy.wrap(env)) if env.spec else {"text_spec": self.policy.spec.to_json()}
        self._episodes = itertools.count()
        self._depth: Depth = player.settings["history"] if player.asks_model else 0
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode and forget the last one.

        The seed also seeds what the policy draws at random, as in `rollout`. With None it is the number of earlier episodes that
        began without a seed.
        """
        number = next(self._episodes) if seed is None else check_int("seed", seed, 0, MAX_SEED)
        self._rngs = turn_rngs(self._environment, self.policy.seed, number)
        self._pairs: list[tuple[str, str]] = []
        self._earlier: list[dict[str, Any]] = []
        self._turn = Turn({}, self._rngs(0))
        self.decision: Decision | None = None
        """The last decision."""

    def get_action(self, obs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Decide on an observation; return the model's answer (see `raw_answer`) and the environment's action."""
        obs = dict(obs)
        if self._depth:
            first = 0 if self._depth == "all" else -self._depth
            obs.setdefault("history", tuple(self._pairs[first:]))
            obs.setdefault("earlier", tuple(self._earlier[first:]))
        turn = dataclasses.replace(self._turn, obs=obs, rng=self._rngs(self._turn.step))
        self.decision = self.policy.decide([turn])[0]
        action = self.policy.spec.encode(self.decision.action, obs)
        self._turn = turn.after(self.decision)
        if self._depth:
            self._pairs.append((obs["text"], self.decision.action))
            self._earlier.append({key: value for key, value in obs.items() if key not in ("history", "earlier")})
        return raw_answer(self.decision, action), action


def raw_answer(decision: Decision, action: Any) -> dict[str, Any]:
    """Return an answer as plain JSON.

    It has ``action``, as the environment takes it, ``action_name``, ``valid``, and the model's text as ``answer``. Where they are
    known, it has ``probabilities``, ``visits`` and ``values``. The other parts of an answer in JSON are keys as well.
    """
    parts = parse_fields(decision.completion, finish=decision.finish) if decision.completion else None
    raw = {name: value for name, value in (parts or {}).items() if name != "action"}
    if decision.reasoning not in (None, decision.completion) and not raw:
        raw["reasoning"] = decision.reasoning
    raw |= {"action": plain(action), "action_name": decision.action, "valid": decision.valid}
    if decision.completion is not None:
        raw["answer"] = decision.completion
    for name in ("probabilities", "visits", "values"):
        if (numbers := getattr(decision, name)) is not None:
            raw[name] = dict(numbers)
    return raw
