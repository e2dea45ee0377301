"""`ProcessEngine`: the same rollout in several processes on this machine.

Each process keeps its models and its JVM from job to job, and gets some seeds of a job at a time
(`gym_text_policies.engines.work`). The process that started the engine is the only one that writes to the store. If a process
dies, others play its unfinished seeds.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gym_text.errors import GymTextError, RunError, check_int
from gym_text.folds import MAX_SEED
from gym_text_policies.backends.threads import settle_threads, usable_cores
from gym_text_policies.engines.base import Engine, EpisodeJob, Identity, Job, R, Turns, Watch
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.work import Task, Work
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.records import Episode

_logger = logging.getLogger(__name__)
_MOST_DEATHS = 3
"""Processes that may die while they play the same episode; one more stops the run."""
MOST_MEMORY = 7
"""GB that a process took with SmolLM2, whose weights are 0.5 GB, in ScienceWorld, whose prompts are the longest."""
_OFTEN = 0.1
"""Seconds between two counts of turns that a process sends; policies without a model decide thousands of times a second."""
_PACKAGES = ("gym_text", "gym_text_policies")
_FIELDS = ("name", "levelno", "levelname", "created", "pathname", "lineno", "funcName", "threadName", "processName")
"""What is sent of a log record, beside its message."""
_RESULT, _ERROR, _DONE, _TURNS, _LOG = "result", "error", "done", "turns", "log"


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
        self._idle: deque[_Worker] = deque()
        self._playing: dict[Connection, _Worker] = {}
        self._told = False

    def identify(self, job: EpisodeJob) -> Identity:
        """Let a process make the job's policy; return the identity of its episodes. This process loads no model."""
        identity: Identity = self._ask("identify", job)
        if identity.policy.get("backend") == "transformers" and not self._told:
            self._told = True
            _logger.info(
                "Each of %d processes loads the model: %.1f GB in the first one, before any prompt. Prompts add to this, long ones "
                "most: SmolLM2 took up to %d GB a process in ScienceWorld. The end of the run says what the processes took.",
                *(self._size, self._idle[-1].memory, MOST_MEMORY),
            )
        return identity

    def _check(self, job: EpisodeJob) -> None:
        """Let one process check the job's policy."""
        self._ask("check", job)

    def _ask(self, method: str, job: EpisodeJob) -> Any:
        """Return the result of one process's method for a job."""
        worker = self._idle.popleft() if self._idle else _Worker(self._threads)
        try:
            worker.send(method, job.for_one_of(self._size))
            kind, value = worker.receive()
            while kind in (_LOG, _TURNS):
                kind, value = worker.receive()
        except (EOFError, OSError):
            raise RunError(f"A process ended ({worker.end()}) while it made the policy {job.policy.model}.") from None
        self._idle.append(worker)
        if kind == _ERROR:
            raise value
        return value

    @property
    def _threads(self) -> int:
        """Threads of each process: together as many as there are cores."""
        return max(1, usable_cores() // self._size)

    def play(self, work: Sequence[tuple[Job[R], Sequence[int]]], *, watch: Watch | None = None) -> Iterator[R]:
        """Play all jobs at the same time.

        Raises:
            RunError: If several processes died while they played one episode.
        """
        state = Work([job.for_one_of(self._size) for job, _ in work], [deque(seeds) for _, seeds in work])
        try:
            while state.tasks or any(state.left):
                self._hand_out(state, watched=watch is not None)
                for connection in wait(list(state.tasks)):
                    result = self._receive(connection, state, watch)
                    if result is not None:
                        yield result
        finally:
            for connection in state.tasks:  # if the caller left early, the processes stop
                self._playing.pop(connection).end()

    def close(self) -> None:
        """End the processes. If they have loaded a model, say how much memory they took."""
        if self._told and (taken := [worker.memory for worker in self._idle]):
            _logger.info("The processes took at most %.1f GB each, %.1f GB together.", max(taken), sum(taken))
        for worker in (*self._idle, *self._playing.values()):
            worker.end()
        self._idle.clear()
        self._playing.clear()

    def _hand_out(self, state: Work, *, watched: bool) -> None:
        """Give seeds to each process that has none; start processes as long as there are seeds for them."""
        while len(self._playing) < self._size and (taken := state.take(self._size)):
            worker, (job, seeds) = self._idle.popleft() if self._idle else _Worker(self._threads), taken
            try:
                worker.send("play", state.jobs[job], seeds, watched)
            except OSError:  # it has died meanwhile
                worker.end()
                worker = _Worker(self._threads)
                worker.send("play", state.jobs[job], seeds, watched)
            worker.number = min(set(range(self._size)) - {other.number for other in self._playing.values()})
            self._playing[worker.connection] = worker
            state.tasks[worker.connection] = Task(worker, job, set(seeds))

    def _receive(self, connection: Any, state: Work, watch: Watch | None) -> Any | None:
        """Return a process's next result, or None if it has sent something else, has finished its seeds or has died."""
        task, worker = state.tasks[connection], self._playing[connection]
        try:
            kind, value = worker.receive()
        except (EOFError, OSError):
            del state.tasks[connection]
            state.put_back(task)
            self._bury(self._playing.pop(connection), task, state)
            return None
        if kind == _RESULT:
            task.seeds.discard(value.seed)
            return value
        if kind == _TURNS and watch:
            watch(Turns(task.job, worker.number, value))
        if kind in (_TURNS, _LOG):
            return None
        del state.tasks[connection]
        self._idle.append(self._playing.pop(connection))
        if kind == _ERROR:
            raise value
        return None

    def _bury(self, worker: _Worker, task: Task, state: Work) -> None:
        """Tell of a process that has died.

        Raises:
            RunError: If too many died over one of its episodes.
        """
        how = worker.end()
        seed, deaths = state.worst(task)
        if deaths > _MOST_DEATHS:
            raise RunError(
                f"Expected a process to survive {state.jobs[task.job].describe(seed)}; {deaths} ended over it, the last by {how}. "
                "The memory may be too small: try fewer workers."
            )
        _logger.warning("A process ended (%s); its unfinished episodes are played again.", how)


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


class _Worker:
    """A process, as the engine sees it.

    Args:
        threads: Threads with which torch computes in it.
    """

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(there, threads, _levels()), daemon=True)
        self._process.start()
        there.close()
        self.memory = 0.0
        """The greatest memory, in GB, that the process had taken when it last sent something; 0 where the system does not tell."""
        self.number = 0
        """Its number among the processes that play."""

    def send(self, method: str, *arguments: Any) -> None:
        """Let the process call a method of its engine; the results come through the connection."""
        self.connection.send((method, arguments))

    def receive(self) -> tuple[str, Any]:
        """Wait for what the process sends next; return its kind and value. What it logs is logged here.

        Raises:
            EOFError: If the process has died; or an `OSError`.
        """
        kind, value, self.memory = self.connection.recv()
        if kind == _LOG and (logger := logging.getLogger(value["name"])).isEnabledFor(value["levelno"]):
            logger.handle(logging.makeLogRecord(value))
        return kind, value

    def end(self) -> str:
        """End the process; return how it ended."""
        self.connection.close()
        self._process.join(0.2)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _serve(connection: Connection, threads: int, levels: Mapping[str, int]) -> None:
    """Do in a process what the engine asks for, until it closes the connection; `levels` are those of loggers there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    settle_threads(threads)
    engine, send = LocalEngine(), _Sender(connection).send
    logging.getLogger().handlers[:] = [_Sent(send)]  # others, which the user's script may have set, would show it twice
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if method == "play":
                job, seeds, watched = arguments
                count = _Counter(send)
                for result in engine.play([(job, seeds)], watch=count if watched else None):
                    send(_RESULT, result)
                count.tell()
                send(_DONE, None)
            else:
                send(_DONE, getattr(engine, method)(*arguments))
        except Exception as error:
            send(_ERROR, _portable(error))


class _Sender:
    """Sends from any thread, also from a destructor: a thread of its own writes to the connection.

    It ends the process once nobody listens.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._write, daemon=True).start()

    def send(self, kind: str, value: Any) -> None:
        """Send a value and its kind, and the memory that was taken so far."""
        self._messages.put(bytes(ForkingPickler.dumps((kind, value, _greatest_memory()))))

    def _write(self) -> None:
        while True:
            try:
                self._connection.send_bytes(self._messages.get())
            except OSError:
                os._exit(0)


class _Sent(logging.Handler):
    """Sends what is logged to the process that started the engine, as plain values."""

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. Its message has the traceback, if there is one."""
        try:
            self._send(_LOG, {name: getattr(record, name) for name in _FIELDS} | {"msg": self.format(record)})
        except Exception:
            self.handleError(record)


class _Counter:
    """Counts turns, and sends their number every `_OFTEN` seconds."""

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        self._send, self._lock = send, threading.Lock()
        self._waiting, self._sent = 0, 0.0

    def __call__(self, turns: Turns) -> None:
        """Count turns; a policy may decide in several threads."""
        with self._lock:
            self._waiting += turns.decided
        if time.monotonic() - self._sent > _OFTEN:
            self.tell()

    def tell(self) -> None:
        """Send the number of turns that were not sent yet."""
        with self._lock:
            waiting, self._waiting, self._sent = self._waiting, 0, time.monotonic()
        if waiting:
            self._send(_TURNS, waiting)


def _levels() -> dict[str, int]:
    """Return the levels of these packages' loggers."""
    loggers = [name for name in logging.root.manager.loggerDict if name.startswith(tuple(f"{package}." for package in _PACKAGES))]
    return {name: logging.getLogger(name).getEffectiveLevel() or 1 for name in (*_PACKAGES, *loggers)}  # 0 would mean the parent's


def _greatest_memory() -> float:
    """Return the greatest memory that this process has taken so far, in GB; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _portable(error: Exception) -> Exception:
    """Return an error that another process can raise: of our own kind, or a `RunError` with the text of any other."""
    return type(error)(str(error)) if isinstance(error, GymTextError) else RunError(f"{type(error).__name__}: {error}")
