"""`RayEngine`: the same rollout, spread over the processes of a Ray cluster (https://docs.ray.io).

Each worker is a Ray actor that keeps its models and its JVM from job to job. It gets some seeds of a job at a time, fewer as the
work runs out (guided self-scheduling, Polychronopoulos and Kuck 1987), and sends each episode back when it ends. If a worker dies
or its node is lost, other workers play its unfinished seeds. The driver, which is the process that started the engine, is the only
one that writes to the store.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gym_text.errors import ClusterError, import_extra
from gym_text_policies.engines.base import Engine, EpisodeJob, Identity, Job, R, Watch
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.work import Task, Work

_logger = logging.getLogger(__name__)
_MOST_DEATHS = 3
"""Workers that may die while they play the same episode; one more stops the run."""
_PATIENCE = 300.0
"""Seconds to wait while no worker can play."""
_POLL = 5.0
"""Seconds between two looks at the clock and at the nodes while the driver waits."""
_ANSWER = 20.0
"""Seconds within which a living cluster answers. After 60 seconds Ray would end this process, without our message."""


class _Worker:
    """The actor that runs in each process of the cluster."""

    def __init__(self) -> None:
        self._engine = LocalEngine()

    def process(self) -> int:
        """Return the id of the process, which shows that it is ready."""
        return os.getpid()

    def identify(self, job: EpisodeJob) -> Identity:
        return self._engine.identify(job)

    def check(self, job: EpisodeJob) -> None:
        self._engine.check(job)

    def play(self, job: Job[Any], seeds: Sequence[int]) -> Iterator[Any]:
        yield from self._engine.play([(job, seeds)])


class RayEngine(Engine):
    """Plays on a Ray cluster: the one this process is connected to, else the one at RAY_ADDRESS, else a new one on this machine.

    Args:
        workers: Number of processes that play; 0: as many as the cluster has room for.
        cpus: CPU cores of each.
        gpus: GPUs of each; a fraction is a share of one GPU.

    Raises:
        MissingDependencyError: If Ray is not installed.
        ClusterError: If there is no cluster at the address.
    """

    spreads = True

    def __init__(self, workers: int = 0, *, cpus: int = 1, gpus: float = 0.0) -> None:
        super().__init__()
        ray = self._ray = import_extra("ray", "ray")
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray)
        room = ray.cluster_resources()
        fits = [room.get("CPU", 1) // cpus, *([room.get("GPU", 0) // gpus] if gpus else [])]
        self._size = workers or max(1, int(min(fits)))
        self._resources = f"{cpus} CPU and {gpus:g} GPU"
        self._make_worker: Callable[[], Any] = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0)(_Worker).remote
        self._starting: dict[Any, Any] = {}  # reference that is ready when the worker is -> worker
        self._idle: deque[Any] = deque()
        self._since = self._checked = time.monotonic()  # times: a worker could play, the cluster answered
        self._told, self._lost = False, False  # the user was told of the wait; the cluster is gone
        self._node = ray.get_runtime_context().get_node_id()

    def identify(self, job: EpisodeJob) -> Identity:
        """Let a worker make the job's policy; return the identity of its episodes. This process loads no model."""
        identity: Identity = self._ask(job, "identify")
        return identity

    def _check(self, job: EpisodeJob) -> None:
        """Let one worker check the job's policy, because the workers send the requests to a model's server."""
        self._ask(job, "check")

    def _ask(self, job: EpisodeJob, method: str) -> Any:
        """Return the result of one worker's method for a job."""
        for _ in range(_MOST_DEATHS + 1):
            self._recruit(0)
            while not self._idle:
                self._wait({})
            worker = self._idle.popleft()
            try:
                answer = getattr(worker, method).remote(job.for_one_of(self._size))
                while not self._ray.wait([answer], timeout=_POLL, fetch_local=False)[0]:
                    self._check_nodes()
                result = self._get(answer)
                self._idle.append(worker)
                return result
            except self._ray.exceptions.RayError as error:
                self._dismiss(worker, error)
        raise ClusterError(f"Ray: {_MOST_DEATHS + 1} workers died while they loaded {job.policy.model}. See Ray's logs.")

    def play(self, work: Sequence[tuple[Job[R], Sequence[int]]], *, watch: Watch | None = None) -> Iterator[R]:
        """Play all jobs at the same time. `watch` is not called: the driver learns of an episode when it ends.

        Raises:
            ClusterError: If several workers died while they played one episode, or no worker can be started.
        """
        state = Work([job.for_one_of(self._size) for job, _ in work], [deque(seeds) for _, seeds in work])
        try:
            while state.tasks or any(state.left):
                self._recruit(len(state.tasks))
                self._hand_out(state)
                for stream in self._wait(state.tasks):
                    result = self._receive(stream, state)
                    if result is not None:
                        yield result
        finally:
            for task in state.tasks.values():  # if the caller left early, the workers stop
                self._kill(task.worker)

    def close(self) -> None:
        """End the workers, and the cluster if this engine started it."""
        for worker in (*self._idle, *self._starting.values()):
            self._kill(worker)
        self._idle.clear()
        self._starting.clear()
        if self._started and self._ray.is_initialized():
            _in_time(self._ray.shutdown) if self._lost else self._ray.shutdown()

    def _kill(self, worker: Any) -> None:
        """End a worker, unless the whole cluster is lost."""
        if not self._lost:
            self._ray.kill(worker)

    def _check_nodes(self) -> None:
        """Check that the cluster answers.

        Raises:
            ClusterError: If it does not answer, or this machine's node has ended, so that no result could arrive.
        """
        nodes = _in_time(self._ray.nodes)
        if nodes and any(node["Alive"] and node["NodeID"] == self._node for node in nodes):
            self._checked = time.monotonic()
            return
        self._lost = True
        what = "this machine's node has ended" if nodes else f"it does not answer within {_ANSWER:.0f} s"
        raise ClusterError(
            f"Ray: expected a cluster that goes on; {what}. Ray's logs say why. Start it again; the same command goes on from here."
        )

    def _recruit(self, playing: int) -> None:
        """Start workers until there are enough. Ray keeps a worker waiting until a node has room for it."""
        while playing + len(self._idle) + len(self._starting) < self._size:
            worker = self._make_worker()
            self._starting[worker.process.remote()] = worker

    def _hand_out(self, state: Work) -> None:
        """Give seeds to each idle worker."""
        while self._idle and (taken := state.take(self._size)):
            worker, (job, seeds) = self._idle.popleft(), taken
            stream = worker.play.options(num_returns="streaming").remote(state.jobs[job], seeds)
            state.tasks[stream] = Task(worker, job, set(seeds))

    def _wait(self, tasks: dict[Any, Task]) -> list[Any]:
        """Wait for results. Note the workers that are ready, and return the streams that have a result or have ended."""
        ready, _ = self._ray.wait([*tasks, *self._starting], num_returns=1, timeout=_POLL, fetch_local=False)
        if not ready or time.monotonic() - self._checked > _ANSWER:
            self._check_nodes()
        for sign in ready:
            worker = self._starting.pop(sign, None)
            if worker is None:
                continue
            try:
                self._get(sign)
                self._idle.append(worker)
            except self._ray.exceptions.RayError as error:
                self._dismiss(worker, error)
        if tasks or self._idle:
            self._since, self._told = time.monotonic(), False
            return [sign for sign in ready if sign in tasks]
        if not ready and not self._told:
            self._told = True
            _logger.warning("Ray: waiting for a node with %s free, at most %.0f s.", self._resources, _PATIENCE)
        if time.monotonic() - self._since > _PATIENCE:
            raise ClusterError(
                f"Ray: expected a node with {self._resources} free for a worker; none within {_PATIENCE:.0f} s. "
                f"Free: {self._ray.available_resources()}. Add nodes, or ask for less; the same command goes on from here."
            )
        return []

    def _receive(self, stream: Any, state: Work) -> Any | None:
        """Return the stream's next result, or None at its end."""
        task = state.tasks[stream]
        try:
            result = self._get(next(stream))
        except StopIteration:
            self._idle.append(state.tasks.pop(stream).worker)
            return None
        except self._ray.exceptions.RayError as error:
            del state.tasks[stream]
            self._dismiss(task.worker, error)
            self._retry(task, state, error)
            return None
        task.seeds.discard(result.seed)
        return result

    def _retry(self, task: Task, state: Work, error: Exception) -> None:
        """Put the unfinished seeds of a dead worker back into the queue."""
        state.put_back(task)
        seed, deaths = state.worst(task)
        if deaths > _MOST_DEATHS:
            raise ClusterError(
                f"Ray: expected a worker to survive {state.jobs[task.job].describe(seed)}; "
                f"{deaths} died over it, the last by: {_sentence(error)} Its memory may be too small."
            )

    def _get(self, reference: Any) -> Any:
        """Return a result, or raise the error that the worker raised."""
        try:
            return self._ray.get(reference, timeout=_PATIENCE)  # the result is ready, but its node may be lost meanwhile
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def _dismiss(self, worker: Any, error: Exception) -> None:
        _logger.warning("Ray: a worker was lost (%s); its unfinished episodes are played again.", _sentence(error))
        self._kill(worker)


def _in_time(call: Callable[[], R]) -> R | None:
    """Return the result of a call, or None after `_ANSWER` seconds. Once the cluster is lost, most calls of Ray never return."""
    results: list[R] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(_ANSWER)
    return results[0] if results else None


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
