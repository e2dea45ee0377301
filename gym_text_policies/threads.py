"""`settle_threads`: how many threads torch computes with in this process, and how long one spins while it waits for the others.

OpenMP's threads spin at the end of each parallel part, by default for milliseconds. Where another program has the core that one of
them needs, all others spin until it is scheduled: a model's passes then take many times as long (`benchmarks/threads.py`). A
short spin keeps the speed of a machine that is idle, and yields the core elsewhere.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from gym_text.errors import check_int

_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
"""Rounds of GNU's OpenMP, which torch has on Linux; milliseconds of LLVM's and Intel's, which it has elsewhere."""
_SAID = ("OMP_WAIT_POLICY", *_SPIN)
"""Variables by which users say how threads wait."""
_THREADS = "OMP_NUM_THREADS"
MOST = 4096


def settle_threads(count: int = 0) -> None:
    """Set how this process's threads wait and, unless the user has, how many there are. What the environment says wins.

    OpenMP reads its variables when torch is imported: before that all is set, after that only the number of threads.

    Args:
        count: Threads, whatever the environment says; 0: what it says, else as many as this process may use cores.

    Raises:
        UsageError: If the count is none.
    """
    check_int("threads", count, 0, MOST)
    torch = sys.modules.get("torch")
    if torch is None:
        if not any(name in os.environ for name in _SAID):
            os.environ.update(_SPIN)
        if count or (_THREADS not in os.environ and usable_cores() < (os.cpu_count() or 1)):
            os.environ[_THREADS] = str(count or usable_cores())
    elif count or (_THREADS not in os.environ and usable_cores() < torch.get_num_threads()):
        torch.set_num_threads(count or usable_cores())


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: those it is bound to, or fewer where a container has a quota of CPU time.

    Args:
        root: Where ``proc`` and ``sys`` lie.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    quotas = [math.ceil(quota) for quota in _quotas(root)]
    return max(1, min([cores, *quotas]))


def _quotas(root: Path) -> list[float]:
    """Return the quotas of all control groups that this process is in, in cores: version 2's, and version 1's."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for controllers, _, group in (line.partition(":")[2].partition(":") for line in lines):
        kinds = controllers.split(",")
        for mount in ("",) if kinds == [""] else ("cpu", "cpu,cpuacct") if "cpu" in kinds else ():
            top = root / "sys/fs/cgroup" / mount
            place = top / group.lstrip("/")
            for folder in {top, place, *(parent for parent in place.parents if parent.is_relative_to(top))}:
                quota = _quota(folder)
                found += [quota] if quota else []
    return found


def _quota(folder: Path) -> float | None:
    """Return the quota of a control group; None where it has none."""
    try:
        if (folder / "cpu.max").is_file():
            most, period = (folder / "cpu.max").read_text("utf-8").split()
        else:
            most, period = ((folder / f"cpu.cfs_{name}_us").read_text("utf-8") for name in ("quota", "period"))
        share = float(most) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # ValueError: "max"
        return None
    return share if 0 < share < math.inf else None  # version 1 says -1 where there is none
