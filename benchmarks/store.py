"""Measure what playing and storing cost: size of episodes; time to write, open and read a folder; memory of a key."""

from __future__ import annotations

import dataclasses
import os
import pickle
import tempfile
import time
import tracemalloc
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil
from helpers.harness import command, options, run, table, write

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import EpisodeStore, load_policy, rollout

ROWS: dict[str, dict[str, Any]] = {
    "random": {"model": "random"},
    "a model, zero_shot": {"model": "scripted:look around|inventory"},
    "a model, chat with all steps": {"model": "scripted:look around|inventory", "strategy": "chat", "history": "all"},
}
"""Policies whose episodes are stored. The scripted model stands for any model: all prompts are rendered and kept."""

FORMATS = {
    "steps": ("steps", "{:.0f}"),
    "CPU ms a step to play": ("play_ms", "{:.2f}"),
    "kB an episode": ("kilobytes", "{:.0f}"),
    "kB pickled": ("pickled_kilobytes", "{:.0f}"),
    "stored/s": ("stored_per_second", "{:,.0f}"),
    "CPU ms of it": ("cpu_ms", "{:.1f}"),
    "opened/s": ("opened_per_second", "{:,.0f}"),
    "CPU ms to read one": ("read_ms", "{:.1f}"),
}
"""Columns of the table: the figure and its format."""


@dataclass(frozen=True)
class Config:
    """Play, store and read episodes, and measure time, size and memory."""

    environment: str = "CookingWorldText-v0"
    """Id of the environment."""
    played: int = 20
    """Episodes to play for each row."""
    stored: int = 2000
    """Episodes to store for each row: the played ones, under many keys."""
    keys: int = 200_000
    """Keys in the folder whose memory is measured. With many keys, memory that Python already holds does not matter."""


def main() -> None:
    """Measure, and write the table."""
    config = options(Config, __doc__)
    rows = [measure(config, name, policy) for name, policy in ROWS.items()]
    memory = bytes_a_key(config.keys)
    figures = ((row["name"], *(form.format(row[key]) for key, form in FORMATS.values())) for row in rows)
    load = max(row["load"] for row in rows)
    notes = [
        f"{config.stored} episodes of {config.environment} a row, each synced to disk. Opened: per second of CPU time.",
        f"A key takes {memory:.0f} bytes of memory (of {config.keys} in one folder).",
        f"{os.cpu_count()} cores; load of the machine meanwhile up to {load:.1f}.",
    ]
    text = "\n".join([f"`{command()}`", "", table(("episodes of", *FORMATS), figures), "", *notes])
    write("store", text, {"config": asdict(config), "bytes_a_key": memory, "rows": rows})


def measure(config: Config, name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Play some episodes, store each under many keys, open the folder, and read all."""
    make_env = partial(gym.make, config.environment, expert="off")
    player = load_policy(env=make_env(), **policy)
    list(rollout(make_env, player, range(config.played)))  # a warm-up: the JVM starts and compiles
    start = time.process_time()
    episodes = list(rollout(make_env, player, range(config.played)))
    steps, played = sum(episode.length for episode in episodes), time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        with EpisodeStore(folder, {}) as store:
            start, cpu = time.perf_counter(), time.process_time()
            for number in range(config.stored):
                store.append(dataclasses.replace(episodes[number % config.played], key=f"{number:032x}"))
            stored, cpu = time.perf_counter() - start, time.process_time() - cpu
        size = store.path.stat().st_size
        start = time.process_time()
        opened_store = EpisodeStore(folder)
        opened = time.process_time() - start
        assert len(opened_store) == config.stored
        start = time.process_time()
        assert sum(1 for _ in opened_store.episodes()) == config.stored
        read = time.process_time() - start
    return {
        "name": name,
        "steps": steps / len(episodes),
        "play_ms": played / steps * 1000,
        "kilobytes": size / config.stored / 1000,
        "pickled_kilobytes": sum(len(pickle.dumps(episode)) for episode in episodes) / len(episodes) / 1000,
        "stored_per_second": config.stored / stored,
        "cpu_ms": cpu / config.stored * 1000,
        "opened_per_second": config.stored / opened,
        "read_ms": read / config.stored * 1000,
        "load": psutil.getloadavg()[0],
    }


def bytes_a_key(keys: int) -> float:
    """Return the bytes of memory that an opened folder needs for each key."""
    with tempfile.TemporaryDirectory() as folder:
        lines = "".join(f'{{"key": "{number:032x}", "error": null}}\n' for number in range(keys))
        (Path(folder) / EpisodeStore.file_name).write_text(lines)
        tracemalloc.start()
        kept = EpisodeStore(folder)
        memory = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == keys
    return memory / keys


if __name__ == "__main__":
    run(main)
