"""Environments by one string."""

import pytest

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import environment_maker, level_id, make_environment, parse_environment
from gym_text_policies.environments.stored import make_stored_environment
from gym_text_policies.policy import environment_config


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
    ],
)
def test_a_name_that_means_nothing_is_refused(name, message):
    with pytest.raises(UsageError, match=message):
        parse_environment(name)


def test_an_environment_is_made_by_its_name_whose_arguments_come_first():
    name, defaults = "gym_text:BabyAIText-v0?task=goto&fold=dev&max_episode_steps=7", {"fold": "test", "expert": "off"}
    for env in (environment_maker(name, **defaults)(), make_environment(name, **defaults)):
        assert environment_config(env)["kwargs"] == {"task": "goto", "fold": "dev", "expert": "off"}
        assert env.spec.max_episode_steps == 7
    with pytest.raises(UsageError, match="Did you mean 'num_dists'"):
        environment_maker("BabyAIText-v0?num_dist=2")
    with pytest.raises(UsageError, match="num_dists: expected an integer"):
        environment_maker("BabyAIText-v0?task=goto&num_dists=two")()


@pytest.mark.parametrize(("score", "outcome"), [(8, "won"), (500, "lost")])
def test_the_score_that_is_a_success_is_an_argument_of_the_environment(score, outcome):
    make_env = environment_maker(f"CartPole-v1?success_at={score}")
    with make_env() as env:
        (episode,) = rollout(make_env, load_policy("random", env), [0], num_envs=1)
        assert environment_config(make_stored_environment(episode.environment)) == environment_config(env) == episode.environment
    assert episode.outcome == outcome and episode.steps[-1].truncated is episode.steps[-2].success is False
    assert (
        level_id(episode.environment, "test", 2) == level_id(f"CartPole-v1?success_at={score}", "test", 2) == "CartPole-v1 test 2"
    )
    with pytest.raises(UsageError, match=r"BabyAIText-v0'?: expected .*success_at"):
        environment_maker("BabyAIText-v0?success_at=1")()


def test_a_name_with_a_module_imports_nothing_if_its_end_is_no_id(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "never_imported.py").write_text("raise SystemExit")
    for name in ("never_imported:/x", "never_imported:", "never_imported:a b"):
        with pytest.raises(UsageError, match="expected one of"):
            parse_environment(name)


def test_a_record_of_a_wrapper_without_arguments_has_a_level():
    record = {"id": "BabyAIText-v0", "kwargs": {"task": "goto"}, "wrappers": [["DescribeObservation", None], ["Mine", None]]}
    assert level_id(record, "test", 2) == level_id("BabyAIText-v0?task=goto", "test", 2)
    assert level_id({"id": "BabyAIText-v0"}, None, 2) == "BabyAIText-v0 2", "old records have the id alone"
