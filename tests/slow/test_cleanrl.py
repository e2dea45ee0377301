"""PPO in CleanRL's manner, the script of the documentation, learns from its command line."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def ppo(*arguments):
    """Run the loop in CleanRL's manner from its command line; return the success that each line reports."""
    run = subprocess.run(
        [sys.executable, "-W", "error", DOCS / "cleanrl_ppo.py", *arguments], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return [float(success) for success in re.findall(r"success ([\d.]+), [\d.]+ steps an episode$", run.stdout, re.M)]


def test_cleanrls_ppo_learns_goto_from_its_command_line():
    small = ("--total-timesteps", "16384", "--eval-every", "100", "--eval-episodes", "50")
    before, after = ppo(*small)
    assert before < 0.5 and after > 0.75
