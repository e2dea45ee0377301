"""`gym-text panel` as a command: what it refuses before it plays, and what it writes whatever the policies do."""

import pytest

from gym_text_policies import Decision, Policy
from gym_text_policies.cli import main
from gym_text_policies.panel.results import read_result
from gym_text_policies.panel.verify import verify


class Half(Policy):
    """Says half of a surrogate pair."""

    def decide(self, turns):
        return [Decision("get \ud83d") for _ in turns]

    @property
    def config(self):
        return {"kind": "half"}


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
