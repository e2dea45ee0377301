"""`gym-text serve`, where OpenEnv is not needed; ``tests/libraries/test_openenv.py`` has the rest."""

import subprocess
import sys

import pytest

from gym_text import UsageError
from gym_text_policies.commands.serve import ServeConfig


@pytest.mark.parametrize("wrong", [{"port": 70_000}, {"max_sessions": 0}])
def test_a_limit_out_of_range_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name}: expected"):
        ServeConfig("BabyAIText-v0", **wrong)


def test_without_openenv_the_command_says_how_to_install_it():
    script = "import sys; sys.modules['openenv'] = None; from gym_text_policies import cli\n"
    script += "sys.exit(cli.main(['serve', 'BabyAIText-v0', '--port', '0']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (1, "gym-text: 'openenv' is not installed. Run: pip install 'gym-text[openenv]'\n")
