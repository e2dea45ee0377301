"""The run folder of on-policy training."""

import dataclasses
import json

import gymnasium as gym
import pytest
from training_data import Corridor

from gym_text import UsageError
from gym_text_policies.training.ppo import PPOConfig, train

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
]
OLD_NAMES = {"episodes_per_iteration": "episodes", "num_envs": "batch", "dtype": "precision"}
GONE = {
    **{"adapter": "", "with_reward": None, "least_probability": 0.0, "entropy_weight": 0.0, "kl_target": 0.0, "max_norm": 1.0},
    **{"value_learning_rate": 1e-4, "value_epochs": 100, "clip": 0.2, "value_clip": 0.2},
}
"""Settings that folders of earlier releases have beside today's, with the values that hold now."""


@pytest.fixture
def run(tiny_model, tmp_path):
    """Return the settings of a run of one iteration, and its folder in the form of earlier releases."""
    gym.register("Corridor-v0", entry_point=Corridor)
    usual = {"environments": ("Corridor-v0?length=1",), "episodes_per_iteration": 2, "dev_every": 0, "iterations": 1}
    config = PPOConfig(folder=str(tmp_path / "run"), model=tiny_model, **usual)
    train(config)
    stored = json.loads((tmp_path / "run/config.json").read_text())
    stored = {name: value for name, value in stored.items() if name not in ("rank", "alpha", "target_modules")}  # new settings
    write(tmp_path / "run/config.json", {OLD_NAMES.get(name, name): value for name, value in stored.items()} | GONE)
    state = json.loads((tmp_path / "run/checkpoint-1/state.json").read_text())
    write(tmp_path / "run/checkpoint-1/state.json", state | {"seed": 2, "kl_weight": 0.05})
    yield config, tmp_path / "run"
    del gym.registry["Corridor-v0"]


def write(path, data):
    path.write_text(json.dumps(data))


def test_a_folder_of_an_earlier_release_goes_on_where_it_was(run):
    config, folder = run
    (first,) = (folder / "metrics.jsonl").read_text().splitlines()
    train(dataclasses.replace(config, iterations=2))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert lines[0] == first and json.loads(lines[1])["episodes"] == 4
    stored = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", stored | {"model": "smollm2", "adapter": config.model})
    train(dataclasses.replace(config, iterations=3))  # the model was named apart from its adapter
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_norm": 0.5}, "max_norm: stored 0.5"),
        ({"rank": 8}, "rank: stored 8, given 16"),
        ({"episodes": 4}, "episodes_per_iteration: stored 4, given 2"),
    ],
)
def test_a_folder_whose_settings_hold_no_longer_is_refused(run, changed, said):
    config, folder = run
    write(folder / "config.json", json.loads((folder / "config.json").read_text()) | changed)
    with pytest.raises(UsageError, match=f"these keys differ: {said}"):
        train(dataclasses.replace(config, iterations=2))
