"""`Engine` plays an `EpisodeJob`: a policy and an environment by their names, so that any process can make both."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import gymnasium as gym

from gym_text_policies.backends.providers.budget import RunSpending, counted_together
from gym_text_policies.environments import environment_maker
from gym_text_policies.game import MakeEnv
from gym_text_policies.load import load_when_asked
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import Policy, environment_config, episode_key
from gym_text_policies.records import Episode
from gym_text_policies.rollouts import rollout


@dataclass(frozen=True)
class EpisodeJob:
    """A policy in an environment; each seed is an episode."""

    environment: str
    """Name of the environment, with keyword arguments as in ``BabyAIText-v0?task=goto``; see `environment_maker`."""
    arguments: Mapping[str, Any]
    """More keyword arguments of the environment, such as the fold."""
    policy: PolicyConfig
    """Who plays."""
    num_envs: int = dataclasses.field(default=8, kw_only=True)
    """Episodes that run at once in a process. A model in that process decides for all of them in one batch."""
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

    def play(self, seeds: Sequence[int], held: dict[str, Any]) -> Iterator[Episode]:
        """Yield the episode of each seed when it ends.

        With one worker if the model is in this process, with many workers if it is a provider's.

        Args:
            seeds: The seeds to play.
            held: What the process keeps from job to job, such as models.
        """
        make_env, policy, _ = self.player(held)
        if policy.remote:
            return rollout(make_env, policy, seeds, workers=self.max_concurrency, num_envs=1)
        return rollout(make_env, policy, seeds, num_envs=self.num_envs)

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
        noticed = ("mode", *thoughts, *draws, "max_tokens", "pictures")
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
    def play(self, work: Sequence[tuple[EpisodeJob, Sequence[int]]]) -> Iterator[Episode]:
        """Play jobs, each with its seeds, and yield each episode when it ends."""

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """End the processes and release the models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class LocalEngine(Engine):
    """Plays in this process, one job after the other; each job's policy is made once."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, Any] = {}

    def identify(self, job: EpisodeJob) -> Identity:
        """Make the job's policy unless it is made already, and return the identity of the job's episodes."""
        return job.player(self._held)[2]

    def _check(self, job: EpisodeJob) -> None:
        """Check the job's policy."""
        job.player(self._held)[1].check()

    def play(self, work: Sequence[tuple[EpisodeJob, Sequence[int]]]) -> Iterator[Episode]:
        """Play one job after the other."""
        for job, seeds in work:
            yield from job.play(seeds, self._held)


@dataclass
class Task:
    """Seeds of a job that a worker plays."""

    job: EpisodeJob
    seeds: set[int]
    """Seeds whose episodes have not ended."""


class WaitingSeeds:
    """The seeds of jobs that no worker has. A worker gets fewer at a time as they run out, so that all end together.

    Guided self-scheduling, Polychronopoulos and Kuck 1987.

    Args:
        work: Jobs, and the seeds of each.
        workers: How many play.
    """

    def __init__(self, work: Sequence[tuple[EpisodeJob, Sequence[int]]], workers: int) -> None:
        self._work = [(job.for_one_of(workers), deque(seeds)) for job, seeds in work]
        self._workers = workers
        self._deaths: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return any(seeds for _, seeds in self._work)

    def take(self) -> Task | None:
        """Return some seeds of a job for one worker; None if none is left. Seeds over which a worker died come alone."""
        job, seeds = next(((job, seeds) for job, seeds in self._work if seeds), (None, deque[int]()))
        if job is None:
            return None
        share = -(-sum(len(left) for _, left in self._work) // self._workers)
        size = 1 if self._deaths[job.describe(seeds[0])] else max(min(job.num_envs, share), -(-share // 4))
        return Task(job, {seeds.popleft() for _ in range(min(size, len(seeds)))})

    def put_back(self, task: Task) -> tuple[str, int]:
        """Put the unfinished seeds of a dead worker back; return the episode over which most workers died, and how many."""
        next(seeds for job, seeds in self._work if job == task.job).extendleft(sorted(task.seeds, reverse=True))
        self._deaths.update(task.job.describe(seed) for seed in task.seeds)
        return max(((name, self._deaths[name]) for name in map(task.job.describe, task.seeds)), key=lambda found: found[1])
