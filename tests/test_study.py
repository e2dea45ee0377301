"""The BabyAI study's table and plot, on scripted models."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from gym_text_policies import EpisodeStore
from gym_text_policies.experiments.variants import read_variants

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "study.py"


@pytest.fixture(scope="module")
def study():
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("study", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["study"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["study"]
    sys.path.remove(str(SCRIPT.parent))


def test_the_study_is_five_tasks_from_seed_200_and_the_published_variants_beside_choose(study):
    config = study.Config()
    assert len(config.tasks) == 5 and config.first_seed == 200
    variants = read_variants(config.variants)
    assert list(variants) == ["baseline", "reasoning", "history", "history_and_reasoning", "choose"]
    assert {row.policy.max_tokens for name, row in variants.items() if name != "choose"} == {48}


def test_means_and_errors_are_those_of_the_stored_episodes(study, tmp_path, capsys):
    variants = tmp_path / "variants.yaml"
    variants.write_text("forward: {model: 'scripted:go forward'}\nleft: {model: 'scripted:turn left', mode: choose}\n")
    options = {"variants": str(variants), "folder": str(tmp_path / "run")}
    config = study.Config(tasks=("goto", "pickup"), episodes=2, **options)
    table = study.write(config, study.play(config), tmp_path / "results")
    assert (tmp_path / "results/study.md").read_text().count(table) == 1
    assert (tmp_path / "results/study.png").read_bytes()[:4] == b"\x89PNG"
    rows = {(row["task"], row["variant"]): row for row in json.loads((tmp_path / "results/study.json").read_text())["rows"]}
    assert len(rows) == 3 * 4 and rows["all", "gold (expert)"]["success"] == [1.0, 0.0]
    assert rows["all", "forward"]["episodes"] == 4 and rows["all", "forward"]["tokens out"][0] > 0
    each = []
    for task in config.tasks:
        lengths = [
            episode.length
            for episode in EpisodeStore(tmp_path / "run").episodes()
            if episode.policy["kind"] == "random" and episode.environment["kwargs"] == {"task": task}
        ]
        each.append((np.mean(lengths), np.std(lengths, ddof=1) / np.sqrt(2)))
        assert rows[task, "random"]["length"] == pytest.approx(each[-1])
    expected = (each[0][0] + each[1][0]) / 2, np.hypot(each[0][1], each[1][1]) / 2
    assert rows["all", "random"]["length"] == pytest.approx(expected)
