"""The main job: policies x environments x seeds in one table. The same as ``gym-text bench``; see ``--help``."""

import sys

from gym_text_policies.cli import console

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    console()
