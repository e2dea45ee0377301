"""Training in several processes by `torchrun` learns what one process learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_data import GOTO, examples

from gym_text_policies.data.dataset import write_rows
from gym_text_policies.training.ppo import PPOConfig, train
from gym_text_policies.training.sft import SFTConfig, sft

SFT = {
    "rows_per_step": 8,
    "tokens_per_pass": 200,
    "max_steps": 4,
    "epochs": 2.0,
    "warmup": 0,
    "learning_rate": 2e-2,
    "save_steps": 4,
}
SFT |= {"dev_environments": f"{GOTO}&max_episode_steps=3", "dev_episodes": 7}
PPO = {"episodes_per_iteration": 5, "iterations": 3, "value_iterations": 1, "episodes_per_step": 2, "tokens_per_pass": 100}
PPO |= {"environments": f"{GOTO}&max_episode_steps=5", "learning_rate": 1e-3, "dev_every": 3, "dev_episodes": 1}
SCRIPT = """
import json, sys
from gym_text_policies import cli
sys.exit(any(cli.main(words) for words in json.loads(sys.argv[1])))
"""
"""Commands of gym-text, one after another: the libraries take longer to import than the commands to run."""


def words_of(command, options):
    """Return a command with its options."""
    return [command, *(word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value)))]


def config_of(kind, options):
    """Return the same options as a configuration."""
    return kind(**{name: (value,) if name.endswith("environments") else value for name, value in options.items()})


@pytest.fixture(scope="module")
def together(tiny_model, tmp_path_factory):
    """Train by SFT and by PPO in two processes; return the folder of both runs and what was printed."""
    folder = tmp_path_factory.mktemp("two")
    write_rows(examples() * 2, folder / "rows")
    (folder / "script.py").write_text(SCRIPT)
    commands = [
        words_of("sft", {"data": folder / "rows", "folder": folder / "sft", "model": tiny_model} | SFT),
        words_of("ppo", {"folder": folder / "ppo", "model": tiny_model} | PPO),
    ]
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(folder / "script.py"), json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


def test_one_of_two_processes_speaks(together):
    _, said = together
    assert said.count("The adapter: ") == 2, "once for each command"


def test_two_processes_have_the_losses_of_one(together, tiny_model, tmp_path):
    alone = sft(config_of(SFTConfig, {"folder": str(tmp_path), "model": tiny_model} | SFT), examples() * 2)
    records = [json.loads((folder / "training.json").read_text()) for folder in (alone, together[0] / "sft/adapter")]
    assert [record["made_by"]["ran_on"]["processes"] for record in records] == [1, 2]
    losses = [[line["loss"] for line in record["curve"] if "loss" in line] for record in records]
    assert len(losses[0]) == 4 and losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)
    played = [[line["eval_episodes"] for line in record["curve"] if "eval_episodes" in line] for record in records]
    assert played == [[7], [7]], "the dev fold, once, whoever plays it"


@pytest.mark.usefixtures("one_thread")
def test_ppo_in_two_processes_plays_and_learns_what_it_does_in_one(together, tiny_model, tmp_path):
    alone = train(config_of(PPOConfig, {"folder": str(tmp_path), "model": tiny_model} | PPO))
    other = together[0] / "ppo/adapter"
    assert json.loads((other / "training.json").read_text())["made_by"]["ran_on"]["processes"] == 2
    curves = [
        [json.loads(line) for line in (folder.parent / "metrics.jsonl").read_text().splitlines()] for folder in (alone, other)
    ]
    assert [len(curve) for curve in curves] == [4, 4] and curves[0][-1]["kl"] > 0
    for one, two in zip(*curves, strict=True):
        assert one.keys() == two.keys()
        for name in one.keys() - {"minutes", "seconds_play", "seconds_learn", "rollout_gap", "rollout_kl"}:
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
    one, two = (load_file(folder / "adapter_model.safetensors") for folder in (alone, other))
    assert all(torch.allclose(one[name], two[name], rtol=1e-3, atol=1e-5) for name in one)  # they are rounded to 16 bits
