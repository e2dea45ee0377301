"""A person in the terminal, and the list of what can be played."""

import io

import pytest

from gym_text_policies import EpisodeStore, cli
from gym_text_policies.commands.play import Person


def play(monkeypatch, lines, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return cli.main(["play", *words])


def test_a_person_plays_from_a_pipe_and_the_episode_is_kept(monkeypatch, capsys, tmp_path):
    lines = ["?", "", "dance", "turn", "turn l", "3", "quit"]
    assert play(monkeypatch, lines, "BabyAIText-v0?task=goto", "--folder", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "1 turn left   2 turn right   3 go forward" in printed
    assert "action: expected one of 'turn left'" in printed and "Tab completes it" in printed
    assert "You left after 2 steps" in printed
    (episode,) = EpisodeStore(tmp_path).episodes()
    assert [step.decision.action for step in episode.steps] == ["turn left", "go forward"]
    assert episode.policy == {"kind": "person"}


def test_the_end_of_the_input_is_the_end_of_the_game(monkeypatch, capsys):
    assert play(monkeypatch, [], "BabyAIText-v0") == 0
    assert "You left after 0 steps" in capsys.readouterr().out


def test_a_closed_input_is_the_end_of_the_game(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main(["play", "BabyAIText-v0"]) == 0
    assert "You left after 0 steps" in capsys.readouterr().out


def test_the_ending_is_told(monkeypatch, capsys):
    pytest.importorskip("Box2D")
    assert play(monkeypatch, ["fire main engine"] * 3, "LunarLanderLLM-v2?max_episode_steps=2") == 0
    assert "Out of steps: return" in capsys.readouterr().out


def test_a_number_is_a_force_where_actions_are_numbers(make):
    spec = make("MountainCarContinuousLLM-v0").unwrapped.text_spec
    from gym_text_policies.records import Turn

    shown = []
    person = Person(spec, lambda names: "1", shown.append)
    obs, _ = make("MountainCarContinuousLLM-v0").reset(seed=0)
    (decision,) = person.decide([Turn(obs, None)])
    assert spec.encode(decision.action, obs) == [1.0]


def test_a_mistake_is_one_line(monkeypatch, capsys):
    assert play(monkeypatch, [], "BabyAITxt-v0") == 2
    assert "Did you mean 'BabyAIText-v0'" in capsys.readouterr().err
    assert play(monkeypatch, [], "BabyAIText-v0", "--seed", "-1") == 2


def test_environments_are_listed(capsys):
    assert cli.main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    lander = next(line for line in lines if line.startswith("LunarLanderLLM-v2"))
    assert lander.split()[-3:] == ["Discrete(4)", "1000", "yes"]
    assert any(line.startswith("CookingWorldText-v0") and "Text " in line for line in lines)
    assert not any(line.startswith("FrozenLake") for line in lines)
    assert cli.main(["envs", "frozen"]) == 0
    assert "FrozenLake-v1" in capsys.readouterr().out
    assert cli.main(["envs", "chess"]) == 2
