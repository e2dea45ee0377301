"""The networks of `benchmarks/panel_networks.py`: an action's score follows from its words, and the networks play as one row."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from gym_text.errors import UsageError
from gym_text_policies.run.panel.results import read_result
from gym_text_policies.run.panel.verify import verify

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("panel_networks")


def test_an_actions_score_follows_from_its_words_and_not_from_its_index(script):
    model = script.network(script.Config(games=1), "CookingWorld")
    obs = {key: torch.as_tensor(value) for key, value in model.get_env().reset().items()}
    extractor, count = model.policy.features_extractor, int(model.get_env().env_method("action_masks")[0].sum())
    rows = obs["valid_actions"].unflatten(1, (extractor.n, -1))
    order = torch.cat([torch.arange(count).flip(0), torch.arange(count, extractor.n)])
    with torch.no_grad():
        scores, turned = (
            extractor({**obs, "valid_actions": names.flatten(1)})[0, extractor.hidden :] for names in (rows, rows[:, order])
        )
    assert count > 10 and scores[:count].unique().numel() == count
    assert torch.allclose(turned, scores[order], atol=1e-5) and not scores[count:].any()
    model.get_env().close()


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
    result, table = read_result(path)
    played = {name: world.policy for name, world in result.worlds.items()}
    assert [policy["name"].split()[0] for policy in played.values()] == ["sb3:MaskablePPO", "sb3:PPO", "sb3:PPO"]
    assert all(policy["deterministic"] is False for policy in played.values()) and result.name == "stable-baselines3"
    assert all(row["score"] is not None for row in table["worlds"].values()) and "are right" in verify(path)
    assert not any(episode.invalid for episode in result.worlds["CookingWorld"].episodes), "the mask leaves out what is no action"
    monkeypatch.setattr(script, "train", None)
    script.main()
    assert read_result(path)[0].worlds == result.worlds


def test_a_network_that_was_trained_otherwise_is_refused_and_one_that_was_not_saved_to_its_end_is_none(
    script, tmp_path, monkeypatch
):
    path = tmp_path / "Sokoban.zip"
    real = script.PPO.save

    def killed(model, file):
        real(model, file)
        raise KeyboardInterrupt

    monkeypatch.setattr(script.PPO, "save", killed)
    words = ["panel_networks.py", "--folder", str(tmp_path), "--only", "Sokoban", "--seconds", "1", "--games", "2", "--seed"]
    monkeypatch.setattr("sys.argv", [*words, "3"])
    with pytest.raises(KeyboardInterrupt):
        script.main()
    assert not script.is_trained(script.Config(seconds=1, games=2, seed=3), path) and not path.exists()
    monkeypatch.setattr(script.PPO, "save", real)
    script.train(script.Config(seconds=1, games=2, seed=3), "Sokoban", path)
    assert script.is_trained(script.Config(seconds=1, games=2, seed=3), path)
    monkeypatch.setattr("sys.argv", [*words, "4"])
    with pytest.raises(
        UsageError, match=r"Sokoban.zip: expected a network trained with .*'seed': 4}; got .*'seed': 3}. Remove it, or"
    ):
        script.main()
    with pytest.raises(UsageError, match=r"only: expected one of .*'Sokoban'.*; got 'Foo'"):
        script.Config(only=("Foo",))
