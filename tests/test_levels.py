"""Levels as rows; verl and SkyRL, which read them, in an environment of their own: see ``tests/bridges/levels_tests.py``."""

import pytest
from bridges.own_python import run_tests

from gym_text import UsageError
from gym_text_policies.bridges.levels import level_rows, write_levels


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
        ({"library": "trl"}, "expected one of 'verl', 'skyrl', 'nemo_gym'"),
        ({"file": tmp_path / "x.json"}, r"name ends in \.parquet"),
        ({"library": "nemo_gym"}, r"name ends in \.jsonl"),
    ):
        given = {"file": tmp_path / "x.parquet", "library": "verl", "environment": "BabyAIText-v0", "fold": "dev", "seeds": [0]}
        with pytest.raises(UsageError, match=message):
            write_levels(**given | mistake)
    assert not list(tmp_path.iterdir())


def test_verl_and_skyrl_read_our_levels_and_play_them():
    run_tests("levels")
