"""What spreading a run over Ray costs: the same episodes by the local engine, and by Ray with 1 and 2 workers on this machine."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import ray
from helpers.harness import command, options, run, table, write

from gym_text_policies.engines.base import Engine, EpisodeJob
from gym_text_policies.engines.options import EngineOptions
from gym_text_policies.policies.config import PolicyConfig


@dataclass(frozen=True)
class Config:
    """What to measure."""

    episodes: int = 1000
    """Episodes to play each time."""
    environment: str = "BabyAIText-v0?task=goto"
    """Environment to play."""
    model: str = "random"
    """Policy that plays."""
    workers: tuple[int, ...] = (1, 2)
    """Numbers of Ray workers."""


def main() -> None:
    """Measure, print a table and write it to the results."""
    config = options(Config, __doc__)
    rows = [measure(config, "local", EngineOptions())]
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    for workers in config.workers:
        start = time.perf_counter()
        ray.init(address="local", num_cpus=workers, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        started = time.perf_counter() - start
        engine = EngineOptions(engine="ray", workers=workers)
        rows.append(measure(config, f"Ray, {workers} worker{'s' * (workers > 1)}", engine) | {"cluster_start": started})
        ray.shutdown()
    lines = []
    for row in rows:
        share = row["episodes_per_second"] / rows[0]["episodes_per_second"]
        begun = f"{row['cluster_start']:.1f}" if "cluster_start" in row else "-"
        lines.append((row["engine"], begun, f"{row['ready']:.1f}", f"{row['episodes_per_second']:.0f}", f"{share:.2f}"))
    load = max(row["load"] for row in rows)
    notes = [
        f"{config.episodes} episodes of {config.model} in {config.environment}: little work an episode, so much overhead.",
        f"{os.cpu_count()} cores; mean load of the machine meanwhile up to {load:.1f}.",
    ]
    columns = ("engine", "cluster starts in, s", "first policy ready, s", "episodes/s", "beside local")
    text = "\n".join([f"`{command()}`", "", table(columns, lines), "", *notes])
    write("ray_overhead", text, {"config": asdict(config), "rows": rows})


def measure(config: Config, name: str, options: EngineOptions) -> dict[str, Any]:
    """Play all episodes once with an engine, after a warm-up."""
    job = EpisodeJob(config.environment, {"fold": "test"}, PolicyConfig(config.model))
    start = time.perf_counter()
    with options.make_engine() as engine:
        engine.identify(job)
        ready = time.perf_counter() - start
        play(engine, job, 50 * max(1, options.workers))
        seconds = play(engine, job, config.episodes)
    load = psutil.getloadavg()[0]
    return {"engine": name, "ready": ready, "seconds": seconds, "episodes_per_second": config.episodes / seconds, "load": load}


def play(engine: Engine, job: EpisodeJob, episodes: int) -> float:
    """Play, and return the seconds that it took."""
    start = time.perf_counter()
    assert sum(1 for _ in engine.play([(job, range(episodes))])) == episodes
    return time.perf_counter() - start


if __name__ == "__main__":
    run(main)
