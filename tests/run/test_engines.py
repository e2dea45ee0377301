"""Engines: what is divided among processes, and mistakes in the options."""

import gc
import json
import shutil
from pathlib import Path

import pytest

from gym_text import UsageError
from gym_text_policies import EpisodeStore
from gym_text_policies.backends.local import loading, transformers
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_policy, load_to_measure
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.rollouts import rollout
from gym_text_policies.run.engine import LocalEngine, share_of
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import PlayOptions, Run
from gym_text_policies.run.processes import ProcessEngine

GOTO = "BabyAIText-v0?task=goto"


def test_each_worker_gets_its_share_of_the_limits_on_spending():
    policy = PolicyConfig.of("openai:m", max_cost=6.0, max_total_tokens=100, timeout=5)
    assert share_of(policy, 4).options == {"max_cost": 1.5, "max_total_tokens": 25, "timeout": 5}


@pytest.fixture
def loads(monkeypatch):
    """Note at each reading of weights how many models are in memory beside them."""
    beside = []
    load_model = loading.load_model

    def noted(source):
        gc.collect()
        beside.append(len(loading._kept))
        return load_model(source)

    monkeypatch.setattr(loading, "load_model", noted)
    loading._kept.clear()
    yield beside
    loading._kept.clear()


def test_a_run_of_many_models_holds_two_at_most_and_reads_none_if_all_is_found(tmp_path, tiny_model, loads):
    models = [str(shutil.copytree(tiny_model, tmp_path / name)) for name in "abc"]
    for number, model in enumerate(models):  # three different ones
        config = Path(model, "config.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 1e-6 * (number + 1)}))
    environments = (f"{GOTO}&max_episode_steps=2", "BabyAIText-v0?task=pickup&max_episode_steps=2")
    for reads in (5, 0):
        del loads[:]
        with LocalEngine() as engine, EpisodeStore(tmp_path / "run", {}) as store:
            policies = [PolicyConfig.of(model, mode="choose", device="cpu") for model in models]
            rows = [PlanRow(policy.model, name, policy, range(2)) for name in environments for policy in policies]
            run = Run(rows, store, engine, PlayOptions())
            assert not loads, "identity needs no weights"
            run.play()
            assert len(store) == 12
        assert len(loads) <= reads and max(loads, default=0) <= 1
    told = {episode.policy["model"] for episode in EpisodeStore(tmp_path / "run").episodes()}
    assert told == set(models)


def test_greedy_rows_of_a_run_leave_out_the_probabilities_and_play_the_same_episode(tmp_path, tiny_model, loads, monkeypatch):
    monkeypatch.setattr(transformers, "_FEW_TOKENS", 0)
    env = environment_maker(f"{GOTO}&max_episode_steps=3")
    stored = {}
    for name, settings in {
        "default": {},
        "all": {"probabilities": True},
        "drawn": {"temperature": 1.0},
        "ahead": {"lookahead": "puct"},
    }.items():
        policy = PolicyConfig.of(tiny_model, mode="choose", device="cpu", **settings)
        with LocalEngine() as engine, EpisodeStore(tmp_path / name, {}) as store:
            Run([PlanRow("it", f"{GOTO}&max_episode_steps=3", policy, [1])], store, engine, PlayOptions()).play()
            (stored[name],) = store.episodes()
    decisions = {name: [step.decision for step in episode.steps] for name, episode in stored.items()}
    for name, played in decisions.items():
        assert {one.probability_kind for one in played} == {"not computed" if name == "default" else "likelihood"}
        assert all((one.probabilities is None) == (name == "default") for one in played)
    default, every = stored["default"], stored["all"]
    assert [one.action for one in decisions["default"]] == [one.action for one in decisions["all"]]
    (usual,) = rollout(env, load_policy(tiny_model, env(), mode="choose", device="cpu"), [1])
    assert default.policy == every.policy == usual.policy and default.seed == usual.seed
    assert [step.decision.action for step in usual.steps] == [one.action for one in decisions["default"]]


def test_a_model_that_is_read_when_it_is_asked_is_known_by_the_same_fields(tiny_model, loads):
    env = environment_maker(GOTO)()
    for options in ({"device": "cpu"}, {"device": "cpu", "dtype": "bfloat16"}):
        config = PolicyConfig.of(tiny_model, mode="choose", **options)
        assert load_to_measure(config, env).config == load_policy(config, env).config
    (tmp := load_to_measure(config, env)).check()
    obs, _ = env.reset(seed=0)
    assert tmp(obs) in env.action_space and len(loads) == 2


def test_a_model_that_cannot_be_read_is_said_before_anything_is_played(tmp_path, tiny_model):
    broken = shutil.copytree(tiny_model, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no weights")
    with LocalEngine() as engine, EpisodeStore(tmp_path / "run", {}) as store:
        policy = PolicyConfig.of(str(broken), mode="choose", device="cpu")
        rows = [PlanRow("first", GOTO, PolicyConfig("random"), [0]), PlanRow("bad", GOTO, policy, [0])]
        with pytest.raises(UsageError, match=r", bad: model .*broken': expected one that can be loaded"):
            Run(rows, store, engine, PlayOptions()).play()
        assert len(store) == 0


@pytest.mark.parametrize("setting", [{"think": False}, {"think_tokens": 8}, {"top_p": 0.9}])
def test_rows_whose_requests_differ_are_checked_apart(setting, monkeypatch):
    asked, engine = [], LocalEngine()
    monkeypatch.setattr(engine, "ask_policy", lambda row: asked.append(row.policy.given))
    for more in ({}, setting, {"noise": 0.5}):
        engine.check(PlanRow("", GOTO, PolicyConfig.of("scripted:go", **more), [0]))
    assert asked == [{}, setting]


def test_each_worker_gets_several_parts_of_the_seeds():
    rows = [PlanRow("", GOTO, PolicyConfig(name), range(count)) for name, count in (("random", 100), ("gold", 5))]
    with ProcessEngine(3, 2) as engine:
        tasks = list(engine.divided(rows))
    assert [len(task.seeds) for task in tasks] == [4] * 25 + [4, 1]
    assert [sorted(task.seeds)[0] for task in tasks[:2]] == [0, 4] and tasks[-1].seeds == {4}
