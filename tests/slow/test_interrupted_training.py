"""Commands of training that are stopped from outside say what is kept, and go on from there."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_data import examples

from gym_text_policies import cli
from gym_text_policies.data.dataset import write_rows
from gym_text_policies.training.sft import last_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


def stopped(model, tmp_path, number, **arguments):
    """Train in a process until a signal stops it after its fourth step; return the command, and the steps of its checkpoint."""
    write_rows(examples(), tmp_path / "rows")
    folder = tmp_path / "run"
    command = ["sft", "--data", str(tmp_path / "rows"), "--folder", str(folder), "--model", model, "--schedule", "constant"]
    command += ["--epochs", "10000", "--save-steps", "10000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gym_text_policies.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **arguments,
    )
    lines = iter(process.stdout)
    assert sum("loss" in next(lines) for _ in range(4)) == 4  # a line for each step
    process.send_signal(number)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "Traceback" not in error, error
    kept = Path(last_checkpoint(folder))
    steps = int(kept.name.partition("-")[2])
    assert steps >= 4 and error.endswith(f"Stopped. The checkpoint {kept} is kept; the same command goes on from there.\n")
    return command, steps


def test_ctrl_c_keeps_what_was_learnt_until_then_and_the_run_goes_on_from_there(tiny_model, tmp_path):
    folder = tmp_path / "run"
    command, steps = stopped(tiny_model, tmp_path, signal.SIGINT)
    resumed = ["--max-steps", str(steps + 2)]
    assert cli.main([*command, *resumed]) == 0
    command[command.index("--folder") + 1] = str(tmp_path / "straight")
    assert cli.main([*command, *resumed]) == 0
    name = f"checkpoint-{steps + 2}/adapter_model.safetensors"
    one, other = (load_file(run / name) for run in (folder, tmp_path / "straight"))
    # Another process rounds in another way; a step moves weights by 1e-4 at least.
    assert all(torch.allclose(one[name], other[name], atol=5e-5) for name in one)


def test_ctrl_c_in_the_first_iteration_says_that_nothing_is_kept(tiny_model, tmp_path):
    options = ["--environments=BabyAIText-v0?task=goto", "--dev-every=0", f"--model={tiny_model}", f"--folder={tmp_path}/run"]
    process = subprocess.Popen([sys.executable, "-m", "gym_text_policies.cli", "grpo", *options], stderr=subprocess.PIPE)
    assert process.stderr is not None
    error = b""
    while b"Iterations:" not in error:
        error += (read := process.stderr.read(1))
        assert read, error
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and b"Traceback" not in error
    assert error.decode().endswith(f"Stopped. Nothing is kept: {tmp_path}/run has no checkpoint yet.\n")
