"""The optimisers: a run that cannot have the one that is asked for says so before it begins."""

import sys
from types import SimpleNamespace

import pytest
import torch
from training_data import examples

from gym_text import UsageError
from gym_text.errors import MissingDependencyError
from gym_text_policies.training.grpo import GRPOConfig, train
from gym_text_policies.training.model.optim import check_optim, make_optim
from gym_text_policies.training.sft import SFTConfig, sft

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind, run", [(GRPOConfig, train), (SFTConfig, lambda config: sft(config, examples()))])
def test_8_bits_without_bitsandbytes_are_refused_before_a_model_is_loaded(kind, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingDependencyError, match=r"'bitsandbytes' is not installed\. Run: pip install 'gym-text\[gpu\]'"):
        run(kind(folder=str(tmp_path / "run"), model="hf:nobody/nothing", optim="adamw_8bit"))
    with pytest.raises(UsageError, match="optim: expected one of 'adamw', 'adamw_8bit'; got 'adam_8bit'"):
        kind(optim="adam_8bit")


def test_a_bitsandbytes_without_kernels_for_the_device_is_told_by_a_first_step(monkeypatch):
    def fail(parameters, **options):
        raise AttributeError("no kernel for the CPU")

    monkeypatch.setitem(sys.modules, "bitsandbytes", SimpleNamespace(optim=SimpleNamespace(AdamW8bit=fail)))
    with pytest.raises(UsageError, match=r"optim: expected a bitsandbytes that has 8-bit Adam on cpu; no kernel for the CPU"):
        check_optim("adamw_8bit", "cpu")
    parameter = torch.nn.Parameter(torch.ones(2))
    (group,) = make_optim("adamw", [parameter], lr=0.5).param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.0)
