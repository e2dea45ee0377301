"""The benchmark, as a user runs it."""

import json
import logging

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from gym_text_policies import EpisodeStore, cli
from gym_text_policies.backends.local.adapters import ADAPTERS
from gym_text_policies.report.runs import read_runs
from gym_text_policies.run import bench
from gym_text_policies.run.plan import player_in


def arguments(folder, **options):
    values = {"episodes": 3, "llm_episodes": 1, "environments": "BabyAIText-v0", "modes": "choose"} | options
    return ["bench", "--folder", str(folder)] + [
        word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", *str(value).split())
    ]


def rows(folder):
    record = json.loads((folder / "table.json").read_text())
    return {(row["environment"], row["policy"]): row for row in record["rows"]}


def test_one_command_gives_the_table_and_names_the_folder(tmp_path, tiny_model, capsys):
    assert cli.main(arguments(tmp_path, models=tiny_model)) == 0
    printed = capsys.readouterr()
    assert str(tmp_path) in printed.out and "gold (expert): 3/3 episodes, 3 won" in printed.err
    assert printed.out.splitlines()[-1].startswith(f"gym-text report {tmp_path} makes a page of bars, pairs")
    table = rows(tmp_path)
    assert [policy for _, policy in table] == ["random", f"{tiny_model}, choose", "gold (expert)"]
    gold = table["BabyAIText-v0", "gold (expert)"]
    assert (gold["episodes"], gold["success"], gold["won"]) == (3, 1.0, 3)
    model = table["BabyAIText-v0", f"{tiny_model}, choose"]
    assert model["tokens_in"] > 1000 and model["seconds_per_decision"] > 0
    record = json.loads((tmp_path / "table.json").read_text())
    assert {"gymnasium", "minigrid", "torch"} <= record["versions"].keys()
    assert record["labels"][gold["key"]] == "gold (expert)", "the key of an episode is no secret"
    assert printed.out.splitlines()[1].split()[1:4] == ["policy", "|", "success"]
    assert "tokens in" not in printed.out and "tokens in" in (tmp_path / "table.md").read_text()


def test_an_environment_without_folds_is_played_unless_a_fold_is_asked_for(tmp_path, monkeypatch, capsys):
    room = EnvSpec("Room-v0", lambda: gym.make("BabyAIText-v0").unwrapped, max_episode_steps=3)
    monkeypatch.setitem(gym.registry, room.id, room)
    words = arguments(tmp_path, environments=room.id, models="random", baselines="none")
    assert cli.main(words) == 0 and next(EpisodeStore(tmp_path).episodes()).environment["kwargs"] == {}
    assert cli.main([*words, "--fold", "test"]) == 2 and "expected no fold, because it takes none" in capsys.readouterr().err


def test_each_temperature_is_a_row(tmp_path, tiny_model):
    played = {"environments": "BabyAIText-v0?max_episode_steps=3", "models": tiny_model, "baselines": "none"}
    assert cli.main([*arguments(tmp_path, **played, llm_episodes=2), "--temperatures", "0", "1"]) == 0
    greedy, drawn = (row for row in EpisodeStore(tmp_path).episodes() if row.seed == 0)
    assert [one.policy["temperature"] for one in (greedy, drawn)] == [0.0, 1.0]
    names = [policy for _, policy in rows(tmp_path)]
    assert names == [f"{tiny_model}, choose, temperature 0", f"{tiny_model}, choose, temperature 1"]


def test_options_of_the_model_reach_it_and_identify_its_episodes(tmp_path, tiny_model):
    options = {"episodes": 0, "models": tiny_model, "environments": "BabyAIText-v0?max_episode_steps=2", "baselines": "none"}
    assert cli.main(arguments(tmp_path, **options)) == 0
    assert cli.main(arguments(tmp_path, **options, options="dtype=bfloat16")) == 0
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines()
    assert ["bfloat16" in json.dumps(json.loads(line)["policy"]) for line in lines] == [False, True], (
        "played again, in the other precision"
    )


def test_an_adapter_is_asked_as_it_was_trained_and_any_other_model_in_two_ways():
    models = ("adapters/babyai-sft", "smollm2")
    rows = bench.BenchConfig(models=models).rows()
    assert list(rows) == ["adapters/babyai-sft, choose", "smollm2, text", "smollm2, choose"]
    assert list(bench.BenchConfig(models=models[:1], modes=("text",)).rows()) == ["adapters/babyai-sft, text"]


def test_a_bench_that_finds_everything_says_so_and_fresh_plays_anew(tmp_path, capsys, caplog):
    caplog.set_level(logging.INFO)
    words = arguments(tmp_path, llm_episodes=0, baselines="random")
    assert cli.main(words) == 0 and "were found" not in capsys.readouterr().out
    assert cli.main(words) == 0
    assert "BabyAIText-v0, random: 3 of 3 episodes are stored already; --fresh plays them again" in caplog.text
    assert cli.main([*words, "--fresh"]) == 0 and "were found" not in capsys.readouterr().out
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 6 and len(EpisodeStore(tmp_path)) == 3


def test_alone_it_shows_what_each_stage_of_training_brings(tmp_path):
    config = bench.BenchConfig(str(tmp_path))
    assert config.shows_stages and not bench.BenchConfig(modes=("choose",)).shows_stages
    rows = config.rows()
    shipped = {path.parent.name for path in ADAPTERS.glob("*/training.json")}
    for name, entries in rows.items():
        for player in entries:
            adapter = player.model.removeprefix("adapters/")
            told = name.partition(",")[0]  # behind it stands how it looks ahead
            assert player.environments and (adapter == "smollm2" or (adapter in shipped and told.endswith(adapter)))
    for environment in bench.BENCHMARK:
        stages = {name.partition(":")[0] for name, entries in rows.items() if player_in(environment, entries)}
        assert {"prompted", "after SFT"} <= stages
    planned = bench.plan_of(bench.BenchConfig(llm_episodes=1, episodes=2))
    assert {len(row.seeds) for row in planned if row.policy.asks_model} == {1}


def test_the_first_table_has_a_report_with_a_film_of_a_won_episode(tmp_path, monkeypatch, capsys):
    plan = tmp_path / "rows.yaml"
    plan.write_text("helped: {model: 'scripted:turn left', expert_share: 1.0, episodes: 1}\n")
    monkeypatch.setattr(bench, "STAGES", plan)
    monkeypatch.setattr(bench.BenchConfig, "shows_stages", True)
    words = ["bench", "--folder", str(tmp_path / "run"), "--environments", "BabyAIText-v0?task=goto", "--episodes", "2"]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(str(tmp_path / "run/report.html"))
    (film,) = (tmp_path / "run/gifs").iterdir()
    assert film.stem in {key for row in read_runs([tmp_path / "run"]).variants for key in row.stores if row.asked}
    assert "data:image/gif;base64," in (tmp_path / "run/report.html").read_text()
