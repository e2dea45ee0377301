"""`Work`: the seeds of jobs, divided among workers. A worker gets fewer at a time as the work runs out."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from gym_text_policies.engines.base import Job


@dataclass
class Task:
    """Seeds of a job that a worker plays."""

    worker: Any
    job: int
    """Index of the job."""
    seeds: set[int]
    """Seeds whose episodes have not ended."""


@dataclass
class Work:
    """Seeds that no worker has, and seeds that workers play now."""

    jobs: list[Job[Any]]
    left: list[deque[int]]
    """For each job the seeds that no worker has."""
    tasks: dict[Any, Task] = field(default_factory=dict)
    """Stream of results -> the task that it belongs to."""
    deaths: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(job, seed) -> number of workers that died while they had it."""

    def take(self, workers: int) -> tuple[int, list[int]] | None:
        """Return the index of a job and some of its seeds, for one worker of `workers`; None if no seed is left."""
        job = next((i for i, seeds in enumerate(self.left) if seeds), None)
        if job is None:
            return None
        share = -(-sum(map(len, self.left)) // workers)
        size = max(min(self.jobs[job].num_envs, share), -(-share // 4))
        return job, [self.left[job].popleft() for _ in range(min(size, len(self.left[job])))]

    def put_back(self, task: Task) -> None:
        """Put the unfinished seeds of a dead worker back, and count its death."""
        self.left[task.job].extendleft(sorted(task.seeds, reverse=True))
        self.deaths.update((task.job, seed) for seed in task.seeds)

    def worst(self, task: Task) -> tuple[int, int]:
        """Return the seed of a dead worker over which most workers died, and how many. Without unfinished seeds: 0 and 0."""
        worst = max(task.seeds, key=lambda seed: self.deaths[task.job, seed], default=None)
        return (0, 0) if worst is None else (worst, self.deaths[task.job, worst])
