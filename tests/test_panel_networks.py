"""The networks of `benchmarks/panel_networks.py`: an action's score follows from its words, and the networks play as one row."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from gym_text_policies.panel.results import read_result
from gym_text_policies.panel.verify import verify

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


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
    monkeypatch.setattr("sys.argv", words)
    script.main()
    trained = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"world"')]
    assert [figures["world"] for figures in trained] == words[6:]
    assert all(figures["steps"] >= 8 and figures["seconds"] == 2 for figures in trained)
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
