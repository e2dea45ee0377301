"""What reinforcement learning makes of a weak start, beside other ways to learn from as many episodes.

The start is tuned on 32 expert episodes of BabyAI's goto and pickup. From there on GRPO and PPO learn from rewards alone,
and so does rejection sampling, which learns the policy's own won episodes as supervised data. DAgger asks the expert. Beside them
is stable-baselines3's PPO with a small network, from scratch. All then play 200 levels of the test fold, as registered.

``python benchmarks/reinforcement.py`` takes about two hours of one core. Each run has a folder; a second call goes on, so that
``python benchmarks/reinforcement.py grpo-0 &`` and the like make single runs side by side. Without names it makes what is missing
and writes ``results/reinforcement.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from adapters import mcnemar
from scipy.stats import wilcoxon
from stable_baselines import Config as Network
from stable_baselines import WordEmbeddings, make_env, row, train

from gym_text.errors import unknown_choice
from gym_text.wrappers import EncodeText
from gym_text_policies import as_policy, rollout
from gym_text_policies.experiments.bench import BenchConfig
from gym_text_policies.experiments.bench import run as play
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.table import Summary, wilson_interval
from gym_text_policies.store import write_atomically
from gym_text_policies.training.lora import environment_record

RESULTS = Path(__file__).parent / "results"
TASKS = ("goto", "pickup")
LEARNT = tuple(f"BabyAIText-v0?task={task}&max_episode_steps=24" for task in TASKS)
"""Fewer steps than the 64 that are registered, and played in the end: what is lost costs less."""
START = "start/adapter"
FAST = "--precision bfloat16"
ROWS = f"{FAST} --rows-per-step 16 --rows-per-pass 16"
ON_POLICY = (
    f"--adapter {START} --environments {shlex.join(LEARNT)} --episodes 128 --episodes-per-step 16 --batch 16 "
    f"--learning-rate 5e-5 --kl-weight 0.01 --dev-every 2 --dev-episodes 40 {FAST}"
)
SEEDS = (0, 1, 2)
ROUNDS = 2
"""Of rejection sampling, 512 episodes each: together they take about as many minutes as GRPO."""
STEPS = (10_000, 200_000)
"""Of stable-baselines3's PPO, for each task: about as many decisions as GRPO plays, and twenty times as many."""
ORDER = {
    "start": "the start (the expert's episodes)",
    "grpo": "GRPO",
    "ppo": "PPO",
    "rejection": "rejection sampling",
    "dagger": "DAgger (has an expert)",
}
"""What the runs are, by what their names begin with."""


def first_seed(seed: int) -> int:
    """Return the seed of a run's first episode: no run plays another's levels, or those of the start."""
    return 1000 + 10_000 * seed


def rejection(seed: int) -> list[str]:
    """Return the commands of a run of rejection sampling."""
    commands, adapter = [], START
    for number in range(ROUNDS):
        folder = f"rejection-{seed}/round-{number + 1}"
        commands += [
            f"collect --policy {adapter} --temperature 1 --options dtype=bfloat16 --environments {shlex.join(LEARNT)} "
            f"--episodes 256 --first-seed {first_seed(seed) + 256 * number} --batch 16 --folder {folder}/data",
            f"sft --adapter {adapter} --data {folder}/data/rows --learning-rate 2e-4 --max-steps 150 --seed {seed} {ROWS} "
            f"--folder {folder}/sft",
        ]
        adapter = f"{folder}/sft/adapter"
    return commands


COMMANDS = {
    "start": [
        f"collect --environments {shlex.join(f'BabyAIText-v0?task={task}' for task in TASKS)} --episodes 16 --history 0 "
        "--folder start-data",
        f"sft --data start-data/rows --learning-rate 5e-4 --epochs 3 --warmup 2 {ROWS} --folder start",
    ],
    **{
        f"grpo-{seed}": [f"grpo {ON_POLICY} --iterations 12 --seed {seed} --first-seed {first_seed(seed)} --folder grpo-{seed}"]
        for seed in SEEDS
    },
    "ppo-0": [f"ppo {ON_POLICY} --iterations 4 --first-seed {first_seed(0)} --value-iterations 1 --epochs 1 --folder ppo-0"],
    "rejection-0": rejection(0),
    "dagger-0": [
        f"dagger --adapter {START} --data start-data/rows --environments {shlex.join(LEARNT)} --rounds 2 --episodes 48 "
        f"--first-seed {first_seed(0)} {ROWS} --folder dagger-0"
    ],
}
"""By the run's name, the commands of gym-text that make it. PPO has as many minutes as GRPO: it has less to read in common."""
ADAPTERS = {
    "start": START,
    **{f"grpo-{seed}": f"grpo-{seed}/adapter" for seed in SEEDS},
    "ppo-0": "ppo-0/adapter",
    "rejection-0": f"rejection-0/round-{ROUNDS}/sft/adapter",
    "dagger-0": "dagger-0/round-2/sft/adapter",
}
"""Adapter of each run."""


def make(name: str, folder: Path) -> None:
    """Run the commands of a run, one after the other, each once; how many minutes they took is noted in the folder."""
    done = folder / f"{name}.json"
    taken: list[list[Any]] = json.loads(done.read_text("utf-8")) if done.exists() else []
    for command in COMMANDS[name][len(taken) :]:
        print(f"gym-text {command}", flush=True)
        began = time.perf_counter()
        arguments = [sys.executable, "-m", "gym_text_policies.cli", *shlex.split(command)]
        subprocess.run(arguments, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
        taken.append([command, (time.perf_counter() - began) / 60])
        write_atomically(done, json.dumps(taken) + "\n")


def network(folder: Path, task: str, steps: int, seeds: int) -> dict[str, Any]:
    """Return what PPO of stable-baselines3 with a small network reaches from scratch on a task."""
    done = folder / f"network-{task}-{steps}.json"
    if not done.exists():
        print(f"stable-baselines3's PPO: {task}, {steps} steps", flush=True)
        torch.set_num_threads(1)
        config = Network(task=task, steps=steps)
        began = time.perf_counter()
        model = train(config, features_extractor_class=WordEmbeddings)
        seconds = time.perf_counter() - began
        encoder = EncodeText(make_env(config, "test"), length=config.length)
        player = as_policy(lambda obs: model.predict(encoder.observation(obs))[0], encoder, name="network")
        played = list(rollout(lambda: make_env(config, "test"), player, range(seeds)))
        write_atomically(done, json.dumps(row(task, seconds, played)) + "\n")
    return dict(json.loads(done.read_text("utf-8")))


COLUMNS = (*TASKS, *(f"{task}, drawn" for task in TASKS))
"""Of the table: each task played greedily, and by drawing at temperature 1."""
Played = dict[str, dict[str, dict[int, Summary]]]
"""Run -> column -> seed -> episode."""


def evaluate(folder: Path, names: Iterable[str], seeds: int) -> Played:
    """Let each adapter play the test fold greedily and by drawing, and return the episodes."""
    variants = {
        name + kind: {"model": str(folder / ADAPTERS[name]), "temperature": temperature, "options": {"dtype": "bfloat16"}}
        for name in names
        for kind, temperature in (("", 0.0), (", drawn", 1.0))
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(variants, file)  # JSON is YAML
        file.flush()
        environments = tuple(f"BabyAIText-v0?task={task}" for task in TASKS)
        config = BenchConfig(str(folder / "evaluation"), environments, variants=file.name, llm_seeds=seeds, seeds=seeds, batch=16)
        _, store = play(config)
    rows = json.loads((store.folder / "table.json").read_text("utf-8"))["rows"]
    places = {row["key"]: (row["policy"], row["environment"].partition("task=")[2]) for row in rows}
    played: Played = {}
    for variant in read_runs([store.folder]).variants:
        labels = [places[episode.key] for episode in variant.episodes if episode.key in places]
        if labels:  # not chance or the expert
            name, _, kind = labels[0][0].partition(",")
            column = f"{labels[0][1]},{kind}" if kind else labels[0][1]
            played.setdefault(name, {})[column] = {one.seed: one for one in variant.episodes if one.error is None}
    return played


def compared(own: Mapping[int, Summary], start: Mapping[int, Summary]) -> dict[str, Any]:
    """Return a run's success and steps, and tests beside the start on the same levels: McNemar's, and Wilcoxon's of the steps."""
    wins = [(own[seed].outcome == "won", start[seed].outcome == "won") for seed in start]
    gained, lost, p = mcnemar(wins)
    won = sum(one for one, _ in wins)
    steps = np.array([[own[seed].length, start[seed].length] for seed in start])
    differ = (steps[:, 0] != steps[:, 1]).any()
    return {
        "success": won / len(wins),
        "interval": wilson_interval(won, len(wins)),
        "gained": gained,
        "lost": lost,
        "p": p,
        "steps": float(steps[:, 0].mean()),
        "p_steps": float(wilcoxon(steps[:, 0], steps[:, 1]).pvalue) if differ else 1.0,
    }


def over_seeds(played: Played, names: Sequence[str], column: str) -> dict[str, Any]:
    """Return the mean success and steps of a way's runs, and Wilcoxon's tests over the levels beside the start."""
    start = played["start"][column]

    def beside(figure: Callable[[Summary], float]) -> tuple[float, float, float]:
        own = np.array([np.mean([figure(played[name][column][seed]) for name in names]) for seed in start])
        differences = own - np.array([figure(one) for one in start.values()])
        return float(own.mean()), float(differences.mean()), float(wilcoxon(differences).pvalue) if differences.any() else 1.0

    success, difference, p = beside(lambda one: float(one.outcome == "won"))
    steps, _, p_steps = beside(lambda one: float(one.length))
    return {"success": success, "difference": difference, "p": p, "steps": steps, "p_steps": p_steps}


def cost(folder: Path, name: str) -> dict[str, float]:
    """Return how many episodes a run has played to learn from, and how long that and learning took, without the dev fold."""
    metrics = folder / name / "metrics.jsonl"
    if metrics.exists():
        last = curve(metrics)[-1]
        return {"episodes": int(last["episodes"]), "minutes": last["minutes"]}
    found = [*folder.glob(f"{name}-data/episodes.jsonl"), *(folder / name).rglob("data/episodes.jsonl")]
    minutes = sum(minutes for _, minutes in json.loads((folder / f"{name}.json").read_text("utf-8")))
    return {"episodes": sum(len(path.read_text("utf-8").splitlines()) for path in found), "minutes": minutes}


def curve(metrics: Path) -> list[dict[str, float]]:
    """Return the metrics of a run's iterations, rounded."""
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    return [{name: round(value, 4) for name, value in line.items()} for line in lines]


def results(folder: Path, seeds: int) -> dict[str, Any]:
    """Return the record: what each run reaches, at what cost, and its curve."""
    made = [name for name in COMMANDS if (folder / ADAPTERS[name]).exists()]
    played = evaluate(folder, made, seeds)
    rows = [
        {
            "run": name,
            **cost(folder, name),
            "columns": {column: compared(played[name][column], played["start"][column]) for column in COLUMNS},
        }
        for name in made
    ]
    ways = {kind: [name for name in made if name.startswith(f"{kind}-")] for kind in ORDER}
    return {
        "command": shlex.join(["python", "benchmarks/reinforcement.py", *sys.argv[1:]]),
        "rows": rows,
        "means": {
            kind: {column: over_seeds(played, names, column) for column in COLUMNS}
            for kind, names in ways.items()
            if len(names) > 1
        },
        "networks": [network(folder, task, steps, seeds) | {"steps": steps} for steps in STEPS for task in TASKS],
        "curves": {name: curve(folder / name / "metrics.jsonl") for name in made if (folder / name / "metrics.jsonl").exists()},
        "commands": COMMANDS,
        "ran_on": environment_record(),
    }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results in Markdown."""
    drawn = [f"{task}, drawn" for task in TASKS]
    heads = [*(f"{task}, p" for task in TASKS), *(f"{column}: steps, p" for column in drawn)]
    yield f"| way | episodes | minutes | {' | '.join(heads)} |"
    yield "|---" * (3 + len(heads)) + "|"

    def cells(columns: Mapping[str, Any], is_start: bool = False) -> str:
        greedy, steps = [columns[task] for task in TASKS], [columns[column] for column in drawn]
        texts = [f"{one['success']:.2f}" + ("" if is_start else f", {one['p']:.1g}") for one in greedy]
        return " | ".join([*texts, *(f"{one['steps']:.1f}" + ("" if is_start else f", {one['p_steps']:.1g}") for one in steps)])

    for found in record["rows"]:
        kind, _, seed = found["run"].partition("-")
        name = ORDER[kind] + (f", seed {seed}" if seed else "")
        yield f"| {name} | {found['episodes']} | {found['minutes']:.0f} | {cells(found['columns'], not seed)} |"
    for kind, columns in record["means"].items():
        yield f"| {ORDER[kind]}, mean | | | {cells(columns)} |"
    for steps in STEPS:
        networks = {found["policy"]: found for found in record["networks"] if found["steps"] == steps}
        shares = " | ".join(f"{networks[task]['success']:.2f}" for task in TASKS)
        lengths = " | ".join(f"{networks[task]['length']:.1f}" for task in TASKS)
        minutes = sum(found["training_seconds"] for found in networks.values()) / 60
        yield f"| a small network from scratch, {steps:,} steps a task | | {minutes:.1f} | {shares} | {lengths} |"


def main() -> None:
    """Make the runs of these names, or all that are missing, and then the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"runs to make: {', '.join(COMMANDS)}; none: all, and the results")
    parser.add_argument("--folder", type=Path, default=Path("runs/reinforcement"), help="the runs' folder")
    parser.add_argument("--seeds", type=int, default=200, help="levels of the test fold, of each task")
    given = parser.parse_args()
    for name in given.names:
        if name not in COMMANDS:
            raise unknown_choice("run", name, COMMANDS)
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or COMMANDS:
        make(name, given.folder)
    if not given.names:
        record = results(given.folder, given.seeds)
        text = "\n".join(table(record))
        text += f"\n\n{given.seeds} levels of the test fold, at most 64 steps: the share won greedily, and the steps by drawing. "
        text += "p: beside the start on the same levels, McNemar's exact test of what is won, Wilcoxon's of steps and of means. "
        text += "Minutes of one core. The small network is stable-baselines3's PPO.\n"
        write_atomically(RESULTS / "reinforcement.json", json.dumps(record, indent=1) + "\n")
        write_atomically(RESULTS / "reinforcement.md", text)
        print(text)


if __name__ == "__main__":
    main()
