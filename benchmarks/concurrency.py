"""Throughput of many episodes with slow answers: how near `rollout` comes to the limit that the latencies alone set.

The provider is `tests/provider_server.py` in a separate process. It delays each answer by 0.05 to 0.5 s, evenly distributed.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil
from helpers.harness import command, options, run, table, write

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import LLMPolicy, rollout
from gym_text_policies.backends.load import load_backend
from gym_text_policies.policy import text_spec

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))
from serving import serving  # noqa: E402


@dataclass(frozen=True)
class Config:
    """What to measure."""

    episodes: int = 64
    """Episodes to play."""
    steps: int = 20
    """Steps of each."""
    rounds: int = 3
    """Runs with each number of workers; the median is reported."""


def main() -> None:
    """Play with several numbers of workers, print a table and write it to the results."""
    config = options(Config, __doc__)
    rows, lines = [], []
    for workers in (16, 50, config.episodes):
        runs = sorted((measure(config, workers) for _ in range(config.rounds)), key=lambda run: run["ratio"])
        rows.append({"workers": workers, "runs": runs})
        run = runs[len(runs) // 2]
        figures = f"{run['seconds']:.2f}", f"{run['ideal']:.2f}", f"{run['ratio']:.3f}"
        lines.append((workers, *figures, "at least 0.85", f"{run['cpu']:.1f}"))
        print(lines[-1], flush=True)
    load = f"Mean load of the machine meanwhile: {statistics.mean(run['load'] for row in rows for run in row['runs']):.1f}."
    notes = [
        f"{config.episodes} episodes of {config.steps} steps; answers are held back 0.05 to 0.5 s. Ideal: the longest episode's",
        "latencies, or all latencies over the number of workers, whichever is more.",
        load,
    ]
    columns = ("workers", "s", "ideal, s", "ideal / s", "asked", "CPU, s")
    text = "\n".join([f"`{command()}`", "", table(columns, lines), "", *notes])
    write("concurrency", text, {"config": asdict(config), "rows": rows})


def measure(config: Config, workers: int) -> dict[str, Any]:
    """Play all episodes once and return the seconds, the ideal, and the CPU time of this process."""

    def make_env() -> gym.Env[Any, Any]:
        return gym.make("BabyAIText-v0", expert="off", max_episode_steps=config.steps)

    with provider() as url, contextlib.closing(load_backend("openai:m", base_url=f"{url}/v1")) as backend:
        policy = LLMPolicy(backend, text_spec(make_env()))
        start, cpu = time.perf_counter(), time.process_time()
        episodes = list(rollout(make_env, policy, range(config.episodes), workers=workers, num_envs=1))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    waits = [sum(float(str(step.decision.completion).split()[-1]) for step in episode.steps) for episode in episodes]
    assert all(episode.length == config.steps for episode in episodes), "no episode ends before its time"
    ideal = max(max(waits), sum(waits) / workers)
    return {"seconds": seconds, "ideal": ideal, "ratio": ideal / seconds, "cpu": cpu, "load": psutil.getloadavg()[0]}


@contextlib.contextmanager
def provider(*options: str) -> Iterator[str]:
    """Run the provider with these options while the block runs; yield its address."""
    command = ["python", str(TESTS / "provider_server.py"), *options]
    with tempfile.TemporaryDirectory() as folder, serving(command, "/", Path(folder) / "log") as url:
        yield url


if __name__ == "__main__":
    run(main)
