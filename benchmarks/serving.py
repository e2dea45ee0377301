"""Measure what OpenEnv's wire costs: steps a second with one and with many clients, beside the same episodes in this process.

``python benchmarks/serving.py``, with an environment's Python that has the extra ``openenv``, takes some minutes and writes
``serving.md`` and ``.json``. It fails if an episode over the wire is not that of one process. ``--help`` lists the options.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import psutil
from helpers.harness import command, options, run, table, write
from openenv.core import GenericEnvClient

from gym_text_policies.environments import environment_maker
from gym_text_policies.files.json_data import plain

SINGLE = 20
"""Times as many steps for a client that plays alone."""


@dataclass(frozen=True)
class Config:
    """Play the same episodes in this process and over the wire, in one run."""

    environments: tuple[str, ...] = ("BabyAIText-v0?task=goto", "CookingWorldText-v0")
    """Environments, by id with keyword arguments."""
    clients: int = 64
    """Most clients at once."""
    steps: int = 200
    """Steps of each of many clients; one client plays 20 times as many."""


@dataclass(frozen=True)
class Row:
    """One way to play the episodes of one environment."""

    environment: str
    """Its name."""
    clients: int
    """Clients at once; 0 is the play in this process."""
    steps_per_second: float
    """Steps a second of all clients together, resets included."""
    ratio: float
    """Steps a second, by those of this process on the same episodes."""
    server_ms: float
    """CPU time of the server for a step, in milliseconds; 0 in this process."""
    client_ms: float
    """CPU time of this process for a step, in milliseconds."""
    same: bool
    """Whether every observation, reward, end, score and validity is that of this process."""
    load: float
    """Load of the machine in the last minute."""


def choose(seed: int, step: int, names: list[str]) -> str:
    """Return the action of a player without memory."""
    return names[hash((seed, step)) % len(names)]


def play_here(env: Any, first: int, steps: int) -> list[Any]:
    """Play the episodes of the seeds `first`, `first` + 1, … for a number of steps; return what a player perceives of each."""
    spec, record, seed, obs = env.get_wrapper_attr("text_spec"), [], first - 1, None
    for step in range(steps):
        if obs is None:
            seed += 1
            obs, _ = env.reset(seed=seed)
            record.append(list(map(plain, obs.values())))
        obs, reward, terminated, truncated, info = env.step(spec.encode(choose(seed, step, list(spec.names(obs))), obs))
        over = bool(terminated or truncated)
        valid = info.get("action_was_valid", True)
        record.append([list(map(plain, obs.values())), float(reward), over, float(info["score"]), valid])
        obs = None if over else obs
    return record


async def play_there(client: GenericEnvClient, keys: list[str], first: int, steps: int) -> list[Any]:
    """Do the same over the wire."""

    def values(obs: Any) -> list[Any]:
        return [obs["fields"][key] if key in obs["fields"] else obs[key] for key in keys]

    record: list[Any] = []
    seed, result = first - 1, None
    for step in range(steps):
        if result is None:
            seed += 1
            result = await client.reset(seed=seed)
            record.append(values(result.observation))
        result = await client.step({"action": choose(seed, step, result.observation["valid_actions"])})
        obs = result.observation
        record.append([values(obs), result.reward, result.done, obs["score"], obs["action_was_valid"]])
        result = None if result.done else result
    return record


@contextmanager
def server(environment: str, sessions: int) -> Iterator[tuple[str, psutil.Process]]:
    """Serve an environment in a process of its own; the values are its URL and the process."""
    command = [sys.executable, "-m", "gym_text_policies.cli", "serve", environment, "--port", "0", "--max-sessions", str(sessions)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


async def measured(
    url: str, keys: list[str], seeds: list[int], steps: int, process: psutil.Process
) -> tuple[Any, float, float, float]:
    """Return the records of clients at once, the seconds, and the CPU seconds of the server and of this process."""
    clients = [GenericEnvClient(base_url=url, connect_timeout_s=300, message_timeout_s=300) for _ in seeds]
    for client in clients:
        await client.connect()
        await client.reset(seed=0)  # the first one starts the engine
    began, served, used = time.perf_counter(), sum(process.cpu_times()[:2]), time.process_time()
    records = await asyncio.gather(*(play_there(c, keys, seed, steps) for c, seed in zip(clients, seeds, strict=True)))
    figures = time.perf_counter() - began, sum(process.cpu_times()[:2]) - served, time.process_time() - used
    for client in clients:
        await client.close()
    return records, *figures


def rows_of(environment: str, config: Config) -> list[Row]:
    """Return the rows of one environment."""
    rows = []
    with server(environment, config.clients) as (url, process), environment_maker(environment, expert="off")() as env:
        keys = list(env.reset(seed=0)[0])
        play_here(env, 0, config.steps)  # what is made once is made now
        for clients in dict.fromkeys((1, config.clients)):
            seeds = [1000 * i for i in range(clients)]
            steps = config.steps * (SINGLE if clients == 1 else 1)
            count = steps * clients
            began, used = time.perf_counter(), time.process_time()
            here = [play_here(env, seed, steps) for seed in seeds]
            alone, used = time.perf_counter() - began, time.process_time() - used
            load = os.getloadavg()[0]
            rows.append(Row(environment, 0, count / alone, 1.0, 0.0, 1000 * used / count, True, load))
            there, seconds, served, used = asyncio.run(measured(url, keys, seeds, steps, process))
            each = 1000 * served / count, 1000 * used / count
            rows.append(Row(environment, clients, count / seconds, alone / seconds, *each, there == here, os.getloadavg()[0]))
    return rows


def report(rows: list[Row], config: Config) -> str:
    """Return the results as Markdown."""
    lines = []
    for row in rows:
        how = f"over the wire, clients at once: {row.clients}" if row.clients else "in this process"
        numbers = f"{row.steps_per_second:,.0f}", f"{row.ratio:.3f}", f"{row.server_ms:.2f}", f"{row.client_ms:.2f}"
        lines.append((f"`{row.environment}`", how, *numbers, "yes" if row.same else "NO", f"{row.load:.1f}"))
    columns = ("environment", "played", "steps/s", "of this process", "CPU ms a step, server", "CPU ms a step, this process")
    note = (
        f"OpenEnv {version('openenv')}, its websocket on 127.0.0.1; the server is one process, all clients another. "
        f"A client at once with others plays {config.steps} steps, a single one {SINGLE} times as many, resets included. "
        "The row above each row over the wire has the same episodes in this process. "
        "Same: every observation, reward, end, score and validity. Load: of the machine, in the last minute."
    )
    return "\n".join([f"`{command()}`", "", table((*columns, "same", "load"), lines), "", *textwrap.wrap(note, 140)])


def main() -> None:
    """Measure, and write the results."""
    config = options(Config)
    rows = [row for environment in config.environments for row in rows_of(environment, config)]
    record = {"config": asdict(config), "openenv": version("openenv"), "rows": [asdict(row) for row in rows]}
    write("serving", report(rows, config), record)
    if not all(row.same for row in rows):
        sys.exit("An episode over the wire is not that of one process.")


if __name__ == "__main__":
    run(main)
