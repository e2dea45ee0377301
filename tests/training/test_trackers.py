"""Metrics reach the trackers that users have."""

import pytest

from gym_text import UsageError
from gym_text.errors import MissingDependencyError
from gym_text_policies.training.model.trackers import check_tracker, start_tracker
from gym_text_policies.training.ppo import PPOConfig
from gym_text_policies.training.sft import SFTConfig


def test_tensorboard_has_each_metric_at_its_iteration(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = start_tracker("tensorboard", str(tmp_path), {"episodes": 4, "environments": ("BabyAIText-v0",), "seed": 0})
    for iteration in (1, 2):
        log({"success": iteration / 4, "kl": 0.5}, iteration)
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.tfevents*") if path.parent.name == "tracker"}
    events = EventAccumulator(str(folder)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("success")] == [(1, 0.25), (2, 0.5)]


def test_none_takes_everything_and_writes_nothing(tmp_path):
    start_tracker("none", str(tmp_path), {})({"success": 1.0}, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("config", [SFTConfig, PPOConfig])
def test_an_unknown_tracker_and_one_that_is_not_installed_are_said_at_once(config):
    with pytest.raises(UsageError, match=r"report_to: expected one of 'none', 'tensorboard'.*Did you mean 'tensorboard'"):
        config(report_to="tensorbord")
    with pytest.raises(MissingDependencyError, match="Run: pip install clearml"):
        config(report_to="clearml")
    check_tracker("none")
