"""A command of training that is stopped from outside says what is kept."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_ctrl_c_and_sigterm_in_the_first_iteration_say_that_nothing_is_kept(tiny_model, tmp_path, how):
    options = ["--environments=BabyAIText-v0?task=goto", "--dev-every=0", f"--model={tiny_model}", f"--folder={tmp_path}/run"]
    process = subprocess.Popen([sys.executable, "-m", "gym_text_policies.cli", "grpo", *options], stderr=subprocess.PIPE)
    assert process.stderr is not None
    error = b""
    while b"Iterations:" not in error:
        error += (read := process.stderr.read(1))
        assert read, error
    process.send_signal(how)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and b"Traceback" not in error
    assert error.decode().endswith(f"Stopped. Nothing is kept: {tmp_path}/run has no checkpoint yet.\n")
