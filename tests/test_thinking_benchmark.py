"""The table of `benchmarks/thinking.py`."""

import importlib
from pathlib import Path

import pytest

from gym_text_policies import Decision, Episode, Step


@pytest.fixture
def thinking(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    return importlib.import_module("thinking")


def episode(*decisions):
    fields = {"reward": 0.5, "terminated": False, "truncated": False, "success": False, "failure": False, "score": 0.0}
    steps = tuple(Step({"text": "a hall"}, decision, action_was_valid=True, **fields) for decision in decisions)
    return Episode("key", {"id": "Env-v0"}, {"kind": "test"}, 3, steps, {"text": "end"})


def test_a_row_says_how_long_thoughts_are_and_how_many_were_cut(thinking):
    thought = Decision("x", reasoning="a: find", tokens_reasoning=6, thought_cut=True, seconds=0.25)
    plain = Decision("x", seconds=0.75)
    row = {"policy": "some", "episodes": 1, "success": 1.0, "success_interval": [0.2, 1.0], "length": 2.0}
    cells = thinking.figures("some", row, [episode(thought, plain)])
    assert cells == ("some", 1, "1.000 [0.20, 1.00]", "0, 1", "2.0", "0.50", "3.0", "50%")
    assert thinking.figures("none", row, [episode(plain)])[5:] == ("0.75", "", "")


def test_all_rows_differ_in_thoughts_alone_but_the_adapter_before(thinking):
    rows = thinking.rows(thinking.Config(adapter="new", before="old"))
    assert [row["model"] for row in rows.values()] == ["old", "new", "new", "new"]
    assert [row.get("think") for row in rows.values()] == [None, False, True, True]
    assert [row.get("think_tokens") for row in rows.values()] == [None, None, 24, 64]
