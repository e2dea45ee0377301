"""`RayEngine`: the same rollout, spread over the processes of a Ray cluster (https://docs.ray.io).

A task plays some seeds of a job and sends each episode when it ends. Ray keeps its worker processes, and they keep their models and
their JVM from task to task. If a worker dies or its node is lost, Ray plays the task again elsewhere. The process that started the
engine is the only one that writes to the store.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

from gym_text.errors import ClusterError, import_extra
from gym_text_policies.records import Episode
from gym_text_policies.run.engines.jobs import Engine, EpisodeJob, Identity, LocalEngine, Task, WaitingSeeds

_RETRIES = 3
"""How often Ray plays a task again whose worker has died."""


@functools.cache
def _engine() -> LocalEngine:
    """Return the engine of this process."""
    return LocalEngine()


def _call(method: str, job: EpisodeJob) -> Any:
    return getattr(_engine(), method)(job)


def _play(job: EpisodeJob, seeds: Sequence[int]) -> Iterator[Episode]:
    yield from _engine().play([(job, seeds)])


class RayEngine(Engine):
    """Plays on a Ray cluster: the one this process is connected to, else the one at RAY_ADDRESS, else a new one on this machine.

    A worker gets one core, and its share of the cluster's GPUs.

    Args:
        workers: Number of tasks that run at once; 0: as many as the cluster has cores.

    Raises:
        MissingDependencyError: If Ray is not installed.
        ClusterError: If there is no cluster at the address.
    """

    spreads = True

    def __init__(self, workers: int = 0) -> None:
        super().__init__()
        ray = self._ray = import_extra("ray", "ray")
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray)
        room = ray.cluster_resources()
        self._size = workers or max(1, int(room.get("CPU", 1)))
        resources = {"num_cpus": 1, "num_gpus": min(1.0, room.get("GPU", 0) / self._size), "max_retries": _RETRIES}
        self._call = ray.remote(**resources)(_call)
        self._play = ray.remote(**resources, num_returns="streaming")(_play)

    def identify(self, job: EpisodeJob) -> Identity:
        """Let a worker make the job's policy; return the identity of its episodes. This process loads no model."""
        identity: Identity = self._get(self._call.remote("identify", job.for_one_of(self._size)), f"load {job.policy.model}")
        return identity

    def _check(self, job: EpisodeJob) -> None:
        """Let one worker check the job's policy, because the workers send the requests to a model's server."""
        self._get(self._call.remote("check", job.for_one_of(self._size)), f"load {job.policy.model}")

    def play(self, work: Sequence[tuple[EpisodeJob, Sequence[int]]]) -> Iterator[Episode]:
        """Play all jobs at the same time.

        Raises:
            ClusterError: If several workers died while they played one task.
        """
        waiting, streams = WaitingSeeds(work, self._size), dict[Any, Task]()
        try:
            while streams or waiting:
                while len(streams) < self._size and (task := waiting.take()):
                    streams[self._play.remote(task.job, sorted(task.seeds))] = task
                for stream in self._ray.wait(list(streams), num_returns=1, fetch_local=False)[0]:
                    try:
                        reference = next(stream)
                    except StopIteration:
                        task = streams.pop(stream)
                        if task.seeds:  # a task that was played again may end its episodes in another order
                            waiting.put_back(task)
                        continue
                    task = streams[stream]
                    if not task.seeds:  # a task that was played again repeats what has come
                        continue
                    episode = self._get(reference, f"survive {task.job.describe(min(task.seeds))}")
                    if episode.seed in task.seeds:
                        task.seeds.discard(episode.seed)
                        yield episode
        finally:
            for stream in streams:  # if the caller left early, the workers stop
                self._ray.cancel(stream, force=True)

    def close(self) -> None:
        """End the cluster if this engine started it."""
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    def _get(self, reference: Any, what: str) -> Any:
        """Return a result, or raise the error that the worker raised; `what` was expected of the worker."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"Ray: expected a worker to {what}; {_RETRIES + 1} tries failed, the last by: {_sentence(error)} Its memory may be "
                "too small. The same command goes on from here."
            ) from error


def _connect(ray: Any) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns that it will become the default
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        address = os.environ.get("RAY_ADDRESS", "this machine")
        raise ClusterError(
            f"Ray: expected a cluster at {address}; {_sentence(error)} Start one with 'ray start --head'."
        ) from error


def _sentence(error: Exception) -> str:
    """Return the first line of one of Ray's errors, which may fill pages."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
