"""What storing costs: size of episodes, writing and opening a folder, and memory for each episode, with and without prompts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
import tracemalloc
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import EpisodeStore, load_policy, rollout
from gym_text_policies.options import add_fields

RESULTS = Path(__file__).parent / "results"
ROWS: dict[str, dict[str, Any]] = {
    "random": {"model": "random"},
    "a model, zero_shot": {"model": "scripted:look around|inventory"},
    "a model, chat with all steps": {"model": "scripted:look around|inventory", "strategy": "chat", "history": "all"},
}
"""Policies whose episodes are stored; the scripted model answers as if it were one, so that all prompts are made and kept."""


@dataclass(frozen=True)
class Config:
    """What to store."""

    environment: str = "CookingWorldText-v0"
    """Environment of the episodes."""
    played: int = 20
    """Episodes that are played for each row."""
    stored: int = 2000
    """Episodes that are stored for each row, each of the played ones under many keys."""


def main() -> None:
    """Measure, print a table and write it to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_fields(parser, Config)
    config = Config(**vars(parser.parse_args()))
    rows = [measure(config, name, policy) for name, policy in ROWS.items()]
    lines = [
        "| episodes of | steps | kB an episode | stored/s | CPU ms of it | opened/s | bytes of memory a key |",
        "|" + "---|" * 7,
    ]
    for row in rows:
        figures = [f"{row[key]:,.0f}" for key in ("steps", "kilobytes", "stored_per_second")]
        figures += [f"{row['cpu_ms']:.1f}", f"{row['opened_per_second']:,.0f}", f"{row['bytes_a_key']:.0f}"]
        lines.append(f"| {row['name']} | {' | '.join(figures)} |")
    load = max(row["load"] for row in rows)
    notes = [
        f"{config.stored} episodes of {config.environment} a row, each synced to disk. Opened: per second of CPU time.",
        f"{os.cpu_count()} cores; load of the machine meanwhile up to {load:.1f}.",
    ]
    text = "\n".join(["`python benchmarks/store.py`", "", *lines, "", *notes, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "store.md").write_text(text)
    (RESULTS / "store.json").write_text(json.dumps({"config": asdict(config), "rows": rows}, indent=2) + "\n")


def measure(config: Config, name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Play some episodes, store each under many keys, and open the folder."""
    make_env = partial(gym.make, config.environment, expert="off")
    player = load_policy(env=make_env(), **policy)
    episodes = list(rollout(make_env, player, range(config.played)))
    with tempfile.TemporaryDirectory() as folder:
        with EpisodeStore(folder, {}) as store:
            start, cpu = time.perf_counter(), time.process_time()
            for number in range(config.stored):
                store.append(dataclasses.replace(episodes[number % config.played], key=f"{number:032x}"))
            stored, cpu = time.perf_counter() - start, time.process_time() - cpu
        size = store.path.stat().st_size
        start = time.process_time()
        assert len(EpisodeStore(folder)) == config.stored
        opened = time.process_time() - start
        tracemalloc.start()
        kept = EpisodeStore(folder)
        memory = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(kept) == config.stored
    return {
        "name": name,
        "steps": sum(episode.length for episode in episodes) / len(episodes),
        "kilobytes": size / config.stored / 1000,
        "stored_per_second": config.stored / stored,
        "cpu_ms": cpu / config.stored * 1000,
        "opened_per_second": config.stored / opened,
        "bytes_a_key": memory / config.stored,
        "load": psutil.getloadavg()[0],
    }


if __name__ == "__main__":
    main()
