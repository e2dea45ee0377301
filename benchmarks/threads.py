"""The cost of waiting threads on a machine with other work: the same levels, idle and beside busy processes, in several settings.

Each measurement is a separate process, which loads the model and then plays; only the play is timed. ``as it was`` imports torch
before `gym_text_policies` can set how threads wait; ``ours`` is what every command does. This script starts the busy processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from helpers.harness import command, options, run, table, write

from gym_text_policies.experiments.bench_table import versions

SAID = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
AS_IT_WAS, OURS = "as it was", "ours"
WAYS: dict[str, dict[str, str]] = {
    AS_IT_WAS: {},
    OURS: {},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""Name -> variables of the environment, in place of the user's own."""
PLAY = """
import hashlib, json, sys, time
model, environment, levels, before = json.loads(sys.argv[1])
if before:
    import torch
from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import environment_maker
make = environment_maker(environment, fold="test")
policy = load_policy(model, make(), mode="choose")
began = time.perf_counter()
episodes = sorted(rollout(make, policy, range(levels), num_envs=8), key=lambda episode: episode.seed)
seconds = time.perf_counter() - began
actions = json.dumps([[step.decision.action for step in episode.steps] for episode in episodes])
print(json.dumps([seconds, hashlib.sha256(actions.encode()).hexdigest()[:16]]))
"""


@dataclass(frozen=True)
class Config:
    """What to measure."""

    model: str = "adapters/babyai-sft"
    """Who plays."""
    environment: str = "BabyAIText-v0?task=goto"
    """What is played."""
    levels: int = 8
    """Levels of the test fold, all at once."""
    busy: tuple[int, ...] = (0, 1, 2)
    """Numbers of other processes, each of which takes a core."""
    repeats: int = 3
    """Measurements of each cell, by turns; the table has their median, from the least to the greatest."""


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many cores busy while the block runs."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(config: Config, way: str) -> tuple[float, str]:
    """Return the seconds that the levels take in a new process, and a hash of all actions."""
    environment = {name: value for name, value in os.environ.items() if name not in SAID} | WAYS[way]
    given = json.dumps([config.model, config.environment, config.levels, way == AS_IT_WAS])
    done = subprocess.run([sys.executable, "-c", PLAY, given], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, actions = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), str(actions)


def rows(config: Config) -> list[dict[str, Any]]:
    """Return the figures: for each number of busy processes and each way its seconds, sorted, and the hash of its actions."""
    found: dict[tuple[int, str], dict[str, Any]] = {
        (busy, way): {"busy": busy, "way": way, "seconds": [], "actions": set()} for busy in config.busy for way in WAYS
    }
    for busy in config.busy:
        with busy_processes(busy):
            for turn in range(config.repeats):
                for way in WAYS:
                    seconds, actions = measure(config, way)
                    print(f"{busy} busy processes, {way}, {turn + 1} of {config.repeats}: {seconds:.1f} s", file=sys.stderr)
                    found[busy, way]["seconds"].append(round(seconds, 3))
                    found[busy, way]["actions"].add(actions)
    return [row | {"seconds": sorted(row["seconds"]), "actions": sorted(row["actions"])} for row in found.values()]


def cell(row: dict[str, Any], against: float) -> str:
    """Return the median of a row's seconds, their range, and how many times as fast it is as another."""
    seconds = row["seconds"]
    middle = seconds[len(seconds) // 2]
    spread = f" ({seconds[0]:.1f} to {seconds[-1]:.1f})" if len(seconds) > 1 else ""
    return f"{middle:.1f}{spread}" + (f", {against / middle:.1f} x" if row["way"] != AS_IT_WAS else "")


def report(config: Config, figures: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown: a row for each number of busy processes, a column for each way."""
    same = len({actions for row in figures for actions in row["actions"]}) == 1
    about = (
        f"`{command()}`: seconds in which {config.model} plays {config.levels} levels of {config.environment}, on "
        f"{os.cpu_count()} cores; n x: times as fast as it was. {'All actions are equal.' if same else 'ACTIONS DIFFER.'}"
    )
    lines = []
    for busy in config.busy:
        mine = {row["way"]: row for row in figures if row["busy"] == busy}
        before = mine[AS_IT_WAS]["seconds"]
        lines.append((busy, *(cell(mine[way], before[len(before) // 2]) for way in WAYS)))
    return f"{about}\n\n{table(('other busy processes', *WAYS), lines)}"


def main() -> None:
    """Measure, print the table and write it with all figures."""
    config, began = options(Config, __doc__), time.time()
    figures = rows(config)
    record = {"config": asdict(config), "versions": versions(), "seconds": round(time.time() - began), "figures": figures}
    write("threads", report(config, figures), record)


if __name__ == "__main__":
    run(main)
