"""The main job: what each stage of training brings, in one table and a report. The same as ``gym-text bench``; see ``--help``.

Without options it plays in two processes, which take 5.7 GB together, if the machine has memory for them; else in one, which takes
a third longer.
"""

import os
import sys

_ENOUGH = 12 * 2**30
"""Bytes of memory from which on two processes play."""

if __name__ == "__main__":
    try:
        from gym_text_policies.cli import console
    except KeyboardInterrupt:
        sys.exit(130)
    sys.argv.insert(1, "bench")
    if len(sys.argv) == 2 and hasattr(os, "sysconf") and os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >= _ENOUGH:
        sys.argv += ["--workers", "2"]
    console()
