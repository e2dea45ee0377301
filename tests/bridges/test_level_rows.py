"""Levels as rows; ``tests/libraries/test_verl_skyrl.py`` tests verl and SkyRL, which read them."""

import sys
from pathlib import Path

import pytest

from gym_text import UsageError
from gym_text_policies.bridges.levels import begin, level_rows, write_levels

GOTO = "BabyAIText-v0?task=goto"


def test_a_row_names_its_level_and_begins_its_episode(tmp_path):
    first, other = level_rows("BabyAIText-v0?task=goto", "dev", [3, 4])
    assert {key: first[key] for key in ("id", "fold", "seed", "strategy")} == {
        "id": "BabyAIText-v0?task=goto dev 3",
        "fold": "dev",
        "seed": 3,
        "strategy": "chat",
    }
    assert [message["role"] for message in first["prompt"]] == ["system", "user"] and first["prompt"] != other["prompt"]
    for mistake, message in (
        ({"environment": "BabyAIText-v0?fold=test"}, "Leave the fold out"),
        ({"fold": "validation"}, "expected one of 'train', 'dev', 'test'"),
        ({"seeds": [-1]}, "seed: expected an integer from 0"),
        ({"strategy": "mine.jinja"}, "strategy: expected one of"),
        ({"strategy": "few_shot"}, "expected one without examples"),
        ({"strategy": "tool_short"}, "for answers in words, as in 'chat'; got 'tool_short', which asks for calls"),
        ({"environment": "TextWorldText-v0?file=mine.z8"}, "expected arguments that only choose a game"),
        ({"library": "trl"}, "expected one of 'verl', 'skyrl', 'nemo_gym'"),
        ({"file": tmp_path / "x.json"}, r"name ends in \.parquet"),
        ({"library": "nemo_gym"}, r"name ends in \.jsonl"),
    ):
        given = {"file": tmp_path / "x.parquet", "library": "verl", "environment": "BabyAIText-v0", "fold": "dev", "seeds": [0]}
        with pytest.raises(UsageError, match=message):
            write_levels(**given | mistake)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("environment", [GOTO, "CookingWorldText-v0"])
def test_an_episode_of_a_row_begins_with_the_rows_messages_in_whatever_order_the_levels_were_written(environment):
    rows = level_rows(environment, "dev", [5, 0, 5])
    assert rows[0] == rows[2] and rows[0]["prompt"] != rows[1]["prompt"]
    for row in rows:
        game = begin(row)
        assert game.chat() == row["prompt"]
        game.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"environment": "their_games:Theirs-v0"},
            r"expected one that ships .* as in imports: .their_games.\.",
        ),
        ({"environment": f"their_games:{GOTO}"}, "expected one that ships"),
        ({"environment": "TextArenaTwoPlayers-v0?game=Nim-v0&opponent=their_games:player"}, "only choose a game; got opponent="),
        ({"environment": "TextWorldText-v0?file=theirs.jinja"}, "only choose a game; got file="),
        ({"environment": "Hopper-v5?frame_skip=1000000000"}, "only choose a game; got frame_skip="),
        ({"environment": f"{GOTO}&render_mode=human"}, "only choose a game; got render_mode="),
        ({"strategy": "theirs.jinja"}, "strategy: expected one of"),
        ({"seed": 3.7}, "seed: expected an integer"),
    ],
)
def test_a_row_from_elsewhere_names_a_level_and_neither_code_nor_a_file(their_games, wrong, message):
    Path("theirs.jinja").write_text("{% block system %}{% endblock %}{% block user %}{% endblock %}")
    row = {"environment": GOTO, "fold": "dev", "seed": 3}
    with pytest.raises(UsageError, match=message):
        begin({**row, **wrong})
    assert their_games not in sys.modules


def test_the_user_may_allow_a_rows_module(their_games):
    row = {"environment": "their_games:Theirs-v0?level=BabyAI-GoToObj-v0", "fold": "dev", "seed": 3}
    for name in (row["environment"], row["environment"].removeprefix("their_games:")):
        game = begin({**row, "environment": name}, imports=[their_games])
        assert game.chat()[0]["role"] == "system"
        game.close()
    with pytest.raises(UsageError, match=r"imports: .their_games."):
        begin(row)  # that it is imported by now permits nothing
    (written,) = level_rows(row["environment"], "dev", [3])
    assert written["environment"] == row["environment"], "who writes the rows names the module, and so allows it"
