"""One description of a policy: what the user gives wins, then what the model was trained with, then the defaults."""

import dataclasses
import json

import pytest

from gym_text import UsageError
from gym_text_policies import Agent, cli, load_policy
from gym_text_policies.load import resolved
from gym_text_policies.policies.config import DEFAULTS, OF_SEARCH, SETTINGS, PolicyConfig
from gym_text_policies.report import runs, table
from gym_text_policies.run import bench
from gym_text_policies.run.experiment import as_config
from gym_text_policies.run.plan import read_plan
from gym_text_policies.search import SearchConfig

ADAPTER = "adapters/babyai-sft"
LEARNT = {"mode": "choose", "strategy": "chat", "history": "all"}


def settings(policy):
    """Return by what a policy is asked."""
    return {name: policy.config[name] for name in LEARNT}


def test_an_adapter_is_asked_as_it_has_learnt_by_every_door(make):
    env = make("BabyAIText-v0")
    assert settings(load_policy(ADAPTER, env)) == LEARNT
    assert settings(Agent(ADAPTER, env).policy) == LEARNT
    experiment = as_config({"agent": {"model": ADAPTER}, "environment": {"name": "BabyAIText-v0"}})
    assert settings(load_policy(experiment.player, env)) == LEARNT
    assert experiment.player.label == "adapters/babyai-sft, chat, choose"


def test_what_the_user_gives_wins_over_what_an_adapter_has_learnt_by_every_door(make):
    env, given = make("BabyAIText-v0"), {"strategy": "zero_shot", "history": 0}
    assert settings(load_policy(ADAPTER, env, **given)) == {**given, "mode": "choose"}
    assert settings(Agent(ADAPTER, env, mode="text", **given).policy) == {**given, "mode": "text"}
    rows = bench.BenchConfig(models=(ADAPTER,), modes=("choose",), **given).rows()
    assert settings(load_policy(rows[f"{ADAPTER}, choose"].policy, env)) == {**given, "mode": "choose"}
    rows = bench.BenchConfig(models=(ADAPTER,), modes=("choose",)).rows()
    assert settings(load_policy(rows[f"{ADAPTER}, choose"].policy, env)) == LEARNT


def test_a_search_s_policy_runs_as_an_experiment(tmp_path, capsys):
    search = ["search", "--environment", "CartPole-v1", "--optimiser", "zero", "--evaluations", "1", "--num-rollouts", "1"]
    assert cli.main([*search, "--no-pictures", "--folder", str(tmp_path / "search")]) == 0
    path = tmp_path / "run.yaml"
    path.write_text(f"agent: {{model: {tmp_path / 'search' / 'policy.json'}}}\nenvironment: {{name: CartPole-v1}}\n")
    assert cli.main(["run", str(path), "--folder", str(tmp_path / "run")]) == 0
    assert "policy.json" in capsys.readouterr().out
    (row,) = [json.loads((tmp_path / "run" / "metrics.json").read_text())]
    assert row["episodes"] == 1 and row["length"] > 0


@pytest.mark.parametrize("given", [[], ["--seed", "0"], ["--seed", "7"]])
def test_an_option_that_equals_its_default_replaces_a_file_s_value(tmp_path, monkeypatch, given):
    path, seen = tmp_path / "search.yaml", []
    path.write_text("seed: 5\nevaluations: 3\n")
    monkeypatch.setattr("gym_text_policies.search.command", seen.append)
    assert SearchConfig.seed == 0, "the default"
    assert cli.main(["search", str(path), *given]) == 0
    assert (seen[0].seed, seen[0].evaluations) == (int(given[1]) if given else 5, 3)


def test_what_was_not_given_is_none_and_the_defaults_are_in_one_place(make):
    config = PolicyConfig.of("scripted:drop", history=3, base_url="http://127.0.0.1")
    assert config.given == {"history": 3} and config.options == {"base_url": "http://127.0.0.1"}
    filled = resolved(config)
    usual = {name: value for name, value in DEFAULTS.given.items() if name not in OF_SEARCH}
    assert filled.given == {**usual, "history": 3} and filled.options == config.options
    without = set(SETTINGS) - DEFAULTS.given.keys() - set(OF_SEARCH)
    of_thoughts = {"think", "think_tokens", "history_thoughts"}
    sampling = {"top_p", "top_k", "min_p"}
    others = {"pictures", "picture_size", "max_tokens", "deterministic", "probabilities"}
    assert without == of_thoughts | sampling | others, (
        "which depend on the model or the strategy, are as before there was a choice, or are for other policies"
    )
    llm = load_policy("scripted:drop", make("BabyAIText-v0")).config
    assert {name: llm[name] for name in DEFAULTS.given.keys() & llm.keys()} == {
        name: value for name, value in DEFAULTS.given.items() if name in llm
    }


def test_settings_of_a_language_model_mean_nothing_to_other_policies(make):
    env = make("BabyAIText-v0")
    with pytest.raises(UsageError, match="policy 'random': expected no options; got mode, timeout"):
        load_policy("random", env, mode="text", timeout=3)
    batch = {"agent": {"model": ["random", "scripted:drop"], "mode": "json"}, "environment": {"name": "BabyAIText-v0"}}
    random, scripted = as_config(batch).experiments
    assert load_policy(random.player, env).config == {"kind": "random", "seed": 0}
    assert load_policy(scripted.player, env).config["mode"] == "json"


def test_settings_of_a_search_are_for_policies_that_look_ahead(make):
    env = make("BabyAIText-v0")
    with pytest.raises(UsageError, match="simulations: expected with lookahead alone"):
        load_policy("scripted:drop", env, simulations=8)
    with pytest.raises(UsageError, match="policy 'gold': expected no options; got lookahead"):
        load_policy("gold", env, lookahead="puct")
    batch = {"agent": {"model": "random", "lookahead": [None, "puct"], "simulations": 8}, "environment": {"name": "BabyAIText-v0"}}
    plain, ahead = as_config(batch).experiments
    assert load_policy(plain.player, env).config == {"kind": "random", "seed": 0}
    assert load_policy(ahead.player, env).config["simulations"] == 8
    assert ahead.player.label == "random, looks ahead: 8 simulations"


def test_noise_and_the_rate_of_questions_are_settings_of_any_policy(make):
    env = make("BabyAIText-v0")
    noisy = load_policy("gold", env, noise=0.25, seed=3).config
    assert noisy["kind"] == "mixed" and (noisy["noise"], noisy["seed"], noisy["player"]) == (0.25, 3, {"kind": "gold"})
    assert load_policy(PolicyConfig("random", action_rate=4), env).config["action_rate"] == 4


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("history", -1, "history: expected an integer from 0"),
        ("history", "al", "history: expected an integer from 0"),
        ("temperature", -1, "temperature: expected a number from 0 to 100; got -1"),
        ("temperature", True, "temperature: expected a number from 0 to 100; got True"),
        ("noise", 1.5, "noise: expected a number from 0 to 1"),
        ("mode", "chose", "Did you mean 'choose'"),
        ("strategy", "zero-shot", "Did you mean 'zero_shot'"),
        ("with_reward", "yes", "with_reward: expected True or False"),
        ("max_tokens", 0, "max_tokens: expected an integer from 1"),
        ("model", "", "model: expected a model's name"),
        ("think", 1, "think: expected True, False, or an effort such as 'low'; got 1"),
        ("think", "", "think: expected True, False, or an effort"),
        ("think_tokens", -1, "think_tokens: expected an integer from 0"),
        ("history_thoughts", "first", "history_thoughts: expected one of"),
        ("top_p", 0, "top_p: expected a number above 0"),
        ("top_p", 1.1, "top_p: expected a number from 0 to 1"),
        ("top_k", 0, "top_k: expected an integer from 1"),
        ("min_p", -0.1, "min_p: expected a number from 0 to 1"),
    ],
)
def test_a_mistake_is_named(name, value, message):
    with pytest.raises(UsageError, match=message):
        PolicyConfig(**{name: value})


def test_a_row_s_label_and_json_have_what_was_given():
    config = PolicyConfig("m" * 80, strategy="chat", action_rate=2, options={"timeout": 3})
    assert config.label == "m" * 59 + "…, chat, text, every 2 steps"
    assert PolicyConfig(**config.to_json()) == config
    assert json.loads(json.dumps(dataclasses.asdict(config)))["history"] is None
    assert table.row("env", config.label, [])["policy"] == config.label


@pytest.mark.parametrize(
    ("words", "value", "label"),
    [
        (["--think", "low"], "low", ", thinks low"),
        (["--think", "true", "--think-tokens", "64"], True, ", thinks up to 64 tokens"),
        (["--think", "false"], False, ", no thought"),
        ([], None, ""),
    ],
)
def test_thinking_is_set_on_the_command_line_and_in_yaml_and_stands_in_the_label(words, value, label, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("gym_text_policies.run.bench.command", seen.append)
    assert cli.main(["bench", "--models", "scripted:drop", "--modes", "text", "--folder", str(tmp_path), *words]) == 0
    ((name, variant),) = seen[0].rows().items()
    assert name == f"scripted:drop, text{label}" and repr(variant.policy.think) == repr(value)
    assert variant.policy.label == f"scripted:drop, zero_shot, text{label}"
    spelt = "" if value is None else f"think: {words[1]}, "
    (tmp_path / "rows.yaml").write_text(f"ours: {{model: 'scripted:drop', {spelt}mode: text}}\n")
    (variant,) = read_plan(tmp_path / "rows.yaml").values()
    assert repr(variant.policy.think) == repr(value)


def test_a_table_of_variants_has_the_settings_of_thoughts_in_its_file(tmp_path):
    (tmp_path / "rows.yaml").write_text("ours: {model: random}\n")
    with pytest.raises(UsageError, match="think: expected none together with variants"):
        bench.BenchConfig(variants=str(tmp_path / "rows.yaml"), think=True).rows()


def test_a_name_says_where_the_expert_or_chance_acts_for_the_model(make, tmp_path):
    config = PolicyConfig("smollm2", mode="choose", action_rate=2, expert_share=1, noise=0.25)
    assert config.label == "smollm2, zero_shot, choose, every 2 steps, expert's share 1, noise 0.25"
    assert PolicyConfig("random", noise=0.5).label == "random, noise 0.5"
    assert runs.policy_name(load_policy("scripted:drop", make("BabyAIText-v0"), expert_share=0.5).config) == (
        "scripted:drop, text, expert's share 0.5"
    )
    assert runs.policy_name({"kind": "mixed", "player": {"kind": "random"}, "noise": "much"}) == "random"
    (tmp_path / "rows.yaml").write_text("ours: {model: random, expert_share: 0.9}\nplain: {model: random, noise: 0}\n")
    assert list(read_plan(tmp_path / "rows.yaml")) == ["ours, expert's share 0.9", "plain"]


@pytest.mark.parametrize("model", ["a\0b", "\ud800", "folder/\0"])
def test_a_model_has_no_character_that_no_file_can_hold(model):
    with pytest.raises(UsageError, match="model: expected a text in Unicode, without the character NUL"):
        PolicyConfig(model)


def test_settings_among_the_options_are_settings_wherever_a_policy_is_made():
    config = PolicyConfig("scripted:left", options={"temperature": 1.0, "noise": 0.5, "timeout": 3})
    assert config == PolicyConfig("scripted:left", temperature=1.0, noise=0.5, options={"timeout": 3})
    assert PolicyConfig("smollm2", mode="text", options={"mode": "text"}).options == {}
    for options in ({"mode": "choose"}, {"model": "random"}, {"options": {}}, {"temperature": 1000}, 5):
        with pytest.raises(UsageError, match=r"options|temperature"):
            PolicyConfig("smollm2", mode="text", options=options)
