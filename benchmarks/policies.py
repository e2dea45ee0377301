"""The main job: what each stage of training brings, in one table and a report. The same as ``gym-text bench``; see ``--help``."""

import sys

if __name__ == "__main__":
    try:
        from gym_text_policies.cli import console
    except KeyboardInterrupt:
        sys.exit(130)
    sys.argv.insert(1, "bench")
    console()
