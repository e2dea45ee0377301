"""The networks of `benchmarks/panel_networks.py`: an action's score follows from its words, and the networks play as one row."""

import importlib
import json
from pathlib import Path

import pytest

from gym_text_policies.run.panel.reference import the_reference
from gym_text_policies.run.panel.results import read_result
from gym_text_policies.run.panel.verify import verify
from gym_text_policies.run.panel.worlds import the_panel

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("panel_networks")


def test_networks_of_each_kind_are_trained_once_and_play_as_one_row(script, tmp_path, monkeypatch, capsys):
    words = ["panel_networks.py", "--folder", str(tmp_path), "--seconds", "2", "--only", "CookingWorld", "GoTo", "LunarLander"]
    monkeypatch.setattr("sys.argv", [*words, "--results", str(tmp_path / "figures")])
    script.main()
    trained = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"world"')]
    assert [figures["world"] for figures in trained] == words[6:]
    assert all(
        figures["steps"] >= 8 and (figures["seconds"], figures["games"], figures["seed"]) == (2, 8, 0) for figures in trained
    )
    assert json.loads((tmp_path / "figures/panel_networks.json").read_text())["networks"] == trained
    assert script.learning_table(trained) in (tmp_path / "figures/panel_networks.md").read_text()
    (path,) = (tmp_path / "results").iterdir()
    result = read_result(path)
    played = {name: world.policy for name, world in result.worlds.items()}
    assert [policy["name"].split()[0] for policy in played.values()] == ["sb3:MaskablePPO", "sb3:PPO", "sb3:PPO"]
    assert all(policy["deterministic"] is False for policy in played.values()) and result.name == "stable-baselines3"
    table = result.table(the_panel(), the_reference())
    assert all(row["score"] is not None for row in table["worlds"].values()) and "are right" in verify(path)
    assert not any(episode.invalid for episode in result.worlds["CookingWorld"].episodes), "the mask leaves out what is no action"
    monkeypatch.setattr(script, "train", None)
    script.main()
    assert read_result(path).worlds == result.worlds
