"""`collect`: which episodes become training data."""

import contextlib
import dataclasses
import functools
import json
from pathlib import Path

import gymnasium as gym
import pytest
from provider_server import running
from thinking_server import ThinkingServer, expert_of
from training_data import GOTO, Corridor, thinker

from gym_text import UsageError
from gym_text_policies import load_policy
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import policy_of
from gym_text_policies.policies.config import TRAINED, settings_of
from gym_text_policies.run import engine
from gym_text_policies.run.bench import BenchConfig, run
from gym_text_policies.store import EpisodeStore
from gym_text_policies.training.sft import SFTConfig, sft


def test_with_noise_the_experts_answer_is_learnt_and_the_played_one_shown(noisy_rows):
    differing = 0
    for row in noisy_rows:
        assert [bool(label) for label in row.labels] == [message["role"] == "assistant" for message in row.messages]
        said = [(message["content"], label) for message, label in zip(row.messages, row.labels, strict=True) if label]
        differing += sum(played != label for played, label in said[:-1])
    assert differing > 3


def test_a_models_own_thoughts_become_data_and_an_adapter_that_learns_them_thinks(tiny_model, tmp_path):
    make = functools.partial(gym.make, "BabyAIText-v0", task="goto", fold="train", max_episode_steps=20)
    teacher = ThinkingServer("vllm", expert_of(make, range(2)), thought="I look for it.")
    config = CollectConfig(
        str(tmp_path / "data"), (f"{GOTO}&max_episode_steps=20",), ("2",), model="openai:teacher", options={"mode": "text"}
    )
    with running(teacher):
        options = {"mode": "text", "base_url": f"{teacher.url}/v1"}
        rows = collect(dataclasses.replace(config, options=options, threshold=0.9))
    assert len(rows) == 2 and all(row.success for row in rows)
    thoughts = {example.thought for row in rows for example in row.examples()}
    assert thoughts == {"I look for it."} and read_rows(tmp_path / "data" / "rows") == rows
    learning = {"data": (str(tmp_path / "data" / "rows"),), "max_steps": 1, "rows_per_step": 2}
    with pytest.raises(UsageError, match=r"template has none\. Give a template that has some \(chat_template\), or collect"):
        sft(SFTConfig(model=tiny_model, folder=str(tmp_path / "plain"), **learning))
    adapter = sft(SFTConfig(model=thinker(tiny_model, tmp_path / "thinker"), folder=str(tmp_path / "sft"), **learning))
    assert settings_of(str(adapter)) == {**TRAINED.given, "think": True}


def test_an_episode_in_which_the_expert_has_no_plan_any_more_is_learnt_up_to_there(tmp_path, caplog):
    # noise opens the box that is to be picked up: it is gone, and the mission with it
    environment = "BabyAIText-v0?task=pick_up_seq_go_to"
    config = CollectConfig(str(tmp_path), (environment,), ("1",), first_seed=105, noise=0.2, model="gold")
    with caplog.at_level("INFO"):
        (row,) = collect(config)
    (episode,) = EpisodeStore(tmp_path).episodes()
    assert episode.error and "The expert has no action here" in episode.error and episode.steps[-1].decision.action == "toggle"
    assert [label for label in row.labels if label] == [step.gold_action for step in episode.steps]
    assert "1 kept up to an error" in caplog.text


def test_gold_data_is_won_and_only_new_episodes_are_played_when_more_are_asked_for(tmp_path, monkeypatch):
    config = CollectConfig(str(tmp_path), ("CookingWorldText-v0",), ("6",))
    rows = collect(config)
    episodes = list(EpisodeStore(tmp_path).episodes())
    kept = [episode for episode in episodes if not episode.invalid]
    assert len(rows) == 6
    assert {row.episode for row in rows} == {episode.key for episode in kept if episode.outcome == "won"}
    assert read_rows(tmp_path / "rows") == rows and policy_of(rows) == TRAINED
    assert [label for label in rows[0].labels if label] == [m["content"] for m in rows[0].messages if m["role"] == "assistant"]
    played = []
    monkeypatch.setattr(engine, "rollout", lambda make_env, policy, seeds, **_: played.extend(seeds) or ())
    assert collect(dataclasses.replace(config, episodes=("8",))) == rows and played == [6, 7]


def test_episodes_with_the_same_texts_and_labels_are_one_row(tmp_path, caplog):
    with corridor(), caplog.at_level("INFO"):
        config = CollectConfig(str(tmp_path), ("Corridor-v0",), ("3",), model="scripted:right", options={"mode": "text"})
        (row,) = collect(config)  # every level is the same, and so is what the player says
    assert len(list(EpisodeStore(tmp_path).episodes())) == 3 and read_rows(tmp_path / "rows") == [row]
    assert "Episodes: 1 kept, 2 duplicates or unlabelled. Rows: 1." in caplog.text


def test_own_episodes_are_filtered_and_none_left_is_said(tmp_path):
    config = CollectConfig(str(tmp_path / "a"), (GOTO,), ("12",), model="random", threshold=0.7)
    rows = collect(config)
    assert 0 < len(rows) < 12 and all(row.success for row in rows)
    with pytest.raises(UsageError, match="none is left"):
        collect(dataclasses.replace(config, folder=str(tmp_path / "b"), model="scripted:drop", episodes=("2",)))
    with pytest.raises(UsageError, match="own_words: expected False, because the rows' prompts have the names"):
        collect(dataclasses.replace(config, options={"own_words": True}))
    with pytest.raises(UsageError, match="train fold alone"):
        CollectConfig(environments=(f"{GOTO}&fold=test",))
    with pytest.raises(UsageError, match="dev_environments: expected the dev fold alone"):
        SFTConfig(dev_environments=(f"{GOTO}&fold=test",))


@contextlib.contextmanager
def corridor():
    """Register an environment without an expert while the block runs."""
    gym.register("Corridor-v0", Corridor, max_episode_steps=5)
    try:
        yield
    finally:
        del gym.registry["Corridor-v0"]


def test_a_folder_belongs_to_its_settings_and_settings_stand_among_the_options(tmp_path):
    config = CollectConfig(str(tmp_path), (GOTO,), ("2",), model="random", threshold=0)
    collect(config)
    stored = {"collected": "episodes", "policy": "random", "labels": "", "temperature": 0.0, "noise": 0.0, "expert_share": 0.0}
    stored |= {"seed": 0, "mode": "choose", "strategy": "chat", "history": "all", "with_reward": False}
    assert json.loads((tmp_path / "config.json").read_text()) == stored
    given = dataclasses.replace(config, options={"noise": 0.5, "max_tokens": 4})
    assert given.learnt == "expert" and given.player.noise == 0.5 and given.prompting.max_tokens == 4
    with pytest.raises(UsageError, match=r"these keys differ: noise: stored 0\.0, given 0\.5"):
        collect(given)
    with pytest.raises(UsageError, match="noise: expected a number from 0 to 1; got 2"):
        CollectConfig(noise=2)


def test_a_policy_that_looks_ahead_makes_training_data_without_the_expert(tmp_path):
    game = "SimonSaysText-v0?game_length=3"
    config = CollectConfig(
        str(tmp_path), (game,), ("3",), model="random", options={"lookahead": "puct", "simulations": 12}, threshold=1
    )
    rows = collect(config)
    episodes = list(EpisodeStore(tmp_path).episodes())
    assert rows and all(row.success for row in rows) and all(episode.looks_ahead for episode in episodes)
    assert all(step.gold_action is None for episode in episodes for step in episode.steps)
    with pytest.raises(UsageError, match="these keys differ: simulations: stored 12, given 8"):
        collect(dataclasses.replace(config, options={"lookahead": "puct", "simulations": 8}))


def test_an_environment_without_an_expert_is_said_in_time(tmp_path):
    with corridor():
        for options in ({"model": "gold"}, {"model": "random", "labels": "expert"}, {"model": "random", "noise": 0.5}):
            for name in ("Corridor-v0", "FrozenLake-v1"):
                with pytest.raises(UsageError, match=f"expected an environment with an expert; {name} has none"):
                    collect(CollectConfig(str(tmp_path), (name,), ("2",), **options))
        assert collect(CollectConfig(str(tmp_path / "lake"), ("FrozenLake-v1",), ("2",), model="random", threshold=0))
        config = BenchConfig(folder=str(tmp_path / "bench"), environments=("Corridor-v0",), models=(), episodes=1)
        assert [row["policy"] for row in _rows_of(config)] == ["random"]
        env = gym.make("Corridor-v0")
        for model, settings in (("gold", {}), ("random", {"expert_share": 0.5}), ("scripted:left", {"strategy": "few_shot"})):
            with pytest.raises(UsageError, match="has none"):
                load_policy(model, env, **settings)


def _rows_of(config):
    run(config)
    return json.loads((Path(config.folder) / "table.json").read_text())["rows"]
