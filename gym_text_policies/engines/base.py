"""What an engine plays: jobs, each a policy in an environment."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import gymnasium as gym

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
