"""`ProcessEngine`: the same rollout in several processes on this machine, a pool of `concurrent.futures`.

Each process keeps its models and its JVM from task to task, and sends each episode when it ends. Only the process that started the
engine writes to the store. If a process dies, the pool is made anew.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from typing import Any

from gym_text.errors import GymTextError, RunError
from gym_text_policies.backends.threads import settle_threads, usable_cores
from gym_text_policies.records import Episode
from gym_text_policies.run.engine import LocalEngine, SpreadEngine, Task, WorkerDiedError
from gym_text_policies.run.plan import PlanRow

_logger = logging.getLogger(__name__)


class ProcessEngine(SpreadEngine):
    """Plays in processes of this machine. A model in the process is loaded in each of them, into memory of its own.

    A script that uses it needs ``if __name__ == "__main__":``, as with any `multiprocessing` that starts Python anew.
    """

    def __init__(self, workers: int, num_envs: int = 8, max_concurrency: int = 50) -> None:
        super().__init__(workers, num_envs, max_concurrency)
        self._numbers = itertools.count()
        self._received: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._begin()

    def close(self) -> None:
        """End the processes."""
        for process in list((self._pool._processes or {}).values()):  # what runs there has to stop at once
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        """Make a pool, whose processes start when they are needed, and a thread that receives what they send."""
        context = multiprocessing.get_context("spawn")
        channel = context.SimpleQueue()
        start = (channel, max(1, usable_cores() // self._size), self._limits)
        self._pool = ProcessPoolExecutor(self._size, mp_context=context, initializer=_start_worker, initargs=start)
        threading.Thread(target=_pass_on, args=(channel, self._received), daemon=True).start()

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """Make a new pool in place of one that lost a process, unless that was done already."""
        if broken is self._pool:
            self.close()
            _logger.warning("A process ended abruptly; the unfinished episodes are played again.")
            self._begin()

    def _call(self, method: str, row: PlanRow) -> Any:
        pool = self._pool
        try:
            return pool.submit(_call, method, row).result()
        except BrokenProcessPool:
            self._replace(pool)
            raise WorkerDiedError from None

    def _submit(self, task: Task) -> int:
        number, pool = next(self._numbers), self._pool

        def tell(future: Future[None]) -> None:
            if future.cancelled() or future.exception():  # the process has died; it sends its own errors
                self._received.put((number, pool))

        try:
            pool.submit(_play, number, task.row, sorted(task.seeds)).add_done_callback(tell)
        except BrokenProcessPool:
            self._received.put((number, pool))
        return number

    def _receive(self, tasks: Mapping[int, Task]) -> tuple[int, Episode | None]:
        while True:
            number, value = self._received.get()
            if number not in tasks:  # of a pool that is no more
                continue
            if isinstance(value, Exception):
                raise value
            if isinstance(value, ProcessPoolExecutor):
                self._replace(value)
                return number, None
            return number, value

    def _cancel(self, tasks: Mapping[int, Task]) -> None:
        self.close()
        self._begin()


def _pass_on(channel: Any, received: queue.SimpleQueue[tuple[int, Any]]) -> None:
    """Pass on what processes send, and log what they log."""
    while True:
        number, value = channel.get()
        if number is not None:
            received.put((number, value))
        else:
            name, level, message = value
            logging.getLogger(name).log(level, "%s", message)


_engine: LocalEngine
"""Of this process, if it is one of a pool."""
_messages: queue.SimpleQueue[tuple[int | None, Any]] = queue.SimpleQueue()
"""What this process sends: a task's number and an episode, None at its end, or its error; without a number what is logged. A thread
of its own writes it, since a destructor that logs may interrupt a writer."""


def _start_worker(channel: Any, threads: int, limits: tuple[int, int]) -> None:
    """Prepare a process of the pool."""
    global _engine
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=_write, args=(channel,), daemon=True).start()
    settle_threads(threads)
    if find_spec("tqdm"):  # peft's bars; tqdm's own lock is one of all processes, and one that is killed would leave it behind
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())
    _engine = LocalEngine(*limits)
    logging.getLogger().handlers[:] = [_SendingHandler()]  # others, of the user's script, would show it twice
    for package in ("gym_text", "gym_text_policies"):  # the process that started the engine leaves out what it does not show
        logging.getLogger(package).setLevel(logging.INFO)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)


def _write(channel: Any) -> None:
    while True:
        channel.put(_messages.get())


def _call(method: str, row: PlanRow) -> Any:
    try:
        return getattr(_engine, method)(row)
    except Exception as error:
        raise _portable(error) from None


def _play(number: int, row: PlanRow, seeds: Sequence[int]) -> None:
    try:
        for episode in _engine.play([dataclasses.replace(row, seeds=seeds)]):
            _messages.put((number, episode))
        _messages.put((number, None))
    except Exception as error:
        _messages.put((number, _portable(error)))


class _SendingHandler(logging.Handler):
    """Sends what is logged, with its traceback, to the process that started the engine."""

    def emit(self, record: logging.LogRecord) -> None:
        _messages.put((None, (record.name, record.levelno, self.format(record))))


def _portable(error: Exception) -> Exception:
    """Return an error that another process can raise: of our own kind, or a `RunError` with the text of any other."""
    return type(error)(str(error)) if isinstance(error, GymTextError) else RunError(f"{type(error).__name__}: {error}")
