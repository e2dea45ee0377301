"""The table of `benchmarks/adapters.py`."""

import importlib
from pathlib import Path

from gym_text_policies.report.runs import Variant
from gym_text_policies.report.table import Summary


def test_two_adapters_are_compared_on_the_same_seeds_by_the_keys_of_the_table(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    paired = importlib.import_module("adapters").paired
    lost, won = ("lost", 0.0), ("won", 1.0)
    played = {"old": [lost] * 6, "x-sft, greedy": [won] * 4 + [lost] * 2, "x-ppo, greedy": [won] * 3 + [lost] + [won] * 2}
    variants = []
    for name, outcomes in played.items():
        steps = 9 if "ppo" in name else 10
        some = tuple(
            Summary(f"{name}{seed}", seed, outcome, None, reward, steps, 0, 0, 0, 0.0, 0.0)
            for seed, (outcome, reward) in enumerate(outcomes)
        )
        variants.append(Variant("E", "x-sft, greedy" if name == "old" else f"{name}, adapter=1", some, {}))
    labels = {f"{name}0": name for name in played if name != "old"}
    wins, differences = paired(variants, labels, list(labels.values()))
    assert wins == "x-ppo, greedy alone wins 2 of 6 episodes, x-sft, greedy alone 1; p = 1, McNemar's exact test."
    assert differences.startswith("x-ppo, greedy less x-sft, greedy, on the mean: return +0.17 (p = ")
    assert "steps of the 3 that both win -1 (p = " in differences
