"""`ProcessEngine`: the same rollout in several processes on this machine, a pool of `concurrent.futures`.

Each process keeps its models and its JVM from job to job, and gets some seeds of a job at a time. Only the process that started the
engine writes to the store. If a process dies, the pool is made anew and the unfinished seeds are played again.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gym_text.errors import GymTextError, RunError, check_int
from gym_text.folds import MAX_SEED
from gym_text_policies.backends.threads import settle_threads, usable_cores
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.records import Episode
from gym_text_policies.run.engines.jobs import Engine, EpisodeJob, Identity, LocalEngine, Task, WaitingSeeds

_logger = logging.getLogger(__name__)
_MOST_DEATHS = 3
"""Processes that may die while they play the same episode; one more stops the run."""
_PACKAGES = ("gym_text", "gym_text_policies")
_FIELDS = ("name", "levelno", "levelname", "created", "pathname", "lineno", "funcName", "threadName", "processName")
"""What is sent of a log record, beside its message."""


class ProcessEngine(Engine):
    """Plays in processes of this machine. A model in the process is loaded in each of them, into memory of its own.

    A script that uses it needs ``if __name__ == "__main__":``, as with any `multiprocessing` that starts Python anew.

    Args:
        workers: Number of processes.
    """

    spreads = True

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._size = workers
        self._numbers = itertools.count()
        self._begin()

    def identify(self, job: EpisodeJob) -> Identity:
        """Let a process make the job's policy; return the identity of its episodes. This process loads no model."""
        identity: Identity = self._ask("identify", job)
        return identity

    def _check(self, job: EpisodeJob) -> None:
        """Let one process check the job's policy. If its model is in the process, the others load it when they play."""
        self._ask("check", job)

    def play(self, work: Sequence[tuple[EpisodeJob, Sequence[int]]]) -> Iterator[Episode]:
        """Play all jobs at the same time.

        Raises:
            RunError: If several processes died while they played one episode.
        """
        waiting, tasks = WaitingSeeds(work, self._size), dict[int, Task]()
        try:
            while tasks or waiting:
                while len(tasks) < self._size and (task := waiting.take()):
                    tasks[number := next(self._numbers)] = task
                    self._submit(number, task)
                number, value = self._received.get()
                if number not in tasks:  # of a pool that is no more
                    continue
                if isinstance(value, Episode):
                    tasks[number].seeds.discard(value.seed)
                    yield value
                elif isinstance(value, BrokenProcessPool):
                    self._begin_again(waiting, tasks)
                elif isinstance(value, Exception):
                    raise value
                else:
                    del tasks[number]
        finally:
            if tasks:  # the caller left early, so the processes stop
                self._end()
                self._begin()

    def close(self) -> None:
        """End the processes."""
        self._end()

    def _begin(self) -> None:
        """Make a pool, whose processes start when they are needed, and a thread that receives what they send."""
        context = multiprocessing.get_context("spawn")
        channel, self._received = context.SimpleQueue(), queue.SimpleQueue[Any]()
        start = (channel, max(1, usable_cores() // self._size), _levels())
        self._pool = ProcessPoolExecutor(self._size, mp_context=context, initializer=_start_worker, initargs=start)
        threading.Thread(target=_receive, args=(channel, self._received), daemon=True).start()

    def _end(self) -> None:
        for process in list((self._pool._processes or {}).values()):  # what runs there has to stop at once
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, number: int, task: Task) -> None:
        received = self._received

        def tell(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()):
                received.put((number, error))

        try:
            self._pool.submit(_play, number, task.job, sorted(task.seeds)).add_done_callback(tell)
        except BrokenProcessPool as error:
            received.put((number, error))

    def _begin_again(self, waiting: WaitingSeeds, tasks: dict[int, Task]) -> None:
        """Make a new pool in place of one that lost a process, and put back what was not finished.

        Raises:
            RunError: If too many died over one episode.
        """
        self._end()
        unfinished = [task for task in tasks.values() if task.seeds]
        tasks.clear()
        for episode, deaths in map(waiting.put_back, unfinished):
            if deaths > _MOST_DEATHS:
                raise RunError(
                    f"Expected a process to survive {episode}; {deaths} ended while it was played. "
                    "The memory may be too small: try fewer workers."
                )
        _logger.warning("A process ended abruptly; the unfinished episodes are played again.")
        self._begin()

    def _ask(self, method: str, job: EpisodeJob) -> Any:
        """Return the result of a method of one process's engine."""
        for _ in range(_MOST_DEATHS):
            try:
                return self._pool.submit(_call, method, job.for_one_of(self._size)).result()
            except BrokenProcessPool:
                self._end()
                self._begin()
        raise RunError(f"Expected a process to load {job.policy.model}; {_MOST_DEATHS} ended. The memory may be too small.")


def rollout_in_processes(
    environment: str, policy: PolicyConfig | str, seeds: Iterable[int], *, workers: int, num_envs: int = 8, **arguments: Any
) -> Iterator[Episode]:
    """Play one episode for each seed in several processes of this machine, and yield each when it ends.

    The episodes are those of `rollout`. Each process makes its own environments and its own policy, so both are given by name.

    Args:
        environment: Name of the environment, as in ``BabyAIText-v0?task=goto``.
        policy: Who plays: a name, as `load_policy` takes it, or a `PolicyConfig` with its settings.
        seeds: Seeds of the episodes.
        workers: Number of processes. Each loads the model into memory of its own.
        num_envs: Episodes of each process that run at once.
        **arguments: Keyword arguments of the environment, such as ``fold="test"``.

    Raises:
        UsageError: If the environment, the policy or a setting does not exist.
        RunError: If several processes died while they played one episode.
    """
    check_int("workers", workers, 1, 1_000)
    config = PolicyConfig(policy) if isinstance(policy, str) else policy
    job = EpisodeJob(environment, arguments, config, num_envs=num_envs)
    with ProcessEngine(workers) as engine:
        engine.check(job)
        yield from engine.play([(job, [check_int("seed", seed, 0, MAX_SEED) for seed in seeds])])


def _receive(channel: Any, received: queue.SimpleQueue[Any]) -> None:
    """Pass on what processes send, and log what they log."""
    while True:
        number, value = ForkingPickler.loads(channel.get())
        if number is not None:
            received.put((number, value))
        elif (logger := logging.getLogger(value["name"])).isEnabledFor(value["levelno"]):
            logger.handle(logging.makeLogRecord(value))


class _Worker:
    """What a process of the pool has: an engine, and what it sends, from any thread and also from a destructor.

    A thread of its own writes, since a destructor that logs may interrupt a writer.
    """

    def __init__(self, channel: Any) -> None:
        self.engine = LocalEngine()
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._write, args=(channel,), daemon=True).start()

    def send(self, number: int | None, value: Any) -> None:
        """Send a value of a task, or, without a number, what is logged."""
        self._messages.put(bytes(ForkingPickler.dumps((number, value))))

    def _write(self, channel: Any) -> None:
        while True:
            channel.put(self._messages.get())


_worker: _Worker
"""Of this process, if it is one of a pool."""


def _start_worker(channel: Any, threads: int, levels: Mapping[str, int]) -> None:
    """Prepare a process of the pool; `levels` are those of loggers there."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settle_threads(threads)
    _worker = _Worker(channel)
    logging.getLogger().handlers[:] = [_SendingHandler(_worker.send)]  # others, of the user's script, would show it twice
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)


def _call(method: str, job: EpisodeJob) -> Any:
    try:
        return getattr(_worker.engine, method)(job)
    except Exception as error:
        raise _portable(error) from None


def _play(number: int, job: EpisodeJob, seeds: Sequence[int]) -> None:
    try:
        for episode in _worker.engine.play([(job, seeds)]):
            _worker.send(number, episode)
        _worker.send(number, None)
    except Exception as error:
        _worker.send(number, _portable(error))


class _SendingHandler(logging.Handler):
    """Sends what is logged to the process that started the engine, as plain values."""

    def __init__(self, send: Callable[[int | None, Any], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. Its message has the traceback, if there is one."""
        try:
            self._send(None, {name: getattr(record, name) for name in _FIELDS} | {"msg": self.format(record)})
        except Exception:
            self.handleError(record)


def _levels() -> dict[str, int]:
    """Return the levels of these packages' loggers."""
    loggers = [name for name in logging.root.manager.loggerDict if name.startswith(tuple(f"{package}." for package in _PACKAGES))]
    return {name: logging.getLogger(name).getEffectiveLevel() or 1 for name in (*_PACKAGES, *loggers)}  # 0 would mean the parent's


def _portable(error: Exception) -> Exception:
    """Return an error that another process can raise: of our own kind, or a `RunError` with the text of any other."""
    return type(error)(str(error)) if isinstance(error, GymTextError) else RunError(f"{type(error).__name__}: {error}")
