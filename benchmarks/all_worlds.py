"""Makes one adapter for the eleven worlds of the panel.

It begins with four adapters that ship, combined into one of the same rank, and learns the experts' actions in every world: first of
all worlds, then mostly of the six without an adapter of their own.

python benchmarks/all_worlds.py --folder runs/all-worlds
"""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.harness import options, run

from gym_text_policies.data.dataset import read_rows, write_rows

COLLECT = "collect --num-envs 8 --strategy compact"
GAME = "--history all --seed 1"
LANDER = "--environments LunarLanderLLM-v2?decimals=1 --history 0"
DATA = {
    "CookingWorld": f"--environments CookingWorldText-v0 --episodes 120 --noise 0.15 {GAME}",
    "CoinCollector": f"--environments CoinCollectorText-v0 --episodes 80 --noise 0.1 {GAME}",
    "MapReader": f"--environments MapReaderText-v0 --episodes 120 --noise 0.1 {GAME}",
    "Arithmetic": f"--environments ArithmeticText-v0 --episodes 300 --noise 0.1 {GAME}",
    "Sorting": f"--environments SortingText-v0 --episodes 200 --noise 0.1 {GAME}",
    "BabyAI": f"--environments BabyAIText-v0?task=goto BabyAIText-v0?task=putnext --episodes 60 300 --noise 0.2 {GAME}",
    "ScienceWorld": "--environments ScienceWorldText-v0?task=find-living-thing&max_episode_steps=30 --episodes 120 --noise 0.1 "
    f"{GAME}",
    "Sokoban": f"--environments SokobanText-v0 --episodes 120 --noise 0.05 {GAME}",
    "TextCraft": f"--environments TextCraftText-v0?depth=1 TextCraftText-v0?depth=2 --episodes 40 200 --noise 0.1 {GAME}",
    "SokobanBoards": "--environments SokobanText-v0 --episodes 60 --first-seed 2000 --noise 0.15 --history 0 --seed 1",
    "MoreTextCraft": "--environments TextCraftText-v0?depth=1 TextCraftText-v0?depth=2 --episodes 40 300 --first-seed 500 "
    "--noise 0.1 --history all --seed 5",
    "LanderA": f"{LANDER} --episodes 40 --first-seed 1000 --noise 0.1 --seed 1",
    "LanderB": f"{LANDER} --episodes 60 --first-seed 1100 --noise 0.3 --seed 2",
    "LanderC": f"{LANDER} --episodes 80 --first-seed 1200 --noise 0.6 --seed 3",
}
"""Options of ``gym-text collect`` for each folder of data."""
SPECIALISTS = {
    "cookingworld-sft": "CookingWorld",
    "babyai-sft": "BabyAI",
    "scienceworld-sft": "ScienceWorld",
    "lunarlander-sft": "LanderB",
}
"""The adapters of the start, and whose data each of them reads."""
LEARNT = {
    ("CookingWorld", ""): 60,
    ("CoinCollector", ""): 40,
    ("MapReader", ""): 70,
    ("Arithmetic", ""): 120,
    ("Sorting", ""): 130,
    ("BabyAI", "goto"): 20,
    ("BabyAI", "putnext"): 110,
    ("ScienceWorld", ""): 60,
    ("Sokoban", ""): 12,
    ("TextCraft", '"depth": 1'): 20,
    ("TextCraft", '"depth": 2'): 140,
    ("LanderA", ""): 700,
    ("LanderB", ""): 900,
    ("LanderC", ""): 900,
}
"""Rows that are learnt, of those with a text in their environment's JSON: drawn at random, and Sokoban's shortest games."""
LEARNT_THEN = {
    "CoinCollector": 60,
    "MapReader": 90,
    "Arithmetic": 150,
    "Sorting": 120,
    "MoreTextCraft": 240,
    "SokobanBoards": 140,
    "CookingWorld": 10,
    "BabyAI": 40,
    "ScienceWorld": 14,
    "LanderB": 120,
}
"""Rows of the second training, drawn at random: six worlds, and some rows of the others, so that they are not forgotten."""
SFT = "sft --compiled --tokens-per-pass 2048 --save-steps 8 --threads 1"
FIRST = f"{SFT} --rows-per-step 32 --learning-rate 4e-4 --warmup 5 --max-steps 48 --seed 0"
SECOND = f"{SFT} --rows-per-step 16 --learning-rate 3e-4 --warmup 4 --seed 1"


@dataclass(frozen=True)
class Config:
    """Where the data and the adapter go."""

    folder: str = "runs/all-worlds"
    """What is in it already is not made again."""


def gym_text(arguments: str, *more: str) -> None:
    """Run a command of gym-text."""
    command = [sys.executable, "-m", "gym_text_policies.cli", *shlex.split(arguments), *more]
    print(shlex.join(["gym-text", *command[3:]]), flush=True)
    subprocess.run(command, check=True)


def pick(folder: Path) -> None:
    """Write the rows that are learnt."""
    learnt = []
    for (name, text), count in LEARNT.items():
        rows = [row for row in read_rows(folder / name / "rows") if text in row.environment]
        if name == "Sokoban":
            learnt += sorted(rows, key=lambda row: sum(len(message["content"]) for message in row.messages))[:count]
        else:
            learnt += random.Random(0).sample(rows, count)
    write_rows(learnt, folder / "learnt")
    then = [random.Random(1).sample(read_rows(folder / name / "rows"), count) for name, count in LEARNT_THEN.items()]
    write_rows([row for rows in then for row in rows], folder / "then")


def main() -> None:
    """Collect, combine, train."""
    folder = Path(options(Config).folder)
    for name, how in DATA.items():
        if not (folder / name / "rows").exists():
            gym_text(f"{COLLECT} {how}", "--folder", str(folder / name))
    if not (folder / "learnt").exists():
        pick(folder)
    if not (folder / "start").exists():
        adapters = [f"adapters/{name}" for name in SPECIALISTS]
        data = [str(folder / name / "rows") for name in SPECIALISTS.values()]
        gym_text("combine", "--adapters", *adapters, "--data", *data, "--folder", str(folder / "start"))
    for how, name, start, data in ((FIRST, "first", "start", "learnt"), (SECOND, "second", "first/adapter", "then")):
        if not (folder / name / "adapter").exists():
            gym_text(how, "--model", str(folder / start), "--data", str(folder / data), "--folder", str(folder / name))


if __name__ == "__main__":
    run(main)
