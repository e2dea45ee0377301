"""The main job: policies x environments x seeds in one table. The same as ``gym-text bench``; see ``--help``."""

import sys

if __name__ == "__main__":
    try:
        from gym_text_policies.cli import console
    except KeyboardInterrupt:
        sys.exit(130)
    sys.argv.insert(1, "bench")
    console()
