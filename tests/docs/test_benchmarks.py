"""The index of the benchmarks, and what all of them share."""

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gym_text.science_world.tasks import level_number
from gym_text_policies.records import Decision, Episode, Step

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
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
    config = importlib.import_module("concurrency").Config
    monkeypatch.setattr("sys.argv", ["benchmarks/concurrency.py", "--episodes", "3", "--results", str(tmp_path)])
    monkeypatch.setattr(harness, "_written", [harness.RESULTS])
    assert harness.options(config).episodes == 3
    assert harness.command() == f"python benchmarks/concurrency.py --episodes 3 --results {tmp_path}"
    text = harness.table(("way", "steps/s"), [("ours", 12)])
    assert harness.earlier("some") == {} and harness.write("some", text, {"rate": 12}) == tmp_path
    assert (tmp_path / "some.md").read_text() == capsys.readouterr().out == "| way | steps/s |\n|---|---|\n| ours | 12 |\n"
    assert json.loads((tmp_path / "some.json").read_text()) == harness.earlier("some") == {"rate": 12}


def test_policies_that_look_ahead_play_the_same_levels_as_greedy_play(tmp_path, tiny_model, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    lookahead = importlib.import_module("lookahead")
    task = "BabyAIText-v0?task=goto&max_episode_steps=3&expert=off"
    part = lookahead.Part(
        "goto", tiny_model, (task,), 2, {**lookahead.puct(4), **lookahead.uniform(4, episodes=1)}, {"mode": "choose"}
    )
    record = lookahead.results(part, lookahead.play(part, tmp_path, 2))
    assert [row["levels"] for row in record["rows"]] == [2, 2, 1]
    greedy, searching = record["rows"][:2]
    assert greedy["model_calls"] == greedy["steps"] and greedy["simulator_steps"] == 0
    assert searching["model_calls"] > 0 and searching["simulator_steps"] > 0
    assert [row["greedy"]["levels"] for row in record["rows"]] == [2, 2, 1]
    assert f"| {searching['way']} | 2 |" in lookahead.report({"goto": record})


def test_the_published_scienceworld_counts_the_score_before_a_loss_and_a_task_as_much_as_another(harness):
    levels = importlib.import_module("helpers.science_levels")

    def episode(level, rewards, **end):
        steps = [
            Step(
                {},
                Decision("wait"),
                reward,
                terminated=False,
                truncated=False,
                success=False,
                failure=False,
                score=0.0,
                action_was_valid=True,
            )
            for reward in rewards
        ]
        steps[-1] = replace(steps[-1], **end)
        return Episode(f"{level}", {"id": "ScienceWorldText-v0"}, {}, level, tuple(steps), level=level)

    boil, melt = level_number("boil", 21), level_number("melt", 21)
    won = episode(boil, (0.5, 0.5), terminated=True, success=True)
    lost = episode(boil + 1, (0.25, -0.25), terminated=True, failure=True)
    short = [episode(melt + number, (0.1,), truncated=True) for number in range(4)]
    again = episode(boil + 1, (0.75, -0.75), terminated=True, failure=True)
    record = levels.figures([won, lost, again, *short, replace(lost, error="no plan")])
    assert record["tasks"]["boil"] == {"levels": 2, "score": 75.0, "strict": 50.0, "success": 0.5}
    assert (record["score"], record["strict"], record["success"]) == (42.5, 30.0, 0.25)
    assert (record["episodes"], record["errors"], record["lost"], record["truncated"]) == (7, 1, 2, 4)
    assert record["score_interval"] == (30.0, 55.0)  # of boil one of the levels is drawn: 50 or 100; melt has no spread
    assert levels.interval([[0.0], [100.0], [50.0, 50.0]]) == (0.0, 100.0)
    text = "\n".join(levels.lines({"gold (expert)": record | {"limit": 100}, "random": record | {"limit": 100}}))
    assert (
        "| task | random | gold (expert) |" in text and "| boil | 75 (50 %) | 75 (50 %) |" in text and "| melt | 10 (0 %)" in text
    )
    assert "| **mean score** | 42.5 [30.0, 55.0] |" in text and "| freeze |  |  |" in text
