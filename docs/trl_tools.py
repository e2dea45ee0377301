r"""TRL teaches a model to play by tools: first the expert's calls (`SFTTrainer`), then GRPO with `environment_factory`.

On a CPU, with the embedded model::

    python docs/trl_tools.py --folder runs/trl/tools

On a GPU the model may be sampled by vLLM::

    python docs/trl_tools.py --model Qwen/Qwen2.5-0.5B-Instruct --folder runs/trl/tools --device gpu --use-vllm

The script writes the model before GRPO into the folder ``start``, the model after it into ``model``, and ``metrics.json``. Copy
this file and change it. Options: ``--help``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.bridges.trl import trl_dataset, trl_environment, trl_record
from gym_text_policies.environments import environment_maker

LEVELS: dict[str, Any] = {"environment": "BabyAIText-v0?task=goto", "strategy": "tool_short"}
TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
"""A chat template with tools, for models whose own has none."""


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Train a model by tools on BabyAI's goto with TRL.")
    add = parser.add_argument
    add("--model", default=None, help="a model's folder or its name on the hub; by default the embedded SmolLM2")
    add("--folder", default="runs/trl/tools", help="new folder for models and metrics")
    add("--max-episode-steps", type=int, default=12, help="step limit")
    add("--max-completion-length", type=int, default=640, help="most tokens of an episode, those of the tool's messages included")
    add("--expert-levels", type=int, default=256, help="levels whose expert's calls are learnt before GRPO")
    add("--epochs", type=float, default=1.0, help="how often each of these levels is learnt")
    add("--steps", type=int, default=100, help="optimiser steps of GRPO")
    add("--levels", type=int, default=8, help="levels of each of these steps")
    add("--group", type=int, default=4, help="episodes of each level")
    add("--episodes-per-pass", type=int, default=4, help="episodes in one forward and backward pass; memory grows with it")
    add("--expert-learning-rate", type=float, default=5e-4, help="learning rate of the adapter before GRPO")
    add("--learning-rate", type=float, default=7e-5, help="learning rate of GRPO's adapter")
    add("--rank", type=int, default=16, help="rank of both adapters")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="where to train; on a GPU in bfloat16")
    add("--use-vllm", action="store_true", help="sample with a vLLM that shares the trainer's GPU")
    add("--vllm-memory", type=float, default=0.3, help="share of the GPU's memory that vLLM takes")
    add("--seed", type=int, default=0, help="seed of the sampling; it also selects the first level")
    args = parser.parse_args()
    if args.expert_levels < 1:
        parser.error(f"--expert-levels: expected at least 1, for GRPO begins with what they teach; got {args.expert_levels}.")
    return args


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of both trainers."""
    return {
        "output_dir": str(Path(args.folder) / "trainer"),
        "per_device_train_batch_size": args.episodes_per_pass,
        "lr_scheduler_type": "constant",
        "use_cpu": args.device == "cpu",
        "bf16": args.device == "gpu",
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": args.seed,
    }


def adapter(args: argparse.Namespace) -> LoraConfig:
    """Return the settings of a new adapter."""
    return LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")


def expert_chats(environment: type[Any], levels: Any) -> Iterator[dict[str, Any]]:
    """Yield the expert's episode on each level, as the chat and the tools that TRL shows the model in GRPO."""
    played = environment()
    tools = [get_json_schema(played.act)]
    with environment_maker(LEVELS["environment"], fold="train")() as env:
        for row in levels:
            system, user = ({"role": message["role"], "content": message["content"]} for message in row["prompt"])
            chat: list[dict[str, Any]] = [system, {**user, "content": user["content"] + played.reset(**row)}]
            for action in env.reset(seed=row["seed"])[1]["gold_path"]:
                if played.game.end is not None:  # at the step limit
                    break
                call = {"type": "function", "function": {"name": "act", "arguments": {"action": action}}}
                chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
                chat.append({"role": "tool", "name": "act", "content": played.act(action)})
            yield {"messages": chat, "tools": tools}


def save(trainer: Any, folder: Path) -> None:
    """Save a model with its adapter merged, and its tokenizer."""
    trainer.accelerator.unwrap_model(trainer.model).merge_and_unload().save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)


def learn_from_expert(args: argparse.Namespace, environment: type[Any], levels: Any) -> None:
    """Write the model that GRPO begins with: one that calls the tool as the expert does. Only the calls count in the loss."""
    source = args.model or str(smollm2_folder())
    tokenizer = AutoTokenizer.from_pretrained(source)
    if "tools" not in (tokenizer.chat_template or ""):
        tokenizer.chat_template = TEMPLATE.read_text("utf-8")
    chats = Dataset.from_list(list(expert_chats(environment, levels)))
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(source, dtype="float32"),
        args=SFTConfig(
            assistant_only_loss=True,
            max_length=None,
            num_train_epochs=args.epochs,
            learning_rate=args.expert_learning_rate,
            **common(args),
        ),
        processing_class=tokenizer,
        train_dataset=chats,
        peft_config=adapter(args),
    )
    trainer.train()
    save(trainer, Path(args.folder) / "start")


def settings(args: argparse.Namespace) -> GRPOConfig:
    """Return the settings of GRPO. A comment gives the reason for a setting that matters for games."""
    return GRPOConfig(
        max_steps=args.steps,
        gradient_accumulation_steps=args.levels * args.group // args.episodes_per_pass,  # a step's episodes are played together
        num_generations=args.group,
        max_completion_length=args.max_completion_length,
        max_tool_calling_iterations=args.max_episode_steps,
        learning_rate=args.learning_rate,
        loss_type="grpo",  # equal weights for episodes; by tokens the long, lost ones would outweigh the others
        scale_rewards="none",  # a group whose returns hardly differ carries little information
        use_vllm=args.use_vllm,
        vllm_gpu_memory_utilization=args.vllm_memory,
        vllm_max_model_length=args.max_completion_length + 512,  # 512: the first prompt
        vllm_importance_sampling_mode="token_truncate",  # the default leaves out whole episodes, the long ones first
        **common(args),
    )


def success(environments: Sequence[Any], log_metric: Any, **others: Any) -> list[float]:
    """Log the share of won episodes, as a reward function of TRL that adds nothing to the environment's reward."""
    log_metric("success", float(np.mean([environment.game.success for environment in environments])))
    return [0.0] * len(environments)


def main() -> None:
    """Train, and save both models."""
    args = options()
    folder = Path(args.folder)
    folder.mkdir(parents=True)
    first = 1000 + 100_000 * args.seed
    seeds = range(first, first + args.expert_levels + args.steps * args.levels)
    levels = trl_dataset(fold="train", seeds=seeds, **LEVELS)
    name = f"{LEVELS['environment']}&max_episode_steps={args.max_episode_steps}"
    environment = trl_environment(name, strategy=LEVELS["strategy"])
    learn_from_expert(args, environment, levels.select(range(args.expert_levels)))
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "start"),
        args=settings(args),
        processing_class=AutoTokenizer.from_pretrained(folder / "start"),
        train_dataset=levels.select(range(args.expert_levels, len(levels))),
        peft_config=adapter(args),
        environment_factory=environment,
        reward_funcs=success,
    )
    trainer.train()
    save(trainer, folder / "model")
    for name in ("start", "model"):
        trl_record(folder / name, environment, trainer)  # so that gym-text asks both as in training
    (folder / "metrics.json").write_text(json.dumps(trainer.state.log_history, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
