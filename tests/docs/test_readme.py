"""The README and the results page say what is there; their code runs as a doctest."""

import importlib
import json
from pathlib import Path

import pytest

from gym_text_policies.report.table import fitted

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs/results.md").read_text()


@pytest.fixture
def pictures(monkeypatch):
    pytest.importorskip("PIL")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("pictures")


def test_the_readmes_table_is_made_of_the_committed_results(pictures):
    assert pictures.summary_table() in README


def test_the_benchmarks_table_is_the_committed_result():
    assert (ROOT / "benchmarks/results/policies.md").read_text().strip() in RESULTS
    record = json.loads((ROOT / "benchmarks/results/policies.json").read_text())
    assert fitted(record["rows"]) in RESULTS


@pytest.mark.parametrize("name", ["babyai", "cookingworld", "lunarlander", "scienceworld"])
def test_the_tables_of_adapters_are_the_committed_results(name):
    committed = (ROOT / f"benchmarks/results/adapters_{name}.md").read_text()
    short, _, _ = committed.partition("\n| environment")
    assert "gold (expert)" in short and short.strip() in RESULTS


def test_the_table_of_worlds_is_the_committed_result():
    assert (ROOT / "benchmarks/results/worlds.md").read_text().strip() in (ROOT / "docs/worlds.md").read_text()


def test_the_figures_of_reinforcement_learning_are_the_committed_result():
    results = {name: ROOT / f"benchmarks/results/reinforcement{name}" for name in ("", "_search", "_cookingworld")}
    for path in results.values():
        assert path.with_suffix(".md").read_text().strip() in (ROOT / "docs/reinforcement.md").read_text()
    records = {name: json.loads(path.with_suffix(".json").read_text()) for name, path in results.items()}
    (start, *_), mean = records[""]["rows"], records[""]["means"]["grpo"]
    learnt, before = ([f"{one[task]['success']:.2f}" for task in ("goto", "pickup")] for one in (mean, start["columns"]))
    said = f"GRPO wins {learnt[0]} of goto and {learnt[1]} of pickup in place of {before[0]} and {before[1]}"
    assert said in " ".join(README.split())
    (start, *_), mean = records["_cookingworld"]["rows"], records["_cookingworld"]["means"]["grpo"]
    learnt, before = (f"{one['CookingWorld']['success']:.2f}" for one in (mean, start["columns"]))
    assert f"and {learnt} of CookingWorld in place of {before}" in " ".join(README.split())
