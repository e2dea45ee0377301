"""One description of a policy: what the user gives wins, then what the model was trained with, then the defaults."""

import pytest

from gym_text import UsageError
from gym_text_policies import Agent, load_policy
from gym_text_policies.load import resolved
from gym_text_policies.policies.config import DEFAULTS, OF_SEARCH, PolicyConfig
from gym_text_policies.report import runs
from gym_text_policies.run import bench
from gym_text_policies.run.experiment import as_config
from gym_text_policies.run.plan import read_plan

ADAPTER = "adapters/babyai-sft"
LEARNT = {"mode": "choose", "strategy": "chat", "history": "all"}


def settings(policy):
    """Return by what a policy is asked."""
    return {name: policy.config[name] for name in LEARNT}


@pytest.mark.parametrize("given", [{}, {"strategy": "zero_shot", "history": 0}])
def test_an_adapter_is_asked_as_it_has_learnt_by_every_door_and_what_the_user_gives_wins(make, given):
    env, expected = make("BabyAIText-v0"), {**LEARNT, **given}
    assert settings(load_policy(ADAPTER, env, **given)) == expected
    assert settings(Agent(ADAPTER, env, **given).policy) == expected
    experiment = as_config({"agent": {"model": ADAPTER, **given}, "environment": {"name": "BabyAIText-v0"}})
    assert settings(load_policy(experiment.player, env)) == expected
    (row,) = bench.BenchConfig(models=(ADAPTER,), modes=("choose",), **given).rows()[f"{ADAPTER}, choose"]
    assert settings(load_policy(row, env)) == expected


def test_what_was_not_given_is_none_and_the_defaults_are_in_one_place(make):
    config = PolicyConfig.of("scripted:drop", history=3, base_url="http://127.0.0.1")
    assert config.given == {"history": 3} and config.options == {"base_url": "http://127.0.0.1"}
    filled = resolved(config)
    usual = {name: value for name, value in DEFAULTS.given.items() if name not in OF_SEARCH}
    assert filled.given == {**usual, "history": 3} and filled.options == config.options
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
        ("history", "al", "history: expected an integer from 0"),
        ("noise", 1.5, "noise: expected a number from 0 to 1"),
        ("mode", "chose", "Did you mean 'choose'"),
        ("prior_temperature", 0, "prior_temperature: expected a number above 0"),
    ],
)
def test_a_mistake_is_named(name, value, message):
    with pytest.raises(UsageError, match=message):
        PolicyConfig(**{name: value})


def test_a_name_says_where_the_expert_or_chance_acts_for_the_model(make, tmp_path):
    assert runs.policy_name(load_policy("scripted:drop", make("BabyAIText-v0"), expert_share=0.5).config) == (
        "scripted:drop, text, expert's share 0.5"
    )
    (tmp_path / "rows.yaml").write_text("ours: {model: random, expert_share: 0.9}\nplain: {model: random, noise: 0}\n")
    assert list(read_plan(tmp_path / "rows.yaml")) == ["ours, expert's share 0.9", "plain"]


def test_settings_among_the_options_are_settings_wherever_a_policy_is_made():
    config = PolicyConfig("scripted:left", options={"temperature": 1.0, "noise": 0.5, "timeout": 3})
    assert config == PolicyConfig("scripted:left", temperature=1.0, noise=0.5, options={"timeout": 3})
    assert PolicyConfig("smollm2", mode="text", options={"mode": "text"}).options == {}
    for options in ({"mode": "choose"}, {"model": "random"}, {"options": {}}, {"temperature": 1000}, 5):
        with pytest.raises(UsageError, match=r"options|temperature"):
            PolicyConfig("smollm2", mode="text", options=options)
