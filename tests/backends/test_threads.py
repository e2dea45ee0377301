"""Threads of a model in this process: how they wait, and how many there are."""

import os
import subprocess
import sys

import pytest

from gym_text_policies.backends.threads import usable_cores

SAID = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")


def python(script, **variables):
    """Return what a script prints in a process with these variables and no others of threads."""
    environment = {name: value for name, value in os.environ.items() if name not in SAID} | variables
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.split()


def test_torch_computes_with_the_threads_that_are_asked_for_imported_or_not():
    settle = "from gym_text_policies.backends.threads import settle_threads"
    show = "import torch; print(torch.get_num_threads())"
    assert python(f"{settle}; settle_threads(1); {show}", OMP_NUM_THREADS="2") == ["1"]
    assert python(f"{show}; {settle}; settle_threads(); {show}; settle_threads(5); {show}", OMP_NUM_THREADS="1") == ["1", "1", "5"]


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "many\n"}, 64),
    ],
)
def test_as_many_cores_count_as_a_container_s_quota_allows(files, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    for name, text in files.items():
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).write_text(text)
    assert usable_cores(tmp_path) == cores
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5}, raising=False)
    assert usable_cores(tmp_path) == 1 and usable_cores(tmp_path / "no system") == 1
