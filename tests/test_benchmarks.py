"""The index of the benchmarks, and what all of them share."""

import importlib
import json
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
INDEX = (BENCHMARKS / "README.md").read_text("utf-8")


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("helpers.harness")


def test_the_index_names_every_script_and_every_result():
    scripts = {path.name for path in BENCHMARKS.glob("*.py")}
    assert scripts and set(re.findall(r"benchmarks/(\w+\.py)", INDEX)) == scripts
    results = {path.stem for path in (BENCHMARKS / "results").iterdir()}
    assert results - set(re.findall(r"results/(\w+)\.", INDEX)) == set()


def test_contenders_take_turns_and_rounds_of_the_warm_up_do_not_count(harness):
    turns = []
    ways = {name: lambda name=name: turns.append(name) or float(len(turns)) for name in "ab"}
    assert harness.by_turns(ways, 2, warm_up=1) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert turns == ["a", "b"] * 3


def test_a_result_is_two_files_and_goes_where_the_command_line_says(harness, tmp_path, monkeypatch, capsys):
    config = importlib.import_module("store").Config
    monkeypatch.setattr("sys.argv", ["benchmarks/store.py", "--played", "3", "--results", str(tmp_path)])
    monkeypatch.setattr(harness, "_written", [harness.RESULTS])
    assert harness.options(config).played == 3
    assert harness.command() == f"python benchmarks/store.py --played 3 --results {tmp_path}"
    text = harness.table(("way", "steps/s"), [("ours", 12)])
    assert harness.earlier("some") == {} and harness.write("some", text, {"rate": 12}) == tmp_path
    assert (tmp_path / "some.md").read_text() == capsys.readouterr().out == "| way | steps/s |\n|---|---|\n| ours | 12 |\n"
    assert json.loads((tmp_path / "some.json").read_text()) == harness.earlier("some") == {"rate": 12}
