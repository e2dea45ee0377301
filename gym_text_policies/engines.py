"""Where episodes are played: in this process, or spread over a Ray cluster. Both play the same `rollout`."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import gymnasium as gym

from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_policy
from gym_text_policies.policy import Policy, environment_config, episode_key
from gym_text_policies.records import Episode
from gym_text_policies.rollout import MakeEnv, rollout


@dataclass(frozen=True)
class Job:
    """A policy in an environment, both by name, so that any process can make them."""

    environment: str
    """Its name, with keyword arguments as in ``BabyAIText-v0?task=goto``; see `environment_maker`."""
    arguments: Mapping[str, Any]
    """More keyword arguments, such as the fold."""
    policy: Mapping[str, Any]
    """Options of `load_policy`, ``model`` among them; plain JSON."""
    batch: int = 8
    """Episodes that run at once, asking a model in this process together."""
    max_concurrency: int = 50
    """Requests to a provider that wait at once, over all processes."""

    def make_policy(self, env: gym.Env[Any, Any]) -> Policy:
        """Make the policy."""
        return load_policy(env=env, **self.policy)

    def share(self, processes: int) -> Job:
        """Return what one of so many processes does: with its part of the requests at once, and of the limits on spending."""
        limits = {name: self.policy[name] / processes for name in ("max_cost",) if self.policy.get(name)}
        limits |= {name: max(1, self.policy[name] // processes) for name in ("max_total_tokens",) if self.policy.get(name)}
        at_once = -(-self.max_concurrency // processes)
        return dataclasses.replace(self, policy={**self.policy, **limits}, max_concurrency=at_once)

    def play(self, seeds: Sequence[int], held: dict[str, Any], watch: Callable[[int], None] | None = None) -> Iterator[Any]:
        """Play its episodes, and yield each as it ends; whatever is yielded knows its `seed`.

        Args:
            seeds: Of the episodes.
            held: What a process keeps from job to job.
            watch: Called with the number of turns that have been decided.
        """
        make_env, policy, _ = self.player(held)
        at_once = {"workers": self.max_concurrency, "batch": 1} if policy.remote else {"batch": self.batch}
        yield from rollout(make_env, policy, seeds, watch=watch, **at_once)

    def player(self, held: dict[str, Any]) -> tuple[MakeEnv, Policy, Identity]:
        """Return what plays; it is made once for each process."""
        if self.name not in held:
            make_env = environment_maker(self.environment, **self.arguments)
            env = make_env()
            policy = self.make_policy(env)
            held[self.name] = make_env, policy, Identity(environment_config(policy.wrap(env)), policy.config)
            env.close()
        player: tuple[MakeEnv, Policy, Identity] = held[self.name]
        return player

    def describe(self, seed: int) -> str:
        """Say what an episode is."""
        return f"{self.environment}, seed {seed}, policy {self.policy.get('model')}"

    @property
    def name(self) -> str:
        """A text that no other job has."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)


@dataclass(frozen=True)
class Identity:
    """What identifies the episodes of a job."""

    environment: Mapping[str, Any]
    """The environment's configuration."""
    policy: Mapping[str, Any]
    """The policy's configuration."""

    def key(self, seed: int) -> str:
        """Return the key of the episode of a seed."""
        return episode_key(self.environment, self.policy, seed)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where episodes are played."""

    engine: Literal["local", "ray"] = "local"
    """In this process, or spread over a Ray cluster: the one at RAY_ADDRESS, or a new one on this machine."""
    ray_workers: int = 0
    """Ray: number of processes that play, each with the model in its memory; 0: as many as the cluster has room for."""
    ray_cpus: int = 1
    """Ray: CPU cores of each of them."""
    ray_gpus: float = 0.0
    """Ray: GPUs of each of them, or the share of one."""

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ("local", "ray"))
        check_int("ray_workers", self.ray_workers, 0, 1_000_000)
        check_int("ray_cpus", self.ray_cpus, 1, 10_000)
        if not self.ray_gpus >= 0:
            raise UsageError(f"ray_gpus: expected a number of at least 0; got {self.ray_gpus!r}.")

    def make_engine(self) -> Engine:
        """Return the engine; close it in the end.

        Raises:
            MissingDependencyError: If Ray is asked for and not installed.
        """
        if self.engine == "local":
            return LocalEngine()
        from gym_text_policies.cluster import RayEngine

        return RayEngine(self.ray_workers, cpus=self.ray_cpus, gpus=self.ray_gpus)


ENGINE_OPTIONS = tuple(field.name for field in dataclasses.fields(EngineOptions))
"""Names of the options, on which no episode depends."""


class Engine(ABC):
    """Plays jobs. What comes out does not depend on the engine, timings and the order aside."""

    spreads = False
    """Whether it plays several jobs at the same time."""

    @abstractmethod
    def identify(self, job: Job) -> Identity:
        """Return what identifies the job's episodes.

        Raises:
            UsageError: If the job names an environment, a model or options that do not exist.
        """

    @abstractmethod
    def play(self, work: Sequence[tuple[Job, Sequence[int]]], *, watch: Callable[[int], None] | None = None) -> Iterator[Episode]:
        """Play the episodes of these jobs and seeds, and yield each as it ends.

        Args:
            work: Jobs, and the seeds of each.
            watch: Called with the number of turns that have been decided, where the engine knows it before the episode's end.
        """

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Let go of processes and models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class LocalEngine(Engine):
    """Plays in this process, one job after the other; each job's policy is made once."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def identify(self, job: Job) -> Identity:
        """Make the job's policy, if it has not been made, and return what identifies its episodes."""
        return job.player(self._held)[2]

    def play(self, work: Sequence[tuple[Job, Sequence[int]]], *, watch: Callable[[int], None] | None = None) -> Iterator[Episode]:
        """Play one job after the other."""
        for job, seeds in work:
            yield from job.play(seeds, self._held, watch)
