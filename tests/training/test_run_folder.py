"""The folder of a training run: whose it is, and what a run writes beside its checkpoints."""

import pytest

from gym_text import UsageError
from gym_text.errors import MissingDependencyError, StoreError
from gym_text_policies.training.ppo import PPOConfig
from gym_text_policies.training.run_folder import claim, tracking
from gym_text_policies.training.sft import SFTConfig


def claimed(tmp_path, config=PPOConfig, **settings):
    """Claim the folder for a run."""
    return claim(config(folder=str(tmp_path), **settings))


def test_a_folder_is_of_one_run_with_the_same_settings_and_one_at_a_time(tmp_path):
    with claimed(tmp_path):
        (tmp_path / "metrics.jsonl").touch()
    with claimed(tmp_path, iterations=5), pytest.raises(StoreError), claimed(tmp_path):
        pass
    with pytest.raises(UsageError, match="seed: stored 0, given 1"), claimed(tmp_path, seed=1):
        pass
    with pytest.raises(UsageError, match="run: stored"), claimed(tmp_path, SFTConfig):
        pass


def test_a_run_that_is_stopped_says_which_checkpoint_is_kept(tmp_path):
    def stopped():
        with pytest.raises(KeyboardInterrupt) as stop, claimed(tmp_path):
            raise KeyboardInterrupt
        return str(stop.value)

    assert stopped() == f"Nothing is kept: {tmp_path} has no checkpoint yet."
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-11.partial"):
        (tmp_path / name).mkdir()
    assert stopped() == f"The checkpoint {tmp_path}/checkpoint-10 is kept; the same command goes on from there."


def test_a_run_brings_back_what_a_killed_one_has_left_aside(tmp_path):
    (tmp_path / "best.replaced").mkdir()
    (tmp_path / "best.replaced" / "weights").touch()
    with claimed(tmp_path):
        assert [path.name for path in (tmp_path / "best").iterdir()] == ["weights"]


def test_tensorboard_has_each_metric_at_its_iteration(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tracking(PPOConfig(folder=str(tmp_path), report_to="tensorboard")) as log:
        for iteration in (1, 2):
            log({"success": iteration / 4, "kl": 0.5}, iteration)
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.tfevents*") if path.parent.name == "gym-text"}
    events = EventAccumulator(str(folder)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("success")] == [(1, 0.25), (2, 0.5)]


@pytest.mark.parametrize("config", [SFTConfig, PPOConfig])
def test_an_unknown_tracker_and_one_that_is_not_installed_are_refused_at_once(config):
    with pytest.raises(UsageError, match=r"report_to: expected one of 'none', 'tensorboard'.*Did you mean 'tensorboard'"):
        config(report_to="tensorbord")
    with pytest.raises(MissingDependencyError, match="Run: pip install clearml"):
        config(report_to="clearml")
