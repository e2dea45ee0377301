"""`RayEngine`: the same rollout, spread over the processes of a Ray cluster (https://docs.ray.io).

A task plays some seeds of a row and sends each episode when it ends. Ray keeps its worker processes, and they keep their models and
their JVM from task to task. The process that started the engine is the only one that writes to the store.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from gym_text.errors import ClusterError, import_extra
from gym_text_policies.records import Episode
from gym_text_policies.run.engine import LocalEngine, SpreadEngine, Task, WorkerDiedError
from gym_text_policies.run.plan import PlanRow

_logger = logging.getLogger(__name__)


@functools.cache
def _engine(num_envs: int, max_concurrency: int) -> LocalEngine:
    return LocalEngine(num_envs, max_concurrency)


def _call(limits: tuple[int, int], method: str, row: PlanRow) -> Any:
    return getattr(_engine(*limits), method)(row)


def _play(limits: tuple[int, int], row: PlanRow) -> Iterator[Episode]:
    yield from _engine(*limits).play([row])


class RayEngine(SpreadEngine):
    """Plays on a Ray cluster: the one this process is connected to, else the one at RAY_ADDRESS, else a new one on this machine.

    A worker gets one core, and its share of the cluster's GPUs. With ``workers=0`` there are as many as the cluster has cores.

    Raises:
        MissingDependencyError: If Ray is not installed.
        ClusterError: If there is no cluster at the address.
    """

    def __init__(self, workers: int = 0, num_envs: int = 8, max_concurrency: int = 50) -> None:
        ray = self._ray = import_extra("ray", "ray")
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray)
        room = ray.cluster_resources()
        super().__init__(workers or max(1, int(room.get("CPU", 1))), num_envs, max_concurrency)
        resources = {"num_cpus": 1, "num_gpus": min(1.0, room.get("GPU", 0) / self._size), "max_retries": 0}
        self._remote_call = ray.remote(**resources)(_call)
        self._remote_play = ray.remote(**resources, num_returns="streaming")(_play)

    def close(self) -> None:
        """End the cluster if this engine started it."""
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    def _call(self, method: str, row: PlanRow) -> Any:
        return self._get(self._remote_call.remote(self._limits, method, row))

    def _submit(self, task: Task) -> Any:
        return self._remote_play.remote(self._limits, dataclasses.replace(task.row, seeds=sorted(task.seeds)))

    def _receive(self, tasks: Mapping[Any, Task]) -> tuple[Any, Episode | None]:
        stream = self._ray.wait(list(tasks), num_returns=1, fetch_local=False)[0][0]
        try:
            return stream, self._get(next(stream))
        except (StopIteration, WorkerDiedError):
            return stream, None

    def _cancel(self, tasks: Mapping[Any, Task]) -> None:
        for stream in tasks:
            self._ray.cancel(stream, force=True)

    def _get(self, reference: Any) -> Any:
        """Return a result, or raise the error that the worker raised."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            _logger.warning("Ray: a worker has died, by %s Its unfinished episodes are played again.", _sentence(error))
            raise WorkerDiedError from error


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
