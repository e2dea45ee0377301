"""Measure the size of a report on many episodes, and the time in which headless Chromium opens it.

``python benchmarks/report.py`` plays the episodes, writes the report, opens it several times, and writes ``report.md`` and
``report.json``. The first run plays for some minutes; the run folder keeps the episodes. ``--help`` lists the options.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
from helpers.browser import Browser, find_browser
from helpers.harness import command, options, run, table, write
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import EpisodeStore, LLMPolicy, Policy, ScriptedBackend, load_policy, rollout
from gym_text_policies.policy import environment_config, episode_key, text_spec
from gym_text_policies.report import write_report

SCRIPT = ("go forward", "turn left", "go forward", "I cannot decide", "turn right", "go forward", "pick up")


@dataclass(frozen=True)
class Config:
    """Play many short episodes, write a report on them, and measure its size and how long it takes to open."""

    episodes: int = 10_000
    """Number of episodes. They are of two BabyAIText tasks and four policies; two policies are scripted language models."""
    steps: int = 16
    """Most steps of an episode."""
    times: int = 5
    """How often the page is opened. The result is the median."""
    run: str = "runs/report"
    """Folder of the episodes and the page."""


def make_env(task: str, config: Config) -> gym.Env:
    """Return the environment of a task, with few steps."""
    return gym.make("BabyAIText-v0", task=task, fold="test", max_episode_steps=config.steps)


def policies(env: gym.Env) -> Iterator[Policy]:
    """Yield the policies."""
    spec = text_spec(env)
    yield load_policy("random", env)
    yield load_policy("random", env, seed=1)
    yield LLMPolicy(ScriptedBackend(SCRIPT, name="words"), spec, mode="text", history=4)
    yield LLMPolicy(ScriptedBackend(lambda request: request.choices[2], name="choices"), spec, mode="choose")


def play(config: Config) -> None:
    """Play the episodes that are missing."""
    with EpisodeStore(config.run, {"report": config.steps}) as store, tqdm(total=config.episodes, desc="episodes") as bar:
        for task in ("goto", "pickup"):
            env = make_env(task, config)
            for policy in policies(env):
                identity = environment_config(policy.wrap(env))
                seeds = range(config.episodes // 8)
                missing = [seed for seed in seeds if not store.has(episode_key(identity, policy.config, seed))]
                bar.update(len(seeds) - len(missing))
                for episode in rollout(lambda task=task: make_env(task, config), policy, missing):
                    store.append(episode)
                    bar.update()


def main() -> None:
    """Play, write the report, open it, and write the results."""
    config = options(Config)
    path = find_browser()
    if path is None:
        sys.exit("Chromium is not installed; it opens the page.")
    play(config)
    start = time.perf_counter()
    page = write_report([config.run], Path(config.run) / "report.html")
    writing = time.perf_counter() - start
    opening = []
    for _ in tqdm(range(config.times), desc="opened"):
        with Browser(path) as browser:
            opening.append(browser.open(page.resolve().as_uri()))
            assert not browser.complaints, browser.complaints
            shown = browser.run("JSON.parse(document.getElementById('index').textContent).length")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    record = {
        "config": {"episodes": config.episodes, "steps": config.steps, "times": config.times},
        "python": platform.python_version(),
        "browser": version,
        "stored_megabytes": EpisodeStore(config.run).path.stat().st_size / 1e6,
        "page_megabytes": page.stat().st_size / 1e6,
        "episodes_in_viewer": shown,
        "writing_seconds": writing,
        "opening_seconds": opening,
    }
    about = f"`{command()}`: {config.episodes:,} episodes, {record['stored_megabytes']:.0f} MB of records; {version}"
    columns = ("page", "episodes to step through", "written in", "opens in (median, slowest)")
    opens = f"{statistics.median(opening):.2f} s, {max(opening):.2f} s"
    row = f"{record['page_megabytes']:.1f} MB", shown, f"{writing:.0f} s", opens
    write("report", f"{about}\n\n{table(columns, [row])}", record)


if __name__ == "__main__":
    run(main)
