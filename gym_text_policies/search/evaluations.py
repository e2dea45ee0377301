"""The value of a policy's parameters, the mean return of rollouts on fixed seeds, and the records of a search: `Evaluation`.

The loop here, `play`, is not `rollout`: it makes no texts, prompts and records, and a step takes a quarter to a third of the time.
Returns are equal in both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gym_text.errors import EngineError
from gym_text.mountain_car_vector import Played, PlayTogether
from gym_text.wrappers import DescribeObservation
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.files.json_data import check_json
from gym_text_policies.files.run_folders import RunFolder
from gym_text_policies.policies.parametric import Form, form_of
from gym_text_policies.store import RecordStore

_AT_ONCE = 64
"""Number of policies that are rolled out together if the environment plays all rollouts in one computation."""


class Evaluator:
    """Rolls out policies of the form that fits an environment, each on the same seeds; for the arguments see `SearchConfig`.

    A rollout does not depend on how many others are played at once.
    """

    def __init__(self, environment: str, seeds: Sequence[int], *, bias: bool, bounds: tuple[float, float]) -> None:
        self.seeds = tuple(seeds)
        self._env = environment_maker(environment, **fold_arguments(environment, None))()
        self.form = form_of(self._env, bias=bias, bounds=bounds)
        self.spec = self._env.get_wrapper_attr("text_spec")
        self._limit = (self._env.spec and self._env.spec.max_episode_steps) or -1
        self._play_together: PlayTogether | None = getattr(self._env, "play_together", None) if self._limit > 0 else None
        self.at_once = _AT_ONCE if self._play_together else 1

    def __call__(self, batch: Sequence[Sequence[float]]) -> list[Sequence[Played]]:
        """Return the rollouts of each policy, given the parameters of each."""
        pairs = [(parameters, seed) for parameters in batch for seed in self.seeds]
        if self._play_together:
            values = np.array([parameters for parameters, _ in pairs], dtype=np.float64)
            act = lambda obs, episodes: self.form.act(values[episodes], obs.astype(np.float64))[:, 0]  # noqa: E731
            rollouts = self._play_together(act, [seed for _, seed in pairs], self._limit)
        else:
            rollouts = [play(self._env, self.form, *pair) for pair in pairs]
        n = len(self.seeds)
        return [rollouts[i * n : (i + 1) * n] for i in range(len(batch))]

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def play(env: gym.Env[Any, Any], form: Form, values: Sequence[float], seed: int) -> Played:
    """Play one episode with a policy's parameters."""
    weights = np.array([values], dtype=np.float64)
    described = isinstance(env, DescribeObservation)
    game: gym.Env[Any, Any] = env.env if isinstance(env, DescribeObservation) else env  # the policy reads no texts
    read = (lambda obs: form.numbers({form.keys[0]: obs})) if described and len(form.keys) == 1 else form.numbers
    obs, info = (env if described and len(form.keys) > 1 else game).reset(seed=seed)
    observations, actions, total, over = [read(obs)], [], 0.0, False
    while not over:
        action = form.act(weights, observations[-1][None])[0]
        obs, reward, terminated, truncated, info = game.step(action if action.ndim else int(action))
        total, over = total + float(reward), bool(terminated or truncated)
        observations.append(read(obs))
        actions.append(action)
        if not (math.isfinite(total) and np.isfinite(observations[-1]).all()):
            name = env.spec.id if env.spec else str(env)
            got = f"{reward} and {observations[-1]}"
            raise EngineError(f"{name}, seed {seed}, step {len(actions)}: expected a finite reward and observation; got {got}.")
    success = bool(info.get("success", False))
    if isinstance(env, DescribeObservation) and "success" not in info:
        success = env.succeeded(obs, float(reward), bool(terminated), bool(truncated), total)
    return Played(total, len(actions), success, np.array(observations), np.array(actions))


def summarise(rollouts: Sequence[Played], names: Sequence[str]) -> str:
    """Describe rollouts: how many succeeded, how long they were, and the ranges of the observed numbers."""
    lengths = [rollout.length for rollout in rollouts]
    won = sum(rollout.success for rollout in rollouts)
    parts = [f"{won} of {len(rollouts)} episodes succeeded, {np.mean(lengths):.0f} steps on average"]
    seen = np.concatenate([rollout.observations for rollout in rollouts])
    if seen.size and seen.shape[1] == len(names) and len(names) <= 12:
        parts.append(
            ", ".join(f"{n} {low:.3g} to {high:.3g}" for n, low, high in zip(names, seen.min(0), seen.max(0), strict=True))
        )
    actions = np.concatenate([rollout.actions.reshape(rollout.length, -1) for rollout in rollouts])
    if actions.size:
        parts.append(f"mean action {', '.join(f'{value:.2g}' for value in actions.mean(axis=0))}")
    return "; ".join(parts)


@dataclass(frozen=True)
class Proposal:
    """Parameters to try, and their source."""

    parameters: tuple[float, ...]
    """The values to try, in the order of the policy's names."""
    source: str
    """What proposed them: ``model``, ``random``, ``cma`` … ``random instead`` is a random proposal in place of unusable
    answers."""
    reason: str | None = None
    """The reason that the model gave."""
    answers: tuple[str, ...] = ()
    """All answers of the model, including the unusable ones."""
    rejections: tuple[str, ...] = ()
    """Why each unusable answer was rejected."""
    tokens_in: int = 0
    """Tokens that the model read, over all answers."""
    tokens_cached: int = 0
    """Those of `tokens_in` that an earlier call had cached. Tokens that proposals from one prompt share do not count as cached."""
    tokens_out: int = 0
    """Tokens that the model wrote."""
    tokens_reasoning: int = 0
    """The part of `tokens_out` that belongs to thoughts."""
    thoughts: tuple[str, ...] = ()
    """What the model thought before each answer; empty if it never thought."""
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0
    """Time that the proposal took. Several proposals from one prompt have equal shares of its time."""


@dataclass(frozen=True)
class Evaluation:
    """One proposal and its value."""

    index: int
    """Its number in the search, from 0."""
    proposal: Proposal
    """What was tried."""
    returns: tuple[float, ...]
    """Return of each rollout, in the order of the seeds."""
    lengths: tuple[int, ...]
    """Number of steps of each rollout."""
    successes: int
    """Number of rollouts that succeeded."""
    summary: str = ""
    """A description of the rollouts in words."""
    error: ClassVar[None] = None
    """None: a rollout that fails ends the search."""

    @property
    def key(self) -> str:
        """Its key in the store."""
        return str(self.index)

    @property
    def value(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def parameters(self) -> tuple[float, ...]:
        """The parameters that were tried."""
        return self.proposal.parameters

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        data = dataclasses.asdict(self)
        fields = {f.name: f.default for f in dataclasses.fields(Proposal)}
        data["proposal"] = {name: value for name, value in data["proposal"].items() if value != fields[name]}
        return {"key": self.key, "error": None, "value": self.value, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that was written as this data by `to_json`.

        Raises:
            KeyError, TypeError, ValueError: If the data is no evaluation.
        """
        check_json("evaluation", data)
        proposal: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data["proposal"].items()
        }
        returns, lengths = tuple(map(float, data["returns"])), tuple(map(int, data["lengths"]))
        return cls(data["index"], Proposal(**proposal), returns, lengths, data["successes"], data["summary"])


def open_evaluations(folder: str | Path, config: Mapping[str, Any] | None = None) -> RecordStore[Evaluation]:
    """Return the store of a search, ``FOLDER/evaluations.jsonl``; see `RunFolder`."""
    return RecordStore(RunFolder(folder, config), "evaluations.jsonl", Evaluation.from_json)


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    evaluations: tuple[Evaluation, ...]
    """All evaluations, in their order."""
    policy: dict[str, Any]
    """The best policy, in the form of ``policy.json``."""

    @property
    def best(self) -> Evaluation:
        """The evaluation of greatest value."""
        return best(self.evaluations)


def best(history: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation of greatest value. If several have this value, return the first of them."""
    return max(history, key=lambda evaluation: evaluation.value)
