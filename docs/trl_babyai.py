"""GRPO of TRL on BabyAI's goto, from a weak start, on a CPU; to copy and to change. Options: ``--help``.

The start, a model in a folder that wins some levels by drawing (two minutes of one core)::

    gym-text collect --environments "BabyAIText-v0?task=goto" --episodes 16 --history all --folder runs/trl/data
    gym-text sft --data runs/trl/data/rows --epochs 3 --folder runs/trl/sft --merge-to runs/trl/start

Then, for an hour::

    python docs/trl_babyai.py --start runs/trl/start --folder runs/trl/grpo --minutes 60

It writes ``metrics.jsonl`` (a line for each step of the optimiser), ``curve.png``, and the trained model in ``model``. Levels are
those of the train fold; ``gym-text bench`` plays others: see ``docs/trl.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from gym_text_policies.bridges.trl import trl_dataset
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout


def options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Train a model on BabyAI's goto with TRL's GRPO.")
    add = parser.add_argument
    add("--start", required=True, help="folder of the model to begin with")
    add("--folder", default="runs/trl/grpo", help="new folder for metrics, curve and model")
    add("--task", default="goto", help="research task of BabyAIText-v0")
    add("--max-episode-steps", type=int, default=24, help="step limit in training; what is not won by then mostly goes in circles")
    add("--minutes", type=float, default=60.0, help="ends after the step of the optimiser that passes it")
    add("--steps", type=int, default=1000, help="most steps of the optimiser")
    add("--levels", type=int, default=4, help="levels of each step")
    add("--group", type=int, default=8, help="episodes of each level")
    add("--episodes-per-pass", type=int, default=2, help="episodes in one forward and backward pass; memory grows with it")
    add("--learning-rate", type=float, default=5e-5, help="of the adapter")
    add("--temperature", type=float, default=1.0, help="of play")
    add("--rank", type=int, default=16, help="of the adapter")
    add("--bf16", action="store_true", help="learn in bfloat16: half the time on a CPU with AVX512-BF16")
    add("--seed", type=int, default=0, help="of draws, and of the first level")
    return parser.parse_args()


def settings(chosen: argparse.Namespace) -> GRPOConfig:
    """Return TRL's settings. Those that matter for games have a reason beside them."""
    return GRPOConfig(
        output_dir=str(Path(chosen.folder) / "trainer"),
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.episodes_per_pass,
        gradient_accumulation_steps=chosen.levels * chosen.group // chosen.episodes_per_pass,  # all of a step is played at once
        num_generations=chosen.group,
        temperature=chosen.temperature,
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="constant",
        loss_type="grpo",  # each episode counts the same; by tokens the lost ones, which are the longest, would outweigh all others
        scale_rewards="none",  # a group in which the returns hardly differ has little to say
        beta=0.0,
        bf16=chosen.bf16,
        gradient_checkpointing=False,  # TRL's default, True, computes the forward pass twice
        use_cpu=True,
        max_grad_norm=1.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=chosen.seed,
    )


class Watch(TrainerCallback):
    """Writes a line for each step of the optimiser, and ends training when its time is over."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._path = Path(chosen.folder) / "metrics.jsonl"
        self._episodes = chosen.levels * chosen.group
        self._seconds = 60 * chosen.minutes
        self._start = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Write the metrics of a step."""
        if not logs or "reward" not in logs:
            return
        passed = time.perf_counter() - self._start
        row = {"step": state.global_step, "episodes": state.global_step * self._episodes, "minutes": round(passed / 60, 3)}
        names = ("reward", "success", "entropy", "grad_norm", "frac_reward_zero_std", "completions/mean_length", "step_time")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | {name: logs[name] for name in names if name in logs}) + "\n")
        control.should_training_stop = control.should_training_stop or passed > self._seconds


def draw(folder: Path) -> None:
    """Draw success and return over episodes and minutes, each step's and the mean of ten."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, (x, label) in zip(figure.subplots(1, 2), (("episodes", "episodes"), ("minutes", "minutes")), strict=True):
        for name, colour in (("success", "tab:blue"), ("reward", "tab:orange")):
            values = np.array([row[name] for row in rows])
            means = [values[max(0, place - 9) : place + 1].mean() for place in range(len(values))]
            axes.plot([row[x] for row in rows], values, ".", color=colour, alpha=0.35)
            axes.plot([row[x] for row in rows], means, color=colour, label={"reward": "return"}.get(name, name))
        axes.set(xlabel=label, ylim=(0, 1))
        axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(folder / "curve.png", dpi=120)


def main() -> None:
    """Train, draw the curve, and save the model with its adapter merged."""
    chosen = options()
    folder = Path(chosen.folder)
    folder.mkdir(parents=True)
    first = 1000 + 100_000 * chosen.seed  # not the levels of the start
    seeds = range(first, first + chosen.steps * chosen.levels)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(chosen.start),
        args=settings(chosen),
        processing_class=AutoTokenizer.from_pretrained(chosen.start),
        train_dataset=trl_dataset("BabyAIText-v0", "train", seeds, task=chosen.task),
        peft_config=LoraConfig(r=chosen.rank, lora_alpha=2 * chosen.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
        rollout_func=trl_rollout(f"BabyAIText-v0?task={chosen.task}&max_episode_steps={chosen.max_episode_steps}", max_tokens=8),
        reward_funcs=episode_reward,
        callbacks=[Watch(chosen)],
    )
    trainer.train()
    draw(folder)
    model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    model.save_pretrained(folder / "model")
    trainer.processing_class.save_pretrained(folder / "model")


if __name__ == "__main__":
    main()
