"""Faults of everything around a run: it completes or goes on, and no episode is lost or counted twice."""

import json
import signal
import subprocess
import sys
import time

import gymnasium as gym
import pytest

from gym_text_policies import EpisodeStore, cli


def test_a_killed_benchmark_goes_on_and_gives_what_an_undisturbed_one_gives(tmp_path):
    options = ["--environments", "BabyAIText-v0?task=goto", "--models", "scripted:go forward", "--modes", "text"]

    def command(name, seeds=100):
        return ["bench", "--folder", str(tmp_path / name), *options, "--episodes", str(seeds), "--llm-episodes", "20"]

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


FAILING = """
import gymnasium as gym
from gym_text.babyai.env import BabyAITextEnv

class Failing(BabyAITextEnv):
    def __init__(self, every=False, **arguments):
        super().__init__(**arguments)
        self.every = every

    def _start(self, seed):
        self.level = seed % 1_000_000
        return super()._start(seed)

    def _play(self, action):
        if self.every or self.level == 3:
            raise LookupError("no such door")
        outcome = super()._play(action)
        return outcome._replace(reward=float("nan")) if self.level == 5 else outcome

    def _frame(self):
        raise RuntimeError("no paint")

gym.register("Failing-v0", Failing)
"""


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A user's own game, two of whose seeds fail, in a module in the current folder."""
    (tmp_path / "failing_games.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    yield "failing_games:Failing-v0"
    sys.modules.pop("failing_games", None)
    gym.registry.pop("Failing-v0", None)


def playing(command, environment, folder):
    """Return the words of a command that plays twelve seeds of an environment."""
    if command == "run":
        sections = {
            "environment": {"name": environment},
            "agent": {"model": "random"},
            "experiment": {"episodes": 12, "save_gif": True, "verbose": False},
        }
        path = folder.with_suffix(".yaml")
        path.write_text(json.dumps(sections))
        return ["run", str(path), "--set", f"experiment.parent={folder.parent}", f"experiment.name={folder.name}"]
    if command == "bench":
        rows = ["--models", "random", "--baselines", "none", "--episodes", "12"]
        return ["bench", "--folder", str(folder), "--environments", environment, *rows]
    return ["collect", "--folder", str(folder), "--environments", environment, "--model", "random", "--episodes", "12"]


@pytest.mark.filterwarnings("ignore:.*The reward is a NaN value")  # Gymnasium sees it, too
@pytest.mark.parametrize("command", ["bench", "collect", "run"])
def test_a_seed_whose_game_fails_costs_that_episode_and_no_other(tmp_path, failing, command, capfd):
    words = playing(command, failing, tmp_path / command)
    assert cli.main(words) == 0, capfd.readouterr().err
    episodes = {episode.seed: episode for episode in EpisodeStore(tmp_path / command).episodes()}
    failed = {seed: episode.error for seed, episode in episodes.items() if episode.error}
    assert sorted(episodes) == list(range(12)) and sorted(failed) == [3, 5]
    assert failed[3] == "LookupError: no such door (Failing-v0, seed 3, step 1)"
    assert failed[5].startswith("EngineError: reward: expected a finite number (at most 1e300)") and "seed 5, step 1" in failed[5]
    assert episodes[3].traceback.splitlines()[-1] == "failing_games.py:16 in _play"
    assert cli.main(words) == 0, "a resumed run dies of neither"
