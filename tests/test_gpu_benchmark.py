"""`benchmarks/gpu.py` on the CPU, with a model of a few parameters: every contender gives its figures, or says why not."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),  # of transformers' continuous batching, and of a limit too short for the expert
]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


def test_every_contender_gives_its_figures(gpu, tmp_path):
    small = {"episodes": 2, "together": (1, 2), "plain_decisions": 2, "answers": 2, "answer_tokens": 4}
    training = {"environment": "BabyAIText-v0?task=goto&max_episode_steps=8", "rows": 2, "rows_per_pass": 1, "ppo_episodes": 1}
    config = gpu.Config(device="cpu", sizes=("tiny",), precisions=("float32",), **small, **training)
    rows = gpu.main(config, tmp_path)
    assert [(row.failed, row.per_second > 0, row.memory > 0) for row in rows] == [("", True, True)] * 9
    assert [row.ratio is None for row in rows] == [True, False, False, True, False, False, True, False, True]
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record["parameters"] == {"tiny": 1_591_488} and len(record["rows"]) == 9
    assert (tmp_path / "gpu.md").read_text().count("| tiny |") == 9


def test_a_contender_that_fails_is_a_row_that_says_why_and_the_others_go_on(gpu):
    def fail():
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB.")

    row = gpu.measured(gpu.Row("8b", "bfloat16", "decisions/s", "ours"), fail, False)
    assert row.failed == "OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB." and row.beside(row).ratio is None
    assert "out of memory" in " ".join(gpu.cells_of(row))
    plays = [[gpu.Request(({"role": "user", "content": "A box."},), ("go",))]]
    refused = [
        gpu.measured(gpu.Row("tiny", "4bit", task, way), work, False)
        for _, (task, way, work) in zip(range(2), gpu.contenders(gpu.Config(device="cpu"), "nowhere", "4bit", plays), strict=False)
    ]
    assert all("UsageError" in row.failed for row in refused)


def test_models_have_the_parameters_that_are_stated(gpu):
    for size, count in (("0.5b", 494_008_192), ("8b", 8_190_735_360)):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **gpu.SHAPES[size]))
        assert sum(parameter.numel() for parameter in model.parameters()) == count
