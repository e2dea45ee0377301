"""Layers that torch compiles learn what they learn otherwise."""

import json
import shutil

import pytest
import torch
from training_data import GOTO

from gym_text_policies.training.model import layouts
from gym_text_policies.training.sft import SFTConfig, sft

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.torch.jit")  # of torch's own, while it compiles
def test_compiled_layers_learn_the_same_from_rows_of_any_length(tiny_model, tmp_path, noisy_rows, monkeypatch):
    monkeypatch.setattr(layouts, "_BLOCK", 64)
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)  # one core: processes that compile would only import torch
    learnt, dev = [], (f"{GOTO}&max_episode_steps=3",)
    for compiled in (False, True):
        folder = str(tmp_path / str(compiled))
        config = SFTConfig(
            folder=folder, model=tiny_model, rows_per_step=1, max_steps=4, save_steps=2, compiled=compiled,
            dev_environments=dev, dev_episodes=1,
        )  # fmt: skip
        curve = json.loads((sft(config, noisy_rows) / "training.json").read_text())["curve"]
        learnt.append([line["loss"] for line in curve])
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert len(learnt[1]) == 4 and learnt[1] == pytest.approx(learnt[0], rel=1e-3)
    assert graphs <= 12, "not more of them for more lengths"
