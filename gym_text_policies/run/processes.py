"""`ProcessEngine`: the same rollout in several processes on this machine.

Each process keeps its models and its JVM from task to task, and sends each episode when it ends. It has a connection of its own, so
where it dies, only its own episodes are played again. Only the process that started the engine writes to the store.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from typing import Any

from gym_text.errors import GymTextError, RunError
from gym_text_policies.backends.threads import settle_threads, usable_cores
from gym_text_policies.records import Episode
from gym_text_policies.run.engine import LocalEngine, SpreadEngine, Task, WorkerDiedError
from gym_text_policies.run.plan import PlanRow

_logger = logging.getLogger(__name__)


class _Worker:
    """A process, which starts when this is made, and the connection to it."""

    def __init__(self, threads: int, limits: tuple[int, int]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, end_of_process = context.Pipe()
        self._process = context.Process(target=_work, args=(end_of_process, threads, limits))
        self._process.start()
        end_of_process.close()  # the process alone holds it, so its death ends the connection
        self.busy = False

    def end(self) -> None:
        """End the process, and at once what runs there."""
        self._process.kill()
        self._process.join()
        self.connection.close()


class ProcessEngine(SpreadEngine):
    """Plays in processes of this machine. A model in the process is loaded in each of them, into memory of its own.

    A script that uses it needs ``if __name__ == "__main__":``, as with any `multiprocessing` that starts Python anew.
    """

    def __init__(self, workers: int, num_envs: int = 8, max_concurrency: int = 50) -> None:
        super().__init__(workers, num_envs, max_concurrency)
        self._workers: list[_Worker] = []

    def close(self) -> None:
        """End the processes."""
        self._end(list(self._workers))

    def _call(self, method: str, row: PlanRow) -> Any:
        _, kind, result = self._next([self._begin(method, row)])
        if kind == "died":
            raise WorkerDiedError
        return result

    def _submit(self, task: Task) -> _Worker:
        return self._begin("play", dataclasses.replace(task.row, seeds=sorted(task.seeds)))

    def _receive(self, tasks: Mapping[_Worker, Task]) -> tuple[_Worker, Episode | None]:
        worker, _, episode = self._next(tasks)
        return worker, episode

    def _cancel(self, tasks: Mapping[_Worker, Task]) -> None:
        self._end(tasks)

    def _begin(self, method: str, row: PlanRow) -> _Worker:
        """Let a process that waits, or a new one, call a method of its engine; `_next` tells whether it has died before."""
        worker = next((worker for worker in self._workers if not worker.busy), None)
        if worker is None:
            worker = _Worker(max(1, usable_cores() // self._size), self._limits)
            self._workers.append(worker)
        worker.busy = True
        with contextlib.suppress(OSError):
            worker.connection.send((method, row))
        return worker

    def _next(self, workers: Collection[_Worker]) -> tuple[_Worker, str, Any]:
        """Log what busy processes log, until one sends an episode or what its method returned, or dies: then with None.

        Raises:
            Exception: What the method raised.
        """
        while True:
            ready = wait([worker.connection for worker in workers])
            worker = next(worker for worker in workers if worker.connection in ready)
            try:
                kind, value = worker.connection.recv()
            except (EOFError, OSError):
                _logger.warning("A process ended abruptly; its unfinished episodes are played again.")
                self._end([worker])
                return worker, "died", None
            if kind == "logged":
                name, level, message = value
                logging.getLogger(name).log(level, "%s", message)
                continue
            worker.busy = kind == "episode"
            if kind == "raised":
                raise value
            return worker, kind, value

    def _end(self, workers: Iterable[_Worker]) -> None:
        for worker in workers:
            worker.end()
            self._workers.remove(worker)


def _work(connection: Connection, threads: int, limits: tuple[int, int]) -> None:
    """Call in a process the methods of its engine that come over the connection, and send what they yield, return or raise.

    A thread of its own writes what is sent, since a destructor that logs may interrupt a writer.
    """
    messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=_write, args=(messages, connection), daemon=True).start()
    settle_threads(threads)
    if find_spec("tqdm"):  # peft's bars; tqdm's own lock is one of all processes, and one that is killed would leave it behind
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())
    engine = LocalEngine(*limits)
    logging.getLogger().handlers[:] = [_SendingHandler(messages)]  # others, of the user's script, would show it twice
    for package in ("gym_text", "gym_text_policies"):  # the process that started the engine leaves out what it does not show
        logging.getLogger(package).setLevel(logging.INFO)
    while True:
        method, row = connection.recv()
        try:
            if method != "play":
                messages.put(("returned", getattr(engine, method)(row)))
                continue
            for episode in engine.play([row]):
                messages.put(("episode", episode))
            messages.put(("returned", None))
        except Exception as error:
            messages.put(("raised", _portable(error)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)


def _write(messages: queue.SimpleQueue[tuple[str, Any]], connection: Connection) -> None:
    while True:
        connection.send(messages.get())


class _SendingHandler(logging.Handler):
    """Sends what is logged, with its traceback, to the process that started the engine."""

    def __init__(self, messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.put(("logged", (record.name, record.levelno, self.format(record))))


def _portable(error: Exception) -> Exception:
    """Return an error that another process can raise: of our own kind, or a `RunError` with the text of any other."""
    return type(error)(str(error)) if isinstance(error, GymTextError) else RunError(f"{type(error).__name__}: {error}")
