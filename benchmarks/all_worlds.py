"""Makes one adapter for the eleven worlds of the panel.

It begins with three adapters that ship, merged into one of the same rank (`start`), and learns the experts' actions in every world.

python benchmarks/all_worlds.py --folder runs/all-worlds
"""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.harness import options, run

from gym_text_policies.backends.local.adapters import read_adapter, record_of
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.training.model.lora import RANK, add_lora, load_base
from gym_text_policies.training.model.saving import save_adapter

MERGED = ("adapters/cookingworld-sft", "adapters/babyai-sft", "adapters/lunarlander-sft")
"""What the start is merged of."""
COLLECT = "collect --num-envs 8 --seed 1 --strategy chat"
DATA = {
    "CookingWorld": "--environments CookingWorldText-v0 --episodes 60 --noise 0.15 --history all",
    "CoinCollector": "--environments CoinCollectorText-v0 --episodes 60 --noise 0.1 --history all",
    "MapReader": "--environments MapReaderText-v0 --episodes 80 --noise 0.1 --history all",
    "Arithmetic": "--environments ArithmeticText-v0 --episodes 200 --noise 0.1 --history all",
    "Sorting": "--environments SortingText-v0 --episodes 150 --noise 0.1 --history all",
    "BabyAI": "--environments BabyAIText-v0?task=goto BabyAIText-v0?task=putnext --episodes 80 160 --noise 0.2 --history all",
    "ScienceWorld": "--environments ScienceWorldText-v0?task=find-living-thing&max_episode_steps=30 --episodes 60 --noise 0.1 "
    "--history all",
    "Sokoban": "--environments SokobanText-v0 --episodes 100 --noise 0.05 --history all",
    "TextCraft": "--environments TextCraftText-v0?depth=1 TextCraftText-v0?depth=2 --episodes 40 140 --noise 0.1 --history all",
    "LunarLander": "--environments LunarLanderLLM-v2?decimals=1 --episodes 40 --first-seed 1000 --noise 0.2 --history 0",
}
"""Options of ``gym-text collect`` for each folder of data."""
LEARNT = {"LunarLander": 700, "Sokoban": 25}
"""Rows that are learnt, of folders with more: decisions of LunarLander drawn at random, Sokoban's shortest games."""
SFT = (
    "sft --dtype bfloat16 --compiled --rows-per-step 16 --rows-per-pass 2 --learning-rate 6e-4 --warmup 6 --epochs 1 "
    "--save-steps 15 --seed 0 --threads 1"
)


@dataclass(frozen=True)
class Config:
    """Where the data and the adapter go."""

    folder: str = "runs/all-worlds"
    """What is in it already is not made again."""


def merge(folder: Path) -> None:
    """Write the sum of the updates of `MERGED`, cut to their rank by a singular value decomposition (peft's)."""
    model, _ = load_base("smollm2")
    names = [Path(adapter).name for adapter in MERGED]
    for adapter, name in zip(MERGED, names, strict=True):
        model = add_lora(model, adapter=adapter, name=name)
    model.add_weighted_adapter(names, [1.0] * len(names), "merged", combination_type="svd", svd_rank=RANK)
    made_by = {"svd": {"adapters": MERGED, "digests": {name: read_adapter(name)[1] for name in MERGED}, "rank": RANK}}
    save_adapter(model, folder, {**prompt_of(MERGED[0]), "made_by": made_by}, name="merged")


def prompt_of(adapter: str) -> dict[str, Any]:
    """Return what an adapter's record says of its prompts."""
    return {key: value for key, value in record_of(adapter).items() if key in ("asked", "template")}


def gym_text(arguments: str, *more: str) -> None:
    """Run a command of gym-text."""
    command = [sys.executable, "-m", "gym_text_policies.cli", *shlex.split(arguments), *more]
    print(shlex.join(["gym-text", *command[3:]]), flush=True)
    subprocess.run(command, check=True)


def pick(rows: Path, count: int, folder: Path) -> None:
    """Write the shortest rows, or such rows at random where each is one decision."""
    found = read_rows(rows)
    if all(row.decisions == 1 for row in found):
        chosen = random.Random(0).sample(found, count)
    else:
        chosen = sorted(found, key=lambda row: sum(len(message["content"]) for message in row.messages))[:count]
    write_rows(chosen, folder)


def main() -> None:
    """Collect, merge, train."""
    folder = Path(options(Config).folder)
    learnt = []
    for name, how in DATA.items():
        rows = folder / name / "rows"
        if not rows.exists():
            gym_text(f"{COLLECT} {how}", "--folder", str(folder / name))
        if name in LEARNT:
            rows = folder / name / "learnt"
            if not rows.exists():
                pick(folder / name / "rows", LEARNT[name], rows)
        learnt.append(str(rows))
    start = folder / "start"
    if not start.exists():
        merge(start)
    gym_text(SFT, "--model", str(start), "--data", *learnt, "--folder", str(folder / "sft"))


if __name__ == "__main__":
    run(main)
