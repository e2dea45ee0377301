"""Policies by name from a plan's file are rows of the benchmark."""

import json
import re

import pytest

from gym_text import UsageError
from gym_text_policies import cli
from gym_text_policies.report.runs import read_runs
from gym_text_policies.run import bench


def test_each_entry_is_a_row_beside_random_and_expert(tmp_path, capsys):
    plan = tmp_path / "rows.yaml"
    plan.write_text(
        "left: {model: 'scripted:turn left', history: 2}\nchoose: {model: 'scripted:go forward', mode: choose, episodes: 1}\n"
    )
    name = "BabyAIText-v0?task=goto&max_episode_steps=8"
    words = f"bench --folder {tmp_path / 'run'} --environments {name} --plan {plan} --fold none"
    words += " --first-seed 200 --episodes 2"
    assert cli.main([*words.split(), "--llm-episodes", "2"]) == 0
    rows = json.loads((tmp_path / "run/table.json").read_text())["rows"]
    assert [(row["environment"], row["policy"], row["episodes"]) for row in rows] == [
        (name, policy, count) for policy, count in {"random": 2, "left": 2, "choose": 1, "gold (expert)": 2}.items()
    ]
    records = [json.loads(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines()]
    assert {record["seed"] for record in records} == {200, 201}
    assert all(record["environment"]["kwargs"] == {"task": "goto"} for record in records)
    plan.write_text("left: {model: 'scripted:turn left', history: 3}\nright: {model: 'scripted:turn right'}\n")
    assert cli.main([*words.split(), "--llm-episodes", "2"]) == 0
    rows = json.loads((tmp_path / "run/table.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["random", "left", "right", "gold (expert)"]
    added = (tmp_path / "run/episodes.jsonl").read_text().splitlines()[len(records) :]
    assert len(added) == 4, "only the new rows are played"
    assert {variant.policy for variant in read_runs([tmp_path / "run"]).variants} == {
        *("random", "left, history=2", "left, history=3", "choose", "right", "gold (expert)")
    }


def test_a_row_of_several_entries_plays_each_environment_with_the_first_that_names_it(tmp_path):
    goto, putnext = "BabyAIText-v0?task=goto&max_episode_steps=4", "BabyAIText-v0?task=putnext&max_episode_steps=4"
    plan = tmp_path / "rows.yaml"
    plan.write_text(
        "both:\n- {model: 'scripted:turn left', environments: ['BabyAIText-v0?task=goto'], episodes: 1}\n"
        "- {model: 'scripted:go forward', environments: ['BabyAIText-v0?max_episode_steps=4&task=putnext']}\n"
    )
    lake = "FrozenLake-v1"
    config = bench.BenchConfig(
        folder=str(tmp_path / "run"),
        environments=(goto, putnext, lake),
        plan=str(plan),
        llm_episodes=2,
        baselines=("random",),
        episodes=1,
    )
    _, store = bench.run(config)
    rows = json.loads((store.folder / "table.json").read_text())["rows"]
    played = {row["environment"]: row["episodes"] for row in rows if row["policy"] == "both"}
    assert played == {goto: 1, putnext: 2}, "no entry names the third environment"
    said = {
        (episode.environment["kwargs"]["task"], step.decision.action)
        for episode in store.episodes()
        if episode.policy["kind"] == "llm"
        for step in episode.steps
    }
    assert said == {("goto", "turn left"), ("putnext", "go forward")}


@pytest.mark.parametrize("name", ["SokobanText-v0", "BabyAIText-v0?task=goto&max_episode_steps=5"])
def test_a_row_that_names_an_environment_which_is_not_played_is_refused(tmp_path, name):
    (tmp_path / "v.yaml").write_text(f"row: {{model: random, environments: [BabyAIText-v0, '{name}']}}\n")
    goto = "BabyAIText-v0?task=goto&max_episode_steps=4"
    with pytest.raises(
        UsageError, match=rf"row 'row': expected environments that are played.*: {re.escape(goto)}; got '{re.escape(name)}'"
    ):
        bench.run(bench.BenchConfig(folder=str(tmp_path / "run"), environments=(goto,), plan=str(tmp_path / "v.yaml")))


def test_rows_that_look_ahead_stand_apart_and_are_found_again(tmp_path, capsys):
    plan = tmp_path / "rows.yaml"
    plan.write_text(
        "ahead: {model: 'scripted:go forward|turn left', lookahead: puct, simulations: 3, noise: 0.1}\n"
        "plain: {model: 'scripted:go forward', mode: choose}\n"
    )
    name = "BabyAIText-v0?task=goto&max_episode_steps=16"
    words = f"bench --folder {tmp_path / 'run'} --environments {name} --plan {plan} --llm-episodes 2 --episodes 1".split()
    assert cli.main(words) == 0
    ahead = "ahead, looks ahead: 3 simulations, noise 0.1"
    rows = json.loads((tmp_path / "run/table.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["random", "plain", "gold (expert)", ahead]
    assert rows[-1]["simulator_steps"] > rows[-1]["length"] and not any(row["looks_ahead"] for row in rows[:-1])
    assert f"{ahead} †" in capsys.readouterr().out and "† The policy looks ahead" in (tmp_path / "run/table.md").read_text()
    played = (tmp_path / "run/episodes.jsonl").read_text()
    assert '"Forks"' in played and '"fork"' not in played, "the observation is stored without it"
    assert cli.main(words) == 0 and (tmp_path / "run/episodes.jsonl").read_text() == played
    shown = read_runs([tmp_path / "run"]).variants
    assert [variant.policy for variant in shown] == ["random", "plain", "gold (expert)", ahead]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- model: random", "expected a mapping"),
        ("a: {model: random}\nb: {model: random}\na: {model: gold}", "line 3: expected each key once; 'a' comes twice"),
        ("a: {mode: text}", "a: expected a model"),
        ("a: {model: 'scripted:x', histroy: 3}", "BabyAIText-v0, a: .*Did you mean 'history'"),
        ("a: {model: 'scripted:x', simulations: 8}", "BabyAIText-v0, a: simulations: expected with lookahead alone"),
        (
            "a:\n  model: random\n  noise: much\n  mode: txt",
            "line 3: a.noise: expected a number.*\n.*line 4: a.mode: expected one of",
        ),
    ],
)
def test_a_mistake_in_a_plan_is_named(tmp_path, text, message):
    path = tmp_path / "rows.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        bench.run(bench.BenchConfig(folder=str(tmp_path / "run"), environments=("BabyAIText-v0",), plan=str(path)))
