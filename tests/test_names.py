"""Environments by one string, and policies out of a YAML file."""

import json

import pytest

from gym_text import UsageError
from gym_text_policies import cli
from gym_text_policies.environments import environment_maker, parse_environment
from gym_text_policies.experiments import bench
from gym_text_policies.policy import environment_config
from gym_text_policies.report.runs import read_runs


def test_a_name_holds_an_id_and_its_arguments():
    assert parse_environment("BabyAIText-v0") == ("BabyAIText-v0", {})
    name = "BabyAIText-v0?task=goto&num_dists=2&feedback=True&level=None&text='1'"
    arguments = {"task": "goto", "num_dists": 2, "feedback": True, "level": None, "text": "1"}
    assert parse_environment(name) == ("BabyAIText-v0", arguments)
    assert parse_environment("gym_text:LunarLanderLLM-v2") == ("LunarLanderLLM-v2", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BabyAIText-v1", "Did you mean 'BabyAIText-v0'"),
        ("no_such_module:BabyAIText-v0", "expected a module that registers it"),
        ("./gym_text:BabyAIText-v0", "'./gym_text' is no module's name"),
        ("BabyAIText-v0?task", r"expected BabyAIText-v0\?key=value&key=value, each key once; got 'task'"),
        ("BabyAIText-v0?task=goto&task=open", "got 'task=open'"),
        ("BabyAIText-v0?task=goto&", "got ''"),
    ],
)
def test_a_name_that_means_nothing_is_refused(name, message):
    with pytest.raises(UsageError, match=message):
        parse_environment(name)


def test_an_environment_is_made_by_its_name_whose_arguments_come_first():
    env = environment_maker("BabyAIText-v0?task=goto&fold=dev&max_episode_steps=7", fold="test", expert="off")()
    arguments = environment_config(env)["kwargs"]
    assert arguments == {"task": "goto", "fold": "dev", "expert": "off"}
    assert env.spec.max_episode_steps == 7
    with pytest.raises(UsageError, match="Did you mean 'num_dists'"):
        environment_maker("BabyAIText-v0?num_dist=2")
    with pytest.raises(UsageError, match="num_dists: expected an integer"):
        environment_maker("BabyAIText-v0?task=goto&num_dists=two")()


def test_each_variant_is_a_row_beside_random_and_expert(tmp_path, capsys):
    variants = tmp_path / "variants.yaml"
    variants.write_text(
        "left: {model: 'scripted:turn left', history: 2}\nchoose: {model: 'scripted:go forward', mode: choose, seeds: 1}\n"
    )
    name = "BabyAIText-v0?task=goto&max_episode_steps=8"
    words = f"bench --folder {tmp_path / 'run'} --environments {name} --variants {variants} --fold none --first-seed 200 --seeds 2"
    assert cli.main([*words.split(), "--llm-seeds", "2"]) == 0
    rows = json.loads((tmp_path / "run/table.json").read_text())["rows"]
    assert [(row["environment"], row["policy"], row["episodes"]) for row in rows] == [
        (name, policy, count) for policy, count in {"random": 2, "left": 2, "choose": 1, "gold (expert)": 2}.items()
    ]
    records = [json.loads(line) for line in (tmp_path / "run/episodes.jsonl").read_text().splitlines()]
    assert {record["seed"] for record in records} == {200, 201}
    assert all(record["environment"]["kwargs"] == {"task": "goto"} for record in records)
    variants.write_text("left: {model: 'scripted:turn left', history: 3}\nright: {model: 'scripted:turn right'}\n")
    assert cli.main([*words.split(), "--llm-seeds", "2"]) == 0
    rows = json.loads((tmp_path / "run/table.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["random", "left", "right", "gold (expert)"]
    added = (tmp_path / "run/episodes.jsonl").read_text().splitlines()[len(records) :]
    assert len(added) == 4, "only the new rows are played"
    assert {variant.policy for variant in read_runs([tmp_path / "run"]).variants} == {
        *("random", "left, history=2", "left, history=3", "choose", "right", "gold (expert)")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- model: random", "expected a mapping"),
        ("a: [1", "line 1: expected YAML"),
        ("a: {model: random}\nb: {model: random}\na: {model: gold}", "line 3: expected each key once; 'a' comes twice"),
        ("a: {model: random}\nb: {model: gold, model: random}", "line 2: expected each key once; 'model' comes twice"),
        ("a: {mode: text}", "a: expected a model"),
        ("a: {model: random, env: x}", "got 'env'"),
        ("b: {model: random}\na: smollm2", "line 2: a: expected options"),
        ("a: !!python/object/apply:os.getcwd []", "expected YAML"),
        ("a: {model: 'scripted:x', histroy: 3}", "variant 'a': .*Did you mean 'history'"),
        ("a: {model: 'scripted:x', seeds: many}", "a: seeds: expected an integer"),
        ("a: {model: 'scripted:x', with_reward: maybe}", "line 1: a: with_reward: expected true or false or null; got 'maybe'"),
    ],
)
def test_a_mistake_in_a_variants_file_is_named(tmp_path, text, message):
    path = tmp_path / "variants.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        bench.run(bench.BenchConfig(folder=str(tmp_path / "run"), environments=("BabyAIText-v0",), variants=str(path)))
