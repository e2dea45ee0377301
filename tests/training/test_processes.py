"""What several processes do together, seen from each of them; `test_launch` starts them."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies.training.model import processes


@dataclass
class Config:
    """Settings of a run."""

    folder: str
    seed: int = 0
    batch: int = 1


def test_items_are_dealt_in_turn_and_gathered_in_their_order(monkeypatch):
    shares = []
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        assert processes.is_first() == (rank == 0)
        shares.append(list(processes.own_share(range(8))))
    assert shares == [[0, 3, 6], [1, 4, 7], [2, 5]]
    utils = SimpleNamespace(gather_object=lambda _: shares)
    monkeypatch.setattr(processes, "import_extra", lambda *_: SimpleNamespace(utils=utils))
    assert processes.gather([]) == list(range(8))


def test_a_folder_is_of_one_run_with_the_same_settings_and_one_at_a_time(tmp_path, monkeypatch):
    with processes.claim("ppo", Config(str(tmp_path)), ["batch"]):
        (tmp_path / "metrics.jsonl").touch()
    with processes.claim("ppo", Config(str(tmp_path), batch=2), ["batch"]):
        with pytest.raises(StoreError), processes.claim("ppo", Config(str(tmp_path)), ["batch"]):
            pass
        monkeypatch.setenv("RANK", "1")
        with processes.claim("ppo", Config(str(tmp_path)), ["batch"]):  # the first process has the lock for all
            monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="seed: stored 0, given 1"), processes.claim("ppo", Config(str(tmp_path), 1), ["batch"]):
        pass
    with pytest.raises(UsageError, match="run: stored"), processes.claim("sft", Config(str(tmp_path)), ["batch"]):
        pass


def test_a_run_that_is_stopped_says_which_checkpoint_is_kept(tmp_path):
    def stopped():
        with pytest.raises(processes.Stopped) as stop, processes.claim("ppo", Config(str(tmp_path)), ["batch"]):
            raise KeyboardInterrupt
        return str(stop.value)

    assert stopped() == f"Nothing is kept: {tmp_path} has no checkpoint yet."
    for name in ("checkpoint-9", "checkpoint-10", "checkpoint-11.partial"):
        (tmp_path / name).mkdir()
    assert stopped() == f"The checkpoint {tmp_path}/checkpoint-10 is kept; the same command goes on from there."


def test_a_run_brings_back_what_a_killed_one_has_left_aside(tmp_path):
    (tmp_path / "best.replaced").mkdir()
    (tmp_path / "best.replaced" / "weights").touch()
    with processes.claim("ppo", Config(str(tmp_path)), ["batch"]):
        assert [path.name for path in (tmp_path / "best").iterdir()] == ["weights"]
