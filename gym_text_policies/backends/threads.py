"""`settle_threads`: how many threads torch computes with in this process, and how long one spins while it waits for the others.

OpenMP's threads spin at the end of each parallel part, by default for milliseconds. Where another program has the core that one of
them needs, all others spin until it is scheduled: a model's passes then take many times as long
(`benchmarks/results/threads.md`). A short spin keeps the speed of a machine that is idle, and yields the core elsewhere.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from gym_text.errors import check_int

_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
"""How long a thread spins: rounds in GNU's OpenMP (torch on Linux), milliseconds in LLVM's and Intel's (torch elsewhere)."""
_WAITING = ("OMP_WAIT_POLICY", *_SPIN)
"""Environment variables with which a user sets how threads wait."""
_THREADS = "OMP_NUM_THREADS"
MOST = 4096


def settle_threads(count: int = 0) -> None:
    """Set how the threads of this process wait, and how many there are. A user's environment variables take precedence.

    OpenMP reads its variables when torch is imported. After that only the number of threads can be set: `count`, or if that is 0,
    OMP_NUM_THREADS, else the number of cores that this process may use.

    Raises:
        UsageError: If `count` is no number from 0 to `MOST`.
    """
    check_int("threads", count, 0, MOST)
    torch = sys.modules.get("torch")
    if torch is None:
        if not any(name in os.environ for name in _WAITING):
            os.environ.update(_SPIN)
        if count or (_THREADS not in os.environ and usable_cores() < (os.cpu_count() or 1)):
            os.environ[_THREADS] = str(count or usable_cores())
    elif count or (_THREADS not in os.environ and usable_cores() < torch.get_num_threads()):
        torch.set_num_threads(count or usable_cores())


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: those it is bound to, or fewer where a container has a quota of CPU time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        most, period = (root / "sys/fs/cgroup/cpu.max").read_text("utf-8").split()
        return max(1, min(cores, math.ceil(float(most) / float(period))))
    except (OSError, ValueError):  # no control group of version 2, or "max": no quota
        return cores
