"""Supervised actions per CPU second: whole episodes packed into one row, beside one prompt for each step read whole.

python benchmarks/training.py --environment CookingWorldText-v0 --episodes 4
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from gym_text_policies.backends.tokens import prompt_tokens, text_tokens
from gym_text_policies.store import write_atomically
from gym_text_policies.training.collect import CollectConfig, collect
from gym_text_policies.training.lora import add_lora, environment_record, load_base
from gym_text_policies.training.rows import Row
from gym_text_policies.training.sequences import Reading, answer_losses

RESULTS = Path(__file__).parent / "results"


def packed(model: Any, tokenizer: Any, rows: list[Row], rows_per_pass: int) -> int:
    """Do forward and backward passes of whole episodes; return the number of actions learnt."""
    for start in range(0, len(rows), rows_per_pass):
        readings = []
        for row in rows[start : start + rows_per_pass]:
            readings.append(Reading())
            for messages, answer in row.examples():
                readings[-1].add(tokenizer, messages, [answer])
        answer_losses(model, readings).mean().backward()
    return sum(row.decisions for row in rows)


def one_by_one(model: Any, tokenizer: Any, rows: list[Row], steps: list[int]) -> int:
    """Do them as the tutorial's recipe does: one prompt with its whole history, batch 1; return the number of actions."""
    count = 0
    for row in rows:
        examples = list(row.examples())
        for step in steps:
            if step < len(examples):
                messages, answer = examples[step]
                prompt, tokens = prompt_tokens(tokenizer, messages), [*text_tokens(tokenizer, answer), tokenizer.eos_token_id]
                labels = torch.tensor([[-100] * len(prompt) + tokens])
                model(input_ids=torch.tensor([prompt + tokens]), labels=labels).loss.backward()
                count += 1
    return count


def main() -> None:
    """Measure both on the same data and model, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="BabyAIText-v0?task=putnext")
    parser.add_argument("--episodes", type=int, default=4, help="episodes learnt from")
    parser.add_argument("--rows-per-pass", type=int, default=2)
    parser.add_argument("--stride", type=int, default=3, help="the straightforward way is timed on every so manieth step")
    parser.add_argument("--name", default="training", help="name of the result files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = collect(CollectConfig(f"{folder}/data", (arguments.environment,), (str(arguments.episodes),)))
    base, tokenizer = load_base("smollm2")
    model = add_lora(base)
    packed(model, tokenizer, rows[:1], 1)  # warm up
    timed = {}
    longest = max(row.decisions for row in rows)
    steps = list(range(1, longest, arguments.stride))
    for name, work in {
        "packed": lambda: packed(model, tokenizer, rows, arguments.rows_per_pass),
        "one by one": lambda: one_by_one(model, tokenizer, rows[:2], steps),
    }.items():
        started = time.process_time()
        count = work()
        timed[name] = {"actions": count, "cpu_seconds": time.process_time() - started}
        timed[name]["per_cpu_second"] = count / timed[name]["cpu_seconds"]
    ratio = timed["packed"]["per_cpu_second"] / timed["one by one"]["per_cpu_second"]
    command = f"python benchmarks/training.py --environment '{arguments.environment}' --episodes {arguments.episodes}"
    record = {
        "command": command,
        "environment": arguments.environment,
        "rows": timed,
        "ratio": ratio,
        "ran_on": environment_record(),
    }
    write_atomically(RESULTS / f"{arguments.name}.json", json.dumps(record, indent=2) + "\n")
    table = "| way | actions | CPU seconds | actions per CPU second |\n|---|---|---|---|\n"
    for name, row in timed.items():
        table += f"| {name} | {row['actions']} | {row['cpu_seconds']:.1f} | {row['per_cpu_second']:.2f} |\n"
    table += f"\n{arguments.environment}: {ratio:.1f} times as many. `{command}`\n"
    write_atomically(RESULTS / f"{arguments.name}.md", table)
    print(table)


if __name__ == "__main__":
    main()
