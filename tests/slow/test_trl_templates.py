"""The chat templates that TRL ships: where an answer begins and ends in each."""

import importlib
from pathlib import Path

from libraries.environments import own_python


def test_every_template_that_trl_ships_is_answered_at_its_place_or_refused(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    script = importlib.import_module("chat_templates")
    (templates,) = Path(own_python("trl")).parent.parent.glob("lib/python*/site-packages/trl/chat_templates")
    markers = script.markers_of(templates)
    asked = {path.stem: script.ask(path.stem, path.read_text("utf-8"), markers) for path in templates.glob("*.jinja")}
    assert len(asked) > 60 and {name for name, each in asked.items() if each.refused} == {"deepseek_r1_distill_training"}
    assert max(max(each.differences, default=0) for each in asked.values()) < 1e-4
    ends = {"gemma3": "<end_of_turn>", "phi3": "<|end|>", "glm4moe": "<|user|>", "gptoss": "<|return|>", "qwen3": "<|im_end|>"}
    assert {name: asked[name].end for name in ends} == ends
    assert {name: asked[name].keeps[0] for name in ("qwen3", "qwen3_training")} == {"qwen3": False, "qwen3_training": True}
    assert asked["nemotron_3_nano"].keeps == asked["qwen3_8"].keeps == [True, True] and asked["gptoss"].keeps == [False, False]
    assert asked["qwen3_5_think"].inside and asked["nemotron_3_nano"].inside and not asked["qwen3"].inside
