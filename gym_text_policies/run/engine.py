"""`Engine` plays rows of a plan, whose policy and environment are names, so that any process can make both."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gym_text.errors import RunError
from gym_text_policies.backends.base import THINKING
from gym_text_policies.backends.providers.budget import RunSpending, counted_together
from gym_text_policies.environments import environment_maker
from gym_text_policies.game import MakeEnv
from gym_text_policies.load import load_to_measure
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import Policy, environment_config
from gym_text_policies.records import Episode
from gym_text_policies.rollouts import rollout
from gym_text_policies.run.plan import PlanRow

Identity = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The configurations of the environment and of the policy, which with a seed identify an episode."""
_MOST_DEATHS = 3
"""Workers that may die while they play the same episode, or load the same model; one more stops the run."""
_OF_REQUESTS = (
    *THINKING,
    *("mode", "history_thoughts", "temperature", "top_p", "top_k", "min_p", "max_tokens", "pictures"),
)
"""Settings on which the requests to a model's server depend, beside the model and its options."""


class Engine(ABC):
    """Plays rows. The results do not depend on the engine; their order and timings do.

    Args:
        num_envs: Episodes that run at once in a process. A model in that process decides for all of them in one batch.
        max_concurrency: Most requests that wait for a provider's answer at the same time, over all processes.
    """

    spreads = False
    """Whether it plays several rows at the same time."""

    def __init__(self, num_envs: int = 8, max_concurrency: int = 50) -> None:
        self._num_envs = num_envs
        self._max_concurrency = max_concurrency
        self._checked: set[str] = set()

    @abstractmethod
    def identify(self, row: PlanRow) -> Identity:
        """Return what identifies the row's episodes; raise `UsageError` if the row names what does not exist."""

    def check(self, row: PlanRow) -> None:
        """Check by `Policy.check` whether the row's policy can decide, once for equal requests about an environment."""
        settings = {name: row.policy.settings.get(name) for name in _OF_REQUESTS}
        asked = [row.environment, row.policy.model, dict(row.policy.options), settings]
        request = json.dumps(asked, sort_keys=True, default=str)
        if request not in self._checked:
            self.ask_policy(row)
            self._checked.add(request)

    @abstractmethod
    def ask_policy(self, row: PlanRow) -> None:
        """Check the row's policy."""

    @abstractmethod
    def play(self, rows: Sequence[PlanRow]) -> Iterator[Episode]:
        """Play the seeds of rows, and yield each episode when it ends."""

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """End the processes and release the models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalEngine(Engine):
    """Plays in this process, one row after the other; each policy is made once."""

    def __init__(self, num_envs: int = 8, max_concurrency: int = 50) -> None:
        super().__init__(num_envs, max_concurrency)
        self._players: dict[str, tuple[MakeEnv, Policy, Identity]] = {}
        self._spending = RunSpending()

    def identify(self, row: PlanRow) -> Identity:
        """Make the row's policy unless it is made already, and return what identifies the row's episodes."""
        return self._player(row)[2]

    def ask_policy(self, row: PlanRow) -> None:
        """Check the row's policy; a server is asked about the actions of the row's first state."""
        make_env, policy, _ = self._player(row)
        names: Sequence[str] = ()
        if policy.remote:
            with contextlib.closing(make_env()) as env:
                names = policy.spec.names(env.reset(seed=row.seeds[0])[0])
        policy.check(names)

    def play(self, rows: Sequence[PlanRow]) -> Iterator[Episode]:
        """Play one row after the other: with one worker if its model is in this process, with many if it is a provider's."""
        for row in rows:
            make_env, policy, _ = self._player(row)
            if policy.remote:
                yield from rollout(make_env, policy, row.seeds, workers=self._max_concurrency, num_envs=1)
            else:
                yield from rollout(make_env, policy, row.seeds, num_envs=self._num_envs)

    def _player(self, row: PlanRow) -> tuple[MakeEnv, Policy, Identity]:
        """Return the environment's maker, the policy and what identifies both."""
        name = json.dumps([row.environment, dict(row.arguments), dataclasses.asdict(row.policy)], sort_keys=True, default=str)
        if name not in self._players:
            make_env = environment_maker(row.environment, **row.policy.rendering | dict(row.arguments))
            with contextlib.closing(make_env()) as env:
                with counted_together(self._spending):  # all policies of a run share its limits on spending
                    policy = load_to_measure(row.policy, env)
                self._players[name] = make_env, policy, (environment_config(policy.wrap(env)), policy.config)
        return self._players[name]


class WorkerDiedError(Exception):
    """A worker died while it did something."""


@dataclass
class Task:
    """Seeds of a row that a worker plays; those whose episodes have not ended."""

    row: PlanRow
    seeds: set[int]


class SpreadEngine(Engine):
    """Plays in several workers, each with a `LocalEngine`. If a worker dies, others play its unfinished seeds."""

    spreads = True

    def __init__(self, workers: int, num_envs: int, max_concurrency: int) -> None:
        super().__init__(num_envs, max_concurrency)
        self._size = workers
        self._limits = num_envs, -(-max_concurrency // workers)  # of each worker's engine

    def identify(self, row: PlanRow) -> Identity:
        """Let a worker make the row's policy; return what identifies its episodes. This process loads no model."""
        identity: Identity = self._ask("identify", row)
        return identity

    def ask_policy(self, row: PlanRow) -> None:
        """Let one worker check the row's policy. If its model is in the process, the others load it when they play."""
        self._ask("ask_policy", row)

    def play(self, rows: Sequence[PlanRow]) -> Iterator[Episode]:
        """Play all rows at the same time; raise `RunError` if several workers died while they played one episode."""
        waiting, tasks, deaths = deque(self.divided(rows)), dict[Any, Task](), Counter[str]()
        try:
            while tasks or waiting:
                while waiting and len(tasks) < self._size:
                    task = waiting.popleft()
                    tasks[self._submit(task)] = task
                number, episode = self._receive(tasks)
                task = tasks[number]
                if episode is None:
                    del tasks[number]
                    waiting.extendleft(_left_by_dead_worker(task, deaths))
                elif episode.seed in task.seeds:
                    task.seeds.discard(episode.seed)
                    yield episode
        finally:
            if tasks:  # the caller left early, so the workers stop
                self._cancel(tasks)

    def divided(self, rows: Sequence[PlanRow]) -> Iterator[Task]:
        """Divide the seeds of rows into tasks: several for each worker, so that all end at about the same time."""
        share = -(-sum(len(row.seeds) for row in rows) // self._size)
        size = max(1, min(self._num_envs, share), share // 8)
        for row in rows:
            for first in range(0, len(row.seeds), size):
                yield Task(self._part(row), set(row.seeds[first : first + size]))

    def _ask(self, method: str, row: PlanRow) -> Any:
        """Return the result of a method of one worker's engine."""
        for _ in range(_MOST_DEATHS):
            with contextlib.suppress(WorkerDiedError):
                return self._call(method, self._part(row))
        raise RunError(f"Expected a worker to load {row.policy.model}; {_MOST_DEATHS} ended. The memory may be too small.")

    def _part(self, row: PlanRow) -> PlanRow:
        return dataclasses.replace(row, policy=share_of(row.policy, self._size))

    @abstractmethod
    def _call(self, method: str, row: PlanRow) -> Any:
        """Return the result of a method of a worker's engine; raise `WorkerDiedError` if the worker dies."""

    @abstractmethod
    def _submit(self, task: Task) -> Any:
        """Let a worker play a task; return what identifies it."""

    @abstractmethod
    def _receive(self, tasks: Mapping[Any, Task]) -> tuple[Any, Episode | None]:
        """Wait for a task's next episode, and return both; None in its place if the task has ended, or its worker has died."""

    @abstractmethod
    def _cancel(self, tasks: Mapping[Any, Task]) -> None:
        """Stop what the workers play."""


def share_of(policy: PolicyConfig, workers: int) -> PolicyConfig:
    """Return a policy for one of several workers, with its share of the limits on spending."""
    options = dict(policy.options)
    if options.get("max_cost"):
        options["max_cost"] /= workers
    if options.get("max_total_tokens"):
        options["max_total_tokens"] = max(1, options["max_total_tokens"] // workers)
    return dataclasses.replace(policy, options=options)


def _left_by_dead_worker(task: Task, deaths: Counter[str]) -> Iterator[Task]:
    """Yield a task for each seed that a dead worker has left; raise `RunError` if too many have died over one of them."""
    for seed in sorted(task.seeds, reverse=True):
        episode = f"{task.row.environment}, seed {seed}, policy {task.row.policy.model}"
        deaths[episode] += 1
        if deaths[episode] > _MOST_DEATHS:
            raise RunError(
                f"Expected a worker to survive {episode}; {deaths[episode]} ended while it was played. "
                "The memory may be too small: try fewer workers."
            )
        yield Task(task.row, {seed})
