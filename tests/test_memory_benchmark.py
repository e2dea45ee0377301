"""`benchmarks/memory.py`: its arithmetic beside real models."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gym_text_policies.training.model.lora import add_lora

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("size", ["tiny", "8b"])
def test_the_arithmetic_counts_the_weights_of_a_model_and_of_its_adapter(size, attention, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    memory = importlib.import_module("memory")
    way = memory.Way(memory.SHAPES[size], attention=attention)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **way.shape), dtype=torch.bfloat16)
        sizes = [weight.numel() * weight.element_size() for weight in model.parameters()]
        assert sum(sizes) == way.base
        model = add_lora(model, target_modules=("attention",) if attention else None)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    assert sum(weight.numel() for weight in trained) == way.adapter and way.learning == 16 * way.adapter
    changed = [layer.base_layer.weight for layer in model.modules() if hasattr(layer, "base_layer")]
    assert sum(weight.numel() * 2 for weight in changed) == way.player, "the copy shares all else"
    cut = memory.Way(way.shape, four_bits=True, attention=attention, eight_bits=True)
    assert cut.player == 0 and cut.base < way.base and cut.learning < way.learning


def test_the_table_says_what_is_left_and_a_smaller_model_is_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    memory = importlib.import_module("memory")
    memory.main(memory.Config(measured="tiny"), tmp_path)
    stages = json.loads((tmp_path / "memory.json").read_text())["measured"]
    assert [stage["stage"] for stage in stages] == ["load_base", "add_lora", "player_of", "one step"]
    assert stages[0]["by_arithmetic"] == 2 * 1_591_488, "two bytes a weight"
    again = [memory.measured("tiny") for _ in range(2)]  # peaks of equal runs differ by some 60 MB, so the least counts
    least = [min(stage["peak"], *(run[place][2] for run in again)) for place, stage in enumerate(stages)]
    assert all(-1e7 < peak < 1e8 for peak in least), "without what the libraries take"
    lines = (tmp_path / "memory.md").read_text().splitlines()
    assert "8,190,735,360 parameters" in lines[0] and sum(line.endswith("| not run |") for line in lines) == 4
    assert lines[4].count("| no |") == 1, "in bfloat16 with a player, 24 GB are not enough"
