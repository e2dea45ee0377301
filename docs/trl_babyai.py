r"""GRPO of TRL on BabyAI's goto, from a weak start, on a CPU; to copy and to change. Options: ``--help``.

The start, a model in a folder that wins about half of the levels by drawing (four minutes of one core)::

    gym-text collect --environments "BabyAIText-v0?task=goto" --episodes 140 --history all --folder runs/trl/data
    gym-text sft --data runs/trl/data/rows --epochs 2 --dtype bfloat16 --rows-per-pass 8 --folder runs/trl/sft
    gym-text merge runs/trl/sft runs/trl/start

Then, for an hour::

    python docs/trl_babyai.py --start runs/trl/start --folder runs/trl/grpo --minutes 60 --bf16

It writes ``metrics.jsonl`` (a line for each step of the optimiser), the trained model in ``model``, and ``curve.json`` and
``curve.png``. Levels differ more than steps of the optimiser do; so the start plays each step's levels, too, after the hour, and is
drawn beside. Levels are those of the train fold; ``gym-text bench`` plays others: see ``docs/trl.md``.
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
from gym_text_policies.bridges.trl import trl_dataset
from gym_text_policies.bridges.trl_rollout import episode_reward, trl_rollout
from gym_text_policies.environments import environment_maker


def options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Train a model on BabyAI's goto with TRL's GRPO.")
    add = parser.add_argument
    add("--start", required=True, help="folder of the model to begin with")
    add("--folder", default="runs/trl/grpo", help="new folder for metrics, curve and model")
    add("--task", default="goto", help="research task of BabyAIText-v0")
    add("--max-episode-steps", type=int, default=12, help="step limit in training; what is not won by then mostly goes in circles")
    add("--minutes", type=float, default=60.0, help="ends after the step of the optimiser that passes it")
    add("--steps", type=int, default=1000, help="most steps of the optimiser")
    add("--levels", type=int, default=8, help="levels of each step")
    add("--group", type=int, default=4, help="episodes of each level")
    add("--episodes-per-pass", type=int, default=4, help="episodes in one forward and backward pass; memory grows with it")
    add("--learning-rate", type=float, default=7e-5, help="of the adapter")
    add("--temperature", type=float, default=1.0, help="of play")
    add("--rank", type=int, default=16, help="of the adapter")
    add("--bf16", action="store_true", help="learn in bfloat16: half the time on a CPU with AVX512-BF16")
    add("--seed", type=int, default=0, help="of draws, and of the first level")
    add("--start-draws", type=int, default=2, help="how often the start plays each level afterwards")
    return parser.parse_args()


def environment(chosen: argparse.Namespace) -> str:
    """Return the name of what is played."""
    return f"BabyAIText-v0?task={chosen.task}&max_episode_steps={chosen.max_episode_steps}"


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
        self._play = trl_rollout(environment(chosen), max_tokens=8)
        self._levels: list[int] = []
        self._path = Path(chosen.folder) / "metrics.jsonl"
        self._episodes = chosen.levels * chosen.group
        self._seconds = 60 * chosen.minutes
        self._start = time.perf_counter()

    def play(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play, and note which levels; to be TRL's `rollout_func`."""
        self._levels = sorted({prompt[-1]["seed"] for prompt in prompts})
        return self._play(prompts, trainer)

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


def start_on(chosen: argparse.Namespace, levels: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Return success and return of the start on each of the levels, drawn as in training; means of the draws."""
    make_env = environment_maker(environment(chosen), fold="train")
    found: dict[int, list[tuple[bool, float]]] = {level: [] for level in levels}
    asked: dict[str, Any] = {
        "strategy": "chat",
        "history": "all",
        "mode": "text",
        "max_tokens": 8,
        "temperature": chosen.temperature,
    }
    backend = load_backend(chosen.start)
    for seed in range(chosen.start_draws):
        policy = load_policy(backend, make_env(), **asked, seed=seed)
        for episode in rollout(make_env, policy, levels, num_envs=16):
            found[episode.seed].append((episode.outcome == "won", episode.total_reward))
    return {level: tuple(np.mean(values, axis=0).tolist()) for level, values in found.items()}


def draw(chosen: argparse.Namespace) -> None:
    """Draw, and write, success and return of each step of the optimiser, means of ten, and the start on the same levels."""
    rows = [json.loads(line) for line in (Path(chosen.folder) / "metrics.jsonl").read_text("utf-8").splitlines()]
    start = start_on(chosen, [level for row in rows for level in row["levels"]]) if chosen.start_draws else {}
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    x = [row["episodes"] for row in rows]
    record: dict[str, Any] = {"episodes": x, "minutes": [row["minutes"] for row in rows]}
    for place, (axes, name) in enumerate(zip(figure.subplots(1, 2), ("success", "reward"), strict=True)):
        lines = {"in training": [row[name] for row in rows]}
        if start:
            own = [float(np.mean([start[level][place] for level in row["levels"]])) for row in rows]
            lines["the start, on the same levels"] = own
        record[name] = lines
        for (label, values), colour in zip(lines.items(), ("tab:blue", "tab:gray"), strict=False):
            means = [float(np.mean(values[max(0, end - 9) : end + 1])) for end in range(len(values))]
            axes.plot(x, values, ".", color=colour, alpha=0.35)
            axes.plot(x, means, color=colour, label=label)
        axes.set(xlabel="episodes", ylabel={"reward": "return"}.get(name, name), ylim=(0, 1))
        axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(Path(chosen.folder) / "curve.png", dpi=120)
    (Path(chosen.folder) / "curve.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def main() -> None:
    """Train, save the model with its adapter merged, and draw the curve."""
    chosen = options()
    folder = Path(chosen.folder)
    folder.mkdir(parents=True)
    first = 1000 + 100_000 * chosen.seed  # not the levels of the start
    seeds = range(first, first + chosen.steps * chosen.levels)
    watch = Watch(chosen)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(chosen.start),
        args=settings(chosen),
        processing_class=AutoTokenizer.from_pretrained(chosen.start),
        train_dataset=trl_dataset("BabyAIText-v0", "train", seeds, task=chosen.task),
        peft_config=LoraConfig(r=chosen.rank, lora_alpha=2 * chosen.rank, target_modules="all-linear", task_type="CAUSAL_LM"),
        rollout_func=watch.play,
        reward_funcs=episode_reward,
        callbacks=[watch],
    )
    trainer.train()
    model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    model.save_pretrained(folder / "model")
    trainer.processing_class.save_pretrained(folder / "model")
    draw(chosen)


if __name__ == "__main__":
    main()
