r"""TRL's GRPO trains a weak model on BabyAI's goto, on a CPU. Copy this file and change it. Options: ``--help``.

These commands make the starting model, in four minutes on one core. It wins about half of the levels when it samples::

    gym-text collect --environments "BabyAIText-v0?task=goto" --episodes 140 --history all --folder runs/trl/data
    gym-text sft --data runs/trl/data/rows --epochs 2 --dtype bfloat16 --tokens-per-pass 4096 --folder runs/trl/sft
    gym-text merge runs/trl/sft runs/trl/start

Then train for an hour::

    python docs/trl_babyai.py --start runs/trl/start --folder runs/trl/grpo --minutes 60 --bf16

The script writes ``metrics.jsonl`` (a line for each optimiser step), the trained model in the folder ``model``, ``curve.json`` and
``curve.png``. Levels differ in difficulty more than the model changes in a step. So after training the starting model plays the
same levels, as a baseline in the curve. All levels are of the train fold; ``docs/trl.md`` evaluates the model on the test fold.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.load import load_backend
from gym_text_policies.bridges.trl import trl_dataset, trl_record
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.environments import environment_maker


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a model on BabyAI's goto with TRL's GRPO.")
    add = parser.add_argument
    add("--start", required=True, help="folder of the starting model")
    add("--folder", default="runs/trl/grpo", help="new folder for metrics, curve and model")
    add("--task", default="goto", help="research task of BabyAIText-v0")
    add("--max-episode-steps", type=int, default=12, help="step limit in training; most longer episodes go in circles")
    add("--minutes", type=float, default=60.0, help="training ends after the optimiser step in which this time is over")
    add("--steps", type=int, default=1000, help="most optimiser steps")
    add("--levels", type=int, default=8, help="levels of each optimiser step")
    add("--group", type=int, default=4, help="episodes of each level")
    add("--episodes-per-pass", type=int, default=4, help="episodes in one forward and backward pass; memory grows with it")
    add("--learning-rate", type=float, default=7e-5, help="learning rate of the adapter")
    add("--temperature", type=float, default=1.0, help="sampling temperature of play")
    add("--rank", type=int, default=16, help="rank of the adapter")
    add("--bf16", action="store_true", help="learn in bfloat16: half the time on a CPU with AVX512-BF16")
    add("--seed", type=int, default=0, help="seed of the sampling; it also selects the first level")
    add("--start-draws", type=int, default=2, help="how often the starting model plays each level afterwards")
    return parser.parse_args()


def environment(args: argparse.Namespace) -> str:
    """Return the environment's name, with its arguments."""
    return f"BabyAIText-v0?task={args.task}&max_episode_steps={args.max_episode_steps}"


def settings(args: argparse.Namespace) -> GRPOConfig:
    """Return TRL's settings. A comment gives the reason for a setting that matters for games."""
    return GRPOConfig(
        output_dir=str(Path(args.folder) / "trainer"),
        max_steps=args.steps,
        per_device_train_batch_size=args.episodes_per_pass,
        gradient_accumulation_steps=args.levels * args.group // args.episodes_per_pass,  # a step's episodes are played together
        num_generations=args.group,
        temperature=args.temperature,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        loss_type="grpo",  # equal weights for episodes; by tokens the long, lost ones would outweigh the others
        scale_rewards="none",  # a group whose returns hardly differ carries little information
        beta=0.0,
        bf16=args.bf16,
        gradient_checkpointing=False,  # TRL's default, True, computes the forward pass twice
        use_cpu=True,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=args.seed,
    )


class Watch(TrainerCallback):
    """Writes a line for each optimiser step, and ends training when its time is over."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.rollout = trl_rollout(environment(args), max_tokens=8)
        self._levels: list[int] = []
        self._path = Path(args.folder) / "metrics.jsonl"
        self._episodes = args.levels * args.group
        self._seconds = 60 * args.minutes
        self._start = time.perf_counter()

    def play(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play the episodes, and note their levels. This is TRL's `rollout_func`."""
        self._levels = sorted({prompt[-1]["seed"] for prompt in prompts})
        return self.rollout(prompts, trainer)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Write the metrics of a step."""
        if not logs or "reward" not in logs:
            return
        passed = time.perf_counter() - self._start
        row = {"step": state.global_step, "episodes": state.global_step * self._episodes, "minutes": round(passed / 60, 3)}
        names = ("reward", "success", "entropy", "grad_norm", "frac_reward_zero_std", "completions/mean_length", "step_time")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {name: logs[name] for name in names if name in logs} | {"levels": self._levels}) + "\n")
        control.should_training_stop = control.should_training_stop or passed > self._seconds


def start_on(args: argparse.Namespace, levels: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Return the starting model's mean success and mean return on each level. It samples as in training."""
    make_env = environment_maker(environment(args), fold="train")
    results: dict[int, list[tuple[bool, float]]] = {level: [] for level in levels}
    policy_settings: dict[str, Any] = {
        "strategy": "chat",
        "history": "all",
        "mode": "text",
        "max_tokens": 8,
        "temperature": args.temperature,
    }
    backend = load_backend(args.start)
    for seed in range(args.start_draws):
        policy = load_policy(backend, make_env(), **policy_settings, seed=seed)
        for episode in rollout(make_env, policy, levels, num_envs=16):
            results[episode.seed].append((episode.outcome == "won", episode.total_reward))
    return {level: tuple(np.mean(values, axis=0).tolist()) for level, values in results.items()}


def draw(args: argparse.Namespace) -> None:
    """Draw and write success and return of each optimiser step, their means over ten steps, and the start on the same levels."""
    rows = [json.loads(line) for line in (Path(args.folder) / "metrics.jsonl").read_text("utf-8").splitlines()]
    start = start_on(args, [level for row in rows for level in row["levels"]]) if args.start_draws else {}
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    x = [row["episodes"] for row in rows]
    record: dict[str, Any] = {"episodes": x, "minutes": [row["minutes"] for row in rows]}
    for metric, (axes, name) in enumerate(zip(figure.subplots(1, 2), ("success", "reward"), strict=True)):
        lines = {"in training": [row[name] for row in rows]}
        if start:
            baseline = [float(np.mean([start[level][metric] for level in row["levels"]])) for row in rows]
            lines["the start, on the same levels"] = baseline
        record[name] = lines
        for (label, values), colour in zip(lines.items(), ("tab:blue", "tab:gray"), strict=False):
            means = [float(np.mean(values[max(0, end - 9) : end + 1])) for end in range(len(values))]
            axes.plot(x, values, ".", color=colour, alpha=0.35)
            axes.plot(x, means, color=colour, label=label)
        axes.set(xlabel="episodes", ylabel={"reward": "return"}.get(name, name), ylim=(0, 1))
        axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(Path(args.folder) / "curve.png", dpi=120)
    (Path(args.folder) / "curve.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def main() -> None:
    """Train, save the model with its adapter merged, and draw the curve."""
    args = options()
    folder = Path(args.folder)
    folder.mkdir(parents=True)
    first = 1000 + 100_000 * args.seed  # no level with which the starting model was made
    seeds = range(first, first + args.steps * args.levels)
    watch = Watch(args)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.start),
        args=settings(args),
        processing_class=AutoTokenizer.from_pretrained(args.start),
        train_dataset=trl_dataset(f"BabyAIText-v0?task={args.task}", "train", seeds),
        peft_config=LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
        rollout_func=watch.play,
        reward_funcs=episode_reward,
        callbacks=[watch],
    )
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    model.save_pretrained(folder / "model")
    trainer.processing_class.save_pretrained(folder / "model")
    trl_record(folder / "model", watch.rollout, trainer)  # so that gym-text asks the model as in training
    draw(args)


if __name__ == "__main__":
    main()
