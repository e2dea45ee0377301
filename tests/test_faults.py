"""Faults of everything around a run: it completes or goes on, and no episode is lost or counted twice."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections import Counter

import gymnasium as gym
import pytest
from provider_server import ProviderServer, mischief, random_mischief, running

from gym_text_policies import EpisodeStore, LLMPolicy, cli, rollout
from gym_text_policies.backends.load import load_backend
from gym_text_policies.policy import text_spec
from gym_text_policies.report import table


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr("gym_text_policies.backends.providers.remote._BACKOFF", 0.01)


def make_goto():
    return gym.make("BabyAIText-v0", task="goto", expert="off", max_episode_steps=10)


def test_a_provider_that_does_everything_wrong_ends_no_run(tmp_path):
    kinds = len(mischief(0))
    with running(ProviderServer(text="turn left")) as server, EpisodeStore(tmp_path, {}) as store:
        server.faults += random_mischief(6 * kinds, seed=0, silence=5.0)
        backend = load_backend("openai:m", base_url=f"{server.url}/v1", retries=1, timeout=2.5)
        policy = LLMPolicy(backend, text_spec(make_goto()))
        for episode in rollout(make_goto, policy, range(30), workers=8, batch=1):
            store.append(episode)
        backend.close()
    assert not server.faults, "every fault has happened"
    episodes = list(store.episodes())
    assert sorted(episode.seed for episode in episodes) == list(range(30))
    outcomes = Counter(episode.outcome for episode in episodes)
    assert sum(outcomes.values()) == 30 and outcomes["error"] > 0 and outcomes["truncated"] + outcomes["lost"] > 0
    assert all(episode.error.startswith("PolicyError: openai:m: ") for episode in episodes if episode.outcome == "error")
    assert all(len(episode.error) < 1500 for episode in episodes if episode.error)
    assert all(episode.length == 10 for episode in episodes if episode.outcome == "truncated")
    row = table.row("goto", "m", episodes)
    assert {name: row[name] for name in outcomes} == outcomes and row["episodes"] == 30


def test_a_killed_benchmark_goes_on_and_gives_what_an_undisturbed_one_gives(tmp_path):
    options = ["--environments", "BabyAIText-v0?task=goto", "--models", "scripted:go forward", "--modes", "text"]

    def command(name, seeds=100):
        return ["bench", "--folder", str(tmp_path / name), *options, "--seeds", str(seeds), "--llm-seeds", "20"]

    killed = subprocess.Popen(
        [sys.executable, "-m", "gym_text_policies.cli", *command("killed", 5_000)],  # it must not end before it is killed
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    path = tmp_path / "killed" / "episodes.jsonl"
    for _ in range(3000):
        if path.exists() and path.stat().st_size > 50_000:
            break
        time.sleep(0.1)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(EpisodeStore(path.parent)) > 0
    assert cli.main(command("killed")) == cli.main(command("whole")) == 0
    runs = [
        [timeless(json.loads(line)) for line in (tmp_path / name / "episodes.jsonl").read_bytes().splitlines()]
        for name in ("killed", "whole")
    ]
    records = {record["key"]: record for record in runs[0]}
    assert len(runs[0]) == len(records) and len(runs[1]) == 220
    assert all(records[record["key"]] == record for record in runs[1])
    assert len(records) == 220 + sum(record["seed"] >= 100 for record in runs[0])


def timeless(record):
    """Return a stored episode without its timings."""
    for step in record["steps"]:
        step["decision"].pop("seconds", None)
    return record


def test_whatever_characters_an_error_has_are_stored_as_they_are(tmp_path):
    policy = LLMPolicy(load_backend("scripted:turn left"), text_spec(make_goto()))
    error = "PolicyError: \ud800 half a character, \x00, and 💥"
    with EpisodeStore(tmp_path, {}) as store:
        for episode in rollout(make_goto, policy, range(3)):
            store.append(dataclasses.replace(episode, error=error))
    assert [episode.error for episode in EpisodeStore(tmp_path).episodes()] == [error] * 3
