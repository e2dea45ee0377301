"""Supervised actions per second: whole episodes packed into one row, compared with one full prompt for each step.

The ways take turns, so that a machine whose speed drifts does not favour one of them.

python benchmarks/training.py --environment CookingWorldText-v0 --episodes 8
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.store import write_atomically
from gym_text_policies.training.collect import CollectConfig, collect
from gym_text_policies.training.layouts import answer_losses
from gym_text_policies.training.lora import add_lora, compile_layers, environment_record, load_base, set_precision
from gym_text_policies.training.rows import Row
from gym_text_policies.training.sequences import Conversation

RESULTS = Path(__file__).parent / "results"
RECIPE = "one prompt for each step"


def _precision(model: Any) -> torch.autocast:
    """Return a context in which products have the precision of the model's weights."""
    return torch.autocast(model.device.type, torch.bfloat16, enabled=model.dtype == torch.bfloat16)


def packed(model: Any, tokenizer: Any, rows: list[Row]) -> int:
    """Do a forward and a backward pass of whole episodes; return the number of actions learnt."""
    with _precision(model):
        loss = answer_losses(model, [Conversation.of(tokenizer, row.examples()) for row in rows]).mean()
    loss.backward()
    return sum(row.decisions for row in rows)


def one_by_one(model: Any, tokenizer: Any, rows: list[Row], steps: Sequence[int]) -> int:
    """Do the same as the tutorial's recipe: one prompt with its whole history at a time; return the number of actions learnt."""
    count = 0
    for row in rows:
        examples = list(row.examples())
        for step in steps:
            if step < len(examples):
                messages, answer = examples[step]
                prompt, tokens = prompt_tokens(tokenizer, messages), [*text_tokens(tokenizer, answer), tokenizer.eos_token_id]
                labels = torch.tensor([[-100] * len(prompt) + tokens], device=model.device)
                with _precision(model):
                    loss = model(input_ids=torch.tensor([prompt + tokens], device=model.device), labels=labels).loss
                loss.backward()
                count += 1
    return count


def _learner(precision: str) -> tuple[Any, Any]:
    """Return a model to train and its tokenizer; one in bfloat16 is compiled."""
    base, tokenizer = load_base("smollm2")
    model = add_lora(base)
    set_precision(model, precision)
    if precision == "bfloat16":
        compile_layers(model)
    return model, tokenizer


def main() -> None:
    """Measure both on the same data and model, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="CookingWorldText-v0")
    parser.add_argument("--episodes", type=int, default=8, help="gold episodes learnt from")
    parser.add_argument("--rows-per-pass", type=int, default=2)
    parser.add_argument("--stride", type=int, default=3, help="the recipe is timed on every n-th step only")
    parser.add_argument("--name", default="training", help="name of the result files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = collect(CollectConfig(f"{folder}/data", (arguments.environment,), (str(arguments.episodes),)))
    learners = {precision: _learner(precision) for precision in ("float32", "bfloat16")}
    steps = range(1, max(row.decisions for row in rows), arguments.stride)
    batches = [rows[start : start + arguments.rows_per_pass] for start in range(0, len(rows), arguments.rows_per_pass)]
    ways = {
        RECIPE: lambda batch: one_by_one(*learners["float32"], batch[:1], steps),
        "packed": lambda batch: packed(*learners["float32"], batch),
        "packed, bfloat16, compiled": lambda batch: packed(*learners["bfloat16"], batch),
    }
    timed = {name: {"actions": 0, "seconds": 0.0, "cpu_seconds": 0.0} for name in ways}
    for turn, batch in enumerate([batches[0], *batches]):
        for name, way in ways.items():
            started, cpu = time.perf_counter(), time.process_time()
            count = way(batch)
            if turn:  # the first is for warming up, and for compiling
                timed[name]["actions"] += count
                timed[name]["seconds"] += time.perf_counter() - started
                timed[name]["cpu_seconds"] += time.process_time() - cpu
    for row in timed.values():
        row["per_second"] = row["actions"] / row["seconds"]
        row["ratio"] = row["per_second"] / timed[RECIPE]["per_second"]
    command = shlex.join(["python", *sys.argv])
    record = {
        "command": command,
        "environment": arguments.environment,
        "rows": timed,
        "ran_on": environment_record(),
    }
    write_atomically(RESULTS / f"{arguments.name}.json", json.dumps(record, indent=2) + "\n")
    table = "| way | actions | seconds | CPU seconds | actions per second | over the recipe |\n|---|---|---|---|---|---|\n"
    for name, row in timed.items():
        table += f"| {name} | {row['actions']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} "
        table += f"| {row['per_second']:.2f} | {row['ratio']:.1f} |\n"
    table += f"\n{arguments.environment}, one step in {arguments.stride} of the recipe's. `{command}`\n"
    write_atomically(RESULTS / f"{arguments.name}.md", table)
    print(table)


if __name__ == "__main__":
    main()
