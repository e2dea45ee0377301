"""The table of `benchmarks/adapters.py`, and which stored episodes its tests count."""

import importlib
from pathlib import Path

import pytest

from gym_text.errors import RunError
from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.policies.baselines import RandomPolicy
from gym_text_policies.report.figures import row


@pytest.fixture
def adapters(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    return importlib.import_module("adapters")


def episode(weights, seed, won, steps=10, error=None, level=None):
    """Return an episode of a model with these weights, which wins or loses."""
    fields = {"truncated": False, "failure": False, "score": 0.0, "action_was_valid": True}
    ended = [{"terminated": number == steps, "success": won and number == steps} for number in range(1, steps + 1)]
    played = tuple(Step({"text": "x"}, Decision("go"), reward=float(one["success"]), **one, **fields) for one in ended)
    key = f"{weights} {seed}"
    return Episode(key, {"id": "E-v0"}, {"kind": "llm", "content": weights}, seed, played, {"text": "x"}, error=error, level=level)


def planned(name, weights, seeds, first=0):
    """Return a row of the table, as the record has it."""
    return {"key": f"{weights} {first}", **row("E-v0", name, [episode(weights, seed, won=True) for seed in range(seeds)])}


def compared(adapters, folder, episodes, rows):
    """Store episodes, and return the sentences that compare the rows."""
    with EpisodeStore(folder) as store:
        for one in episodes:
            store.append(one)
    return list(adapters.paired(adapters.levels_of_rows(store, rows), [row["policy"] for row in rows]))


def test_two_adapters_are_compared_on_the_levels_of_the_table(adapters, tmp_path):
    sft = [episode("sft", seed, won=seed < 4) for seed in range(6)]
    ppo = [episode("ppo", seed, won=seed != 3, steps=9) for seed in range(6)]
    rows = [planned("x-sft, greedy", "sft", 6), planned("x-ppo, greedy", "ppo", 6)]
    wins, differences = compared(adapters, tmp_path, [*sft, *ppo], rows)
    assert wins == "x-ppo, greedy alone wins 2 of 6 episodes, x-sft, greedy alone 1; p = 1, McNemar's exact test."
    assert differences.startswith("x-ppo, greedy less x-sft, greedy, on the mean: return +0.17 (p = ")
    assert "steps of the 3 that both win -1 (p = " in differences


def test_an_adapter_that_was_trained_again_is_judged_by_its_new_weights_and_the_seeds_of_the_table(adapters, tmp_path):
    old, new = ([episode(weights, seed, won=weights == "new") for seed in range(7)] for weights in ("old", "new"))
    ppo = [episode("ppo", seed, won=seed >= 3) for seed in range(7)]
    rows = [planned("x-sft, greedy", "new", 5), planned("x-ppo, greedy", "ppo", 5)]
    wins, _ = compared(adapters, tmp_path, [*old, *new, *ppo], rows)
    assert wins.startswith("x-ppo, greedy alone wins 0 of 5 episodes, x-sft, greedy alone 3; p = 0.25")


def test_a_level_that_two_seeds_play_counts_once_and_without_its_error(adapters, tmp_path):
    sft = [episode("sft", seed, won=False, level=seed // 2) for seed in range(6)]
    ppo = [episode("ppo", seed, won=True, level=seed // 2, error="gone" if seed == 2 else None) for seed in range(6)]
    rows = [planned("x-sft, greedy", "sft", 6), planned("x-ppo, greedy", "ppo", 6)]
    wins, _ = compared(adapters, tmp_path, [*sft, *ppo], rows)
    assert wins.startswith("x-ppo, greedy alone wins 3 of 3 episodes, x-sft, greedy alone 0; p = 0.25")


def test_a_row_without_a_whole_episode_is_an_error_that_names_it(adapters, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(RandomPolicy, "decide", broken)
    bench = {"folder": str(tmp_path), "environments": ("BabyAIText-v0?task=goto",), "baselines": ("gold",), "episodes": 1}
    with pytest.raises(RunError, match=r"task=goto, chance: expected an episode without an error; all 1 ended in one"):
        adapters.play_plan({"chance": {"model": "random"}}, **bench)
