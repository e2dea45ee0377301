"""Training in several processes by `torchrun` learns what one process learns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from training_data import GOTO, examples

from gym_text_policies.data.dataset import write_rows
from gym_text_policies.training.ppo import PPOConfig, train
from gym_text_policies.training.sft import SFTConfig, sft


def launch(*words):
    """Run a command of gym-text in two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "-m", "gym_text_policies.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def options_of(options):
    """Return options as words of a command."""
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_two_processes_have_the_losses_of_one(tiny_model, tmp_path):
    rows = examples() * 2
    write_rows(rows, tmp_path / "rows")
    options = {"rows_per_step": 8, "rows_per_pass": 2, "max_steps": 4, "epochs": 2.0, "warmup": 0, "learning_rate": 2e-2}
    options |= {"dev_environments": (f"{GOTO}&max_episode_steps=3",), "dev_episodes": 7, "save_steps": 4}
    alone = sft(SFTConfig(folder=str(tmp_path / "alone"), model=tiny_model, **options), rows)
    options["dev_environments"] = options["dev_environments"][0]
    folders = ["--data", str(tmp_path / "rows"), "--folder", str(tmp_path / "two")]
    launch("sft", *folders, "--model", tiny_model, *options_of(options))
    records = [json.loads((folder / "training.json").read_text()) for folder in (alone, tmp_path / "two" / "adapter")]
    assert [record["made_by"]["ran_on"]["processes"] for record in records] == [1, 2]
    losses = [[line["loss"] for line in record["curve"] if "loss" in line] for record in records]
    assert len(losses[0]) == 4 and losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)
    played = [[line["eval_episodes"] for line in record["curve"] if "eval_episodes" in line] for record in records]
    assert played == [[7], [7]], "the dev fold, once, whoever plays it"


@pytest.mark.usefixtures("one_thread")
def test_ppo_in_two_processes_plays_and_learns_what_it_does_in_one(tiny_model, tmp_path):
    options = {"episodes_per_iteration": 5, "iterations": 3, "value_iterations": 1, "episodes_per_step": 2, "tokens_per_pass": 100}
    options |= {"learning_rate": 1e-3, "dev_every": 3, "dev_episodes": 1}
    played = f"{GOTO}&max_episode_steps=5"
    alone = train(PPOConfig(folder=str(tmp_path / "alone"), model=tiny_model, environments=(played,), **options))
    words = ["--folder", str(tmp_path / "two"), "--model", tiny_model, "--environments", played]
    said = launch("ppo", *words, *options_of(options))
    assert said.count("The adapter: ") == 1, "one process speaks"
    assert json.loads((tmp_path / "two/adapter/training.json").read_text())["made_by"]["ran_on"]["processes"] == 2
    curves = [
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (alone.parent, tmp_path / "two")
    ]
    assert [len(curve) for curve in curves] == [4, 4] and curves[0][-1]["kl"] > 0
    for one, two in zip(*curves, strict=True):
        assert one.keys() == two.keys()
        for name in one.keys() - {"minutes", "seconds_play", "seconds_learn", "rollout_gap"}:
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
    one, two = (load_file(folder / "adapter_model.safetensors") for folder in (alone, tmp_path / "two/adapter"))
    assert all(abs(one[name] - two[name]).max() < 1e-4 for name in one)
