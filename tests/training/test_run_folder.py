"""What a run of on-policy training writes beside its checkpoints."""

import pytest

from gym_text import UsageError
from gym_text.errors import MissingDependencyError
from gym_text_policies.training.ppo import PPOConfig
from gym_text_policies.training.run_folder import tracking
from gym_text_policies.training.sft import SFTConfig


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
