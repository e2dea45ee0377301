"""`Engine`, and the jobs that it plays. An `EpisodeJob` names a policy and an environment, so any process can make both."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import gymnasium as gym

from gym_text_policies.backends.providers.budget import RunSpending, counted_together
from gym_text_policies.environments import environment_maker
from gym_text_policies.game import MakeEnv
from gym_text_policies.load import load_when_asked
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import Policy, environment_config, episode_key
from gym_text_policies.records import Episode
from gym_text_policies.rollouts import rollout

Count = Callable[[int], None]
"""Called with the number of turns that have been decided."""


class Turns(NamedTuple):
    """Turns of a job that a process has decided."""

    job: int
    """Index of the job in the engine's work."""
    process: int
    """Number of the process, from 0 on; two that play at the same time have different ones."""
    decided: int
    """How many."""


Watch = Callable[[Turns], None]
"""Called with turns that have been decided since the last call for this job and process."""


class Seeded(Protocol):
    """The result of one seed of a job."""

    @property
    def seed(self) -> int:
        """The seed."""


R = TypeVar("R", bound=Seeded)


@dataclass(frozen=True)
class Job(ABC, Generic[R]):
    """Work that any process can do: a result for each seed."""

    environment: str
    """Name of the environment, with keyword arguments as in ``BabyAIText-v0?task=goto``; see `environment_maker`."""
    num_envs: int = dataclasses.field(default=8, kw_only=True)
    """Episodes that run at once in a process. A model in that process decides for all of them in one batch."""

    @abstractmethod
    def play(self, seeds: Sequence[int], held: dict[str, Any], watch: Count | None = None) -> Iterator[R]:
        """Yield the result of each seed as soon as it is ready.

        Args:
            seeds: The seeds to play.
            held: What the process keeps from job to job, such as models.
            watch: Called with the number of turns that have been decided.
        """

    @abstractmethod
    def describe(self, seed: int) -> str:
        """Describe what is played for a seed, for errors."""

    def for_one_of(self, processes: int) -> Self:
        """Return the job for one of several processes, with its share of the limits on requests and spending."""
        return self


@dataclass(frozen=True)
class EpisodeJob(Job[Episode]):
    """A policy in an environment; each seed is an episode."""

    arguments: Mapping[str, Any]
    """More keyword arguments of the environment, such as the fold."""
    policy: PolicyConfig
    """Who plays."""
    max_concurrency: int = dataclasses.field(default=50, kw_only=True)
    """Most requests that wait for a provider's answer at the same time, over all processes."""

    def make_policy(self, env: gym.Env[Any, Any]) -> Policy:
        """Make the policy."""
        return load_when_asked(self.policy, env)

    def for_one_of(self, processes: int) -> Self:
        """Return the job for one of several processes, with its share of the limits on requests and spending."""
        options = dict(self.policy.options)
        if options.get("max_cost"):
            options["max_cost"] /= processes
        if options.get("max_total_tokens"):
            options["max_total_tokens"] = max(1, options["max_total_tokens"] // processes)
        policy = dataclasses.replace(self.policy, options=options)
        return dataclasses.replace(self, policy=policy, max_concurrency=-(-self.max_concurrency // processes))

    def play(self, seeds: Sequence[int], held: dict[str, Any], watch: Count | None = None) -> Iterator[Episode]:
        """Play the episodes: with one worker if the model is in this process, with many workers if it is a provider's."""
        make_env, policy, _ = self.player(held)
        if policy.remote:
            return rollout(make_env, policy, seeds, watch=watch, workers=self.max_concurrency, num_envs=1)
        return rollout(make_env, policy, seeds, watch=watch, num_envs=self.num_envs)

    def player(self, held: dict[str, Any]) -> tuple[MakeEnv, Policy, Identity]:
        """Return the environment's maker, the policy and their identity. A process makes them once."""
        name = json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)
        if name not in held:
            make_env = environment_maker(self.environment, **self.policy.rendering | dict(self.arguments))
            env = make_env()
            with counted_together(held.setdefault("spending", RunSpending())):  # all policies of a run share its limits on spending
                policy = self.make_policy(env)
            held[name] = make_env, policy, Identity(environment_config(policy.wrap(env)), policy.config)
            env.close()
        player: tuple[MakeEnv, Policy, Identity] = held[name]
        return player

    @property
    def asks(self) -> str:
        """The settings on which the requests to the model's server depend, as a text."""
        thoughts, draws = ("think", "think_tokens", "history_thoughts"), ("temperature", "top_p", "top_k", "min_p")
        noticed = ("mode", *thoughts, *draws, "max_tokens", "pictures", "picture_size")
        settings = {name: self.policy.settings.get(name) for name in noticed}
        return json.dumps([self.policy.model, dict(self.policy.options), settings], sort_keys=True, default=str)

    def describe(self, seed: int) -> str:
        """Describe the episode of a seed."""
        return f"{self.environment}, seed {seed}, policy {self.policy.model}"


@dataclass(frozen=True)
class Identity:
    """Identifies the episodes of a job."""

    environment: Mapping[str, Any]
    """The environment's configuration."""
    policy: Mapping[str, Any]
    """The policy's configuration."""

    def key(self, seed: int) -> str:
        """Return the key of the episode of a seed."""
        return episode_key(self.environment, self.policy, seed)


class Engine(ABC):
    """Plays jobs. The results do not depend on the engine; their order and timings do."""

    spreads = False
    """Whether it plays several jobs at the same time."""

    def __init__(self) -> None:
        self._asked: set[str] = set()  # `EpisodeJob.asks` of the jobs that were checked

    @abstractmethod
    def identify(self, job: EpisodeJob) -> Identity:
        """Return the identity of the job's episodes.

        Raises:
            UsageError: If the job names an environment, a model or settings that do not exist.
        """

    def check(self, job: EpisodeJob) -> None:
        """Check by `Policy.check` whether the job's policy can decide. Jobs with equal requests are checked once.

        Raises:
            UsageError: If the policy cannot decide; the message says how to repair it.
        """
        if job.asks not in self._asked:
            self._check(job)
            self._asked.add(job.asks)

    @abstractmethod
    def _check(self, job: EpisodeJob) -> None:
        """Check the job's policy."""

    @abstractmethod
    def play(self, work: Sequence[tuple[Job[R], Sequence[int]]], *, watch: Watch | None = None) -> Iterator[R]:
        """Play jobs, and yield each result as it is ready.

        Args:
            work: Jobs, and the seeds of each.
            watch: Called with turns that have been decided. An engine that learns of turns only when an episode ends does not
                call it.
        """

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """End the processes and release the models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
