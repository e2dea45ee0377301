"""`gym-text panel` as a command: what it refuses before it plays, and what it writes whatever the policies do."""

import json

import pytest

from gym_text_policies import Decision, Policy
from gym_text_policies.cli import main
from gym_text_policies.run.panel.command import PanelConfig, play
from gym_text_policies.run.panel.results import read_result
from gym_text_policies.run.panel.verify import verify


class Half(Policy):
    """Says half of a surrogate pair."""

    def decide(self, turns):
        return [Decision("get \ud83d") for _ in turns]

    @property
    def config(self):
        return {"kind": "half"}


class Broken(Policy):
    """Fails in each episode."""

    def decide(self, turns):
        raise RuntimeError("broken policy")

    @property
    def config(self):
        return {"kind": "broken"}


@pytest.fixture
def panel(tmp_path, capsys):
    """Return a function that plays a world into ``tmp_path/run``: words -> (exit status, what stderr says)."""

    def play(*words, world="Sokoban"):
        status = main(["panel", "--only", world, "--folder", str(tmp_path / "run"), *map(str, words)])
        return status, capsys.readouterr().err

    return play


def test_an_action_with_half_of_a_surrogate_pair_is_a_question_mark_in_the_result_file(panel, tmp_path):
    assert panel("--models", "test_panel_command:Half", world="TextCraft")[0] == 0
    (path,) = (tmp_path / "run/results").iterdir()
    assert "its actions lead to these returns" in verify(path, again=True)
    episodes = read_result(path)[0].worlds["TextCraft"].episodes
    assert {action for episode in episodes for action in episode.actions} == {"get ?"}


def rows_file(folder, text):
    (folder / "rows.yaml").write_text(text, "utf-8")
    return folder / "rows.yaml"


@pytest.mark.parametrize(
    ("rows", "file"),
    [
        (("random", "random+"), "random-small-Sokoban.json"),
        (("mine/a", "Mine-a"), "Mine-a-small-Sokoban.json"),
    ],
)
def test_two_rows_that_would_have_one_result_file_are_refused_before_anything_is_played(panel, tmp_path, rows, file):
    text = "".join(f"'{name}': {{model: random, seed: {seed}}}\n" for seed, name in enumerate(rows))
    status, said = panel("--variants", rows_file(tmp_path, text))
    assert status == 2 and f"{rows[0]!r} and {rows[1]!r} would both have {file}. Give them names" in said
    assert not (tmp_path / "run").exists()


def test_two_models_that_would_have_one_result_file_are_refused_too(panel):
    assert "'hf:a/b, choose' and 'hf:a-b, choose' would both have hf-a-b-choose" in panel("--models", "hf:a/b", "hf:a-b")[1]


@pytest.mark.parametrize("name", ["mine@2", "it's", "[mine]", "C:\\mine", "~mine", "modèle", "x" * 101, "sb3:/" + "a/" * 60])
def test_a_row_whose_result_file_would_be_refused_is_refused_before_anything_is_played(panel, tmp_path, name):
    said = panel("--variants", rows_file(tmp_path, json.dumps({name: {"model": "random"}})))
    assert (
        said[0] == 2
        and f"row {name!r}: expected at most 100 letters" in said[1]
        and "Give it a short name in a file of --var" in said[1]
    )
    assert not (tmp_path / "run").exists()


def test_a_panel_whose_episodes_all_end_in_an_error_writes_its_file_and_exits_with_1(panel, tmp_path):
    status, said = panel("--models", "test_panel_command:Broken")
    assert status == 1 and "expected an episode without an error; all 10 ended in one" in said
    (path,) = (tmp_path / "run/results").iterdir()
    assert [episode.outcome for episode in read_result(path)[0].worlds["Sokoban"].episodes] == ["error"] * 10
    assert panel("--models", "test_panel_command:Broken", "random")[0] == 0, "half of the episodes were played"


def test_a_row_plays_the_worlds_that_have_the_arguments_it_names_in_any_order(tmp_path):
    networks = [
        {"model": "gold", "environments": ["BabyAIText-v0?max_episode_steps=36&task=putnext"]},
        {"model": "random", "environments": ["BabyAIText-v0?task=goto"]},
    ]
    variants = rows_file(tmp_path, json.dumps({"networks": networks}))
    (result,) = play(PanelConfig(variants=str(variants), only=("GoTo", "PutNext", "Sokoban"), folder=str(tmp_path / "run")))
    assert {name: world.policy["kind"] for name, world in result.worlds.items()} == {"GoTo": "random", "PutNext": "gold"}


@pytest.mark.parametrize("name", ["SokobanText-v0?max_episode_steps=1OO", "SokobanText-v0?size=9", "SokobanText-v1"])
def test_a_row_that_names_a_world_the_panel_does_not_have_is_refused_before_anything_is_played(panel, tmp_path, name):
    mine = [{"model": "random", "environments": ["BabyAIText-v0"]}, {"model": "random", "environments": [name]}]
    status, said = panel("--variants", rows_file(tmp_path, json.dumps({"chance": {"model": "random"}, "mine": mine})))
    assert status == 2 and "SokobanText-v0" in said and repr(name) in said and not (tmp_path / "run").exists()
