"""The test fold at the end of training, played by the adapter as gym-text bench plays it."""

import dataclasses
import json

import pytest
from training_data import GOTO

from gym_text import UsageError
from gym_text_policies.run import bench
from gym_text_policies.store import EpisodeStore
from gym_text_policies.training import grpo, sft
from gym_text_policies.training.dagger import DAggerConfig

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = f"{GOTO}&max_episode_steps=3"
MEASURED = {"test_environments": (SHORT,), "test_episodes": 2}


def test_the_saved_adapter_plays_the_test_fold_once_and_its_record_has_the_figures_of_bench(tiny_model, tmp_path, monkeypatch):
    config = grpo.GRPOConfig(
        folder=str(tmp_path / "run"), model=tiny_model, environments=(SHORT,), iterations=1, episodes_per_iteration=2, group_size=2,
        episodes_per_step=2, dev_every=0, **MEASURED,
    )  # fmt: skip
    said = grpo.run(config).splitlines()
    adapter = tmp_path / "run/adapter"
    (figures,) = json.loads((adapter / "training.json").read_text())["test"]
    assert said[1] == f"{SHORT}, 2 episodes of the test fold: success {figures['success']:.2f}, return {figures['return']:.3g}."
    with EpisodeStore(tmp_path / "run/test") as store:
        played = list(store.episodes())
    assert [(episode.environment["kwargs"]["fold"], episode.seed) for episode in played] == [("test", 0), ("test", 1)]
    assert all(episode.policy["temperature"] == 0 for episode in played), "greedily"
    elsewhere = bench.BenchConfig(
        str(tmp_path / "bench"), environments=(SHORT,), models=(str(adapter),), baselines=("none",), llm_episodes=2
    )
    _, again = bench.run(elsewhere)
    identity = [(episode.environment, episode.policy, episode.total_reward) for episode in played]
    assert [(episode.environment, episode.policy, episode.total_reward) for episode in again.episodes()] == identity
    again.close()
    monkeypatch.setattr("gym_text_policies.engines.base.rollout", lambda *_, **__: pytest.fail("it is played once"))
    assert grpo.run(config).splitlines() == said


def test_a_run_that_is_done_can_still_be_measured_once(tiny_model, tmp_path, noisy_rows):
    config = sft.SFTConfig(folder=str(tmp_path / "run"), model=tiny_model, max_steps=1, rows_per_step=2)
    adapter = sft.sft(config, noisy_rows)
    record = json.loads((adapter / "training.json").read_text())
    assert sft.sft(dataclasses.replace(config, **MEASURED)) == adapter
    figures = json.loads((adapter / "training.json").read_text())
    assert figures.pop("test")[0]["episodes"] == 2 and figures == record
    with pytest.raises(UsageError, match="exists already"):
        sft.sft(dataclasses.replace(config, **MEASURED))
    with pytest.raises(UsageError, match="test_environments: expected the test fold alone"):
        sft.SFTConfig(test_environments=("BabyAIText-v0?fold=train",))
    with pytest.raises(UsageError, match="expected settings without test_environments, which DAgger sets"):
        DAggerConfig(sft=sft.SFTConfig(test_environments=(SHORT,)))
