"""Training in several processes by `torchrun` learns what one process learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_sft import GOTO, examples

from gym_text_policies.training.rows import write_rows
from gym_text_policies.training.sft import SFTConfig, sft

pytestmark = pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")


def test_two_processes_have_the_losses_of_one(tiny_model, tmp_path):
    rows = examples() * 2
    write_rows(rows, tmp_path / "rows")
    options = {"rows_per_step": 8, "rows_per_pass": 2, "max_steps": 4, "epochs": 2.0, "warmup": 0, "learning_rate": 2e-2}
    options |= {"dev_environments": (f"{GOTO}&max_episode_steps=3",), "dev_episodes": 7, "save_steps": 4}
    alone = sft(SFTConfig(folder=str(tmp_path / "alone"), model=tiny_model, **options), rows)
    options["dev_environments"] = options["dev_environments"][0]
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "gym_text_policies.cli", "sft", "--data", str(tmp_path / "rows"), "--folder", str(tmp_path / "two")]
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, "--model", tiny_model, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    records = [json.loads((folder / "training.json").read_text()) for folder in (alone, tmp_path / "two" / "adapter")]
    assert [record["made_by"]["ran_on"]["processes"] for record in records] == [1, 2]
    losses = [[line["loss"] for line in record["curve"] if "loss" in line] for record in records]
    assert len(losses[0]) == 4 and losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)
    played = [[line["eval_episodes"] for line in record["curve"] if "eval_episodes" in line] for record in records]
    assert played == [[7], [7]], "the dev fold, once, whoever plays it"
