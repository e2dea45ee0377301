"""What an interrupted kernel leaves: no locked folder."""

import pytest

from gym_text.errors import StoreError
from gym_text_policies import EpisodeStore, run_experiment
from gym_text_policies.files.run_folders import RunFolder
from gym_text_policies.policies.baselines import GoldPolicy

pytest.importorskip("tqdm")
GOTO = "BabyAIText-v0?task=goto"


def played_by_an_experiment(folder):
    config = {
        "environment": {"name": GOTO},
        "agent": {"model": "gold"},
        "experiment": {"episodes": 12, "num_envs": 2, "save_gif": False},
    }
    run_experiment(config, folder)
    return len(EpisodeStore(folder))


def test_an_interrupted_kernel_leaves_no_locked_folder_although_it_keeps_the_error(tmp_path, monkeypatch):
    for name in ("scipy", "minigrid", "datasets", "yaml", "matplotlib"):
        pytest.importorskip(name)
    decide = GoldPolicy.decide

    def interrupted(policy, turns):
        if len(EpisodeStore(tmp_path)) >= 3:
            raise KeyboardInterrupt
        return decide(policy, turns)

    monkeypatch.setattr(GoldPolicy, "decide", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:
        played_by_an_experiment(tmp_path)
    assert 3 <= len(EpisodeStore(tmp_path)) < 12
    RunFolder(tmp_path).lock()
    monkeypatch.setattr(GoldPolicy, "decide", decide)
    assert played_by_an_experiment(tmp_path) == 12 and kept.value.__traceback__ is not None


def test_a_store_that_is_still_open_in_this_process_is_named(tmp_path):
    kept = RunFolder(tmp_path)
    kept.lock()
    with pytest.raises(StoreError, match=r"a store of this process does\. Close it, by its close\(\) or a with block"):
        RunFolder(tmp_path).lock()
    kept.close()
    RunFolder(tmp_path).lock()
