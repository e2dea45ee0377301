"""Success of a weak language model after reinforcement learning, beside other algorithms with as many episodes.

BabyAI: the start is tuned on 32 expert episodes of goto and pickup. From there GRPO learns from rewards alone. So does rejection
sampling, which fine-tunes on the won episodes of the policy. DAgger asks the expert. ``--game ppo`` is PPO, from such a start of
rank 8, the shipped ``adapters/babyai-start``. stable-baselines3's PPO trains a small
network from scratch. CookingWorld: the start is tuned on 960 expert episodes, in which the names of the foods are exchanged.
From there GRPO, rejection sampling and DAgger go on; MaskablePPO trains the small network. After training each player plays 200
levels of the test fold. Making the start of CookingWorld takes nearly two hours, so its adapter is in
``benchmarks/adapters/cookingworld-start``; ``--new-start`` makes it anew.

``--game lunarlander``: PPO goes on from ``adapters/lunarlander-start``, which is tuned on 40 expert episodes; so does
the way of ``helpers.small_copy``.

With ``--game search`` the policy learns what its own search in copies of the game finds, from BabyAI's start; ``search-five`` has
all five tasks, and a start from 80 expert episodes. ``search-cookingworld`` begins with CookingWorld's start, and
``search-cookingworld-sft`` with the adapter that ships.

``--game labels`` has no rewards: on the same expert episodes of goto and pickup one adapter learns to compare the names of actions,
the other the labels by which its prompt lists them.

``python benchmarks/reinforcement.py`` takes about two hours of one core, ``--game cookingworld`` about five. Each run has a
folder, and a second call goes on. Names, as in ``python benchmarks/reinforcement.py grpo-0``, make single runs and play the test
fold with them, so that several calls can work side by side. Without names the script makes all missing runs, and writes
``results/reinforcement.md`` and ``.json``, or ``reinforcement_cookingworld`` and so on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from adapters import ADAPTERS
from helpers.harness import command, levels_of_rows, options, play_plan, run, table, write
from helpers.networks import WordEmbeddings
from sb3_contrib import MaskablePPO
from stable_baselines import Config as Network
from stable_baselines import row, train
from stable_baselines3 import PPO

from gym_text.errors import check_choice
from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.policy import text_spec
from gym_text_policies.report.figures import Summary
from gym_text_policies.report.statistics import paired_tests, run_of, wilson_interval
from gym_text_policies.training.model.lora import environment_record

STARTS = Path(__file__).parent / "adapters"
"""Adapters to begin with that are kept."""
START = "start/adapter"
FAST = "--dtype bfloat16"
SEEDS = (0, 1, 2)
ORDER = {
    "start": "the start (the expert's episodes)",
    "grpo": "GRPO",
    "ppo": "PPO",
    "rejection": "rejection sampling",
    "dagger": "DAgger (has an expert)",
    "search": "expert iteration, a search in exact copies",
    "copy": "rollouts of a small copy, in copies of the game",
    "labels": "labels: one token for each listed action",
}
"""What the runs are, by what their names begin with."""


@dataclass(frozen=True)
class Game:
    """The tasks of a game: what the runs train on, and what they are evaluated on."""

    commands: Mapping[str, Sequence[str]]
    """By the run's name, the commands of gym-text that make it; or those of python, which begin with -m."""
    environments: Mapping[str, str]
    """What is played in the end: by a short name, the environment as registered."""
    shown: Sequence[tuple[str, str]]
    """Columns of the table: the short name, with ", drawn" for play by drawing, and which figure of it."""
    most_steps: int
    network: type[PPO | MaskablePPO] | None = PPO
    """What a small network learns by, from scratch; None: there is none."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Of the network's environment."""
    kept: Path | None = None
    """The start, where it is not made anew."""
    first_level: int = 0
    """Seed of the first level of the test fold."""
    start: str = ORDER["start"]
    """What the start is."""
    num_envs: int = 5
    """Episodes that are evaluated at once. The model keeps what it has read of five long ones; of more it would read all again."""
    with_speed: bool = False
    """Whether the table shows the decisions in a second."""

    @property
    def is_drawn(self) -> bool:
        """Whether it is played by drawing, too."""
        return any(column.endswith(", drawn") for column, _ in self.shown)


def adapter_of(name: str) -> str:
    """Return the folder of a run's adapter; of a run with rounds, the adapter of the last round."""
    rounds = name.startswith(("rejection", "dagger"))
    return f"{name}/round-{ROUNDS}/sft/adapter" if rounds else f"{name}/adapter"


def first_seed(seed: int) -> int:
    """Return the seed of a run's first episode. In BabyAI each run plays levels that no other run, nor the start, has played."""
    return 1000 + 10_000 * seed


TASKS = ("goto", "pickup")
BOTH_TASKS = shlex.join(f"BabyAIText-v0?task={task}" for task in TASKS)
LEARNT = tuple(f"BabyAIText-v0?task={task}&max_episode_steps=24" for task in TASKS)
"""Fewer steps than the 64 that are registered, and played in the end: what is lost costs less."""
ROWS = f"{FAST} --rows-per-step 16 --tokens-per-pass 8192"
ON_POLICY = (
    f"--model {START} --environments {shlex.join(LEARNT)} --episodes-per-iteration 128 --episodes-per-step 16 "
    f"--learning-rate 5e-5 --kl-weight 0.01 --dev-every 2 --dev-episodes 40 {FAST}"
)
ROUNDS = 2
"""Of rejection sampling and of DAgger. Those of the first have 512 episodes in BabyAI and 256 in CookingWorld: together they take
about as many minutes as GRPO."""
STEPS = (10_000, 200_000)
"""Of a small network's training, for each task: about as many decisions as GRPO plays, and twenty times as many."""


def rejection(seed: int, environments: Sequence[str], episodes: int, learning: str) -> list[str]:
    """Return the commands of a run of rejection sampling, with so many episodes of each environment in a round."""
    commands, adapter = [], START
    for number in range(ROUNDS):
        folder = f"rejection-{seed}/round-{number + 1}"
        commands += [
            f"collect --model {adapter} --options temperature=1 dtype=bfloat16 --environments {shlex.join(environments)} "
            f"--episodes {episodes} --first-seed {first_seed(seed) + episodes * number} --num-envs 16 --folder {folder}/data",
            f"sft --model {adapter} --data {folder}/data/rows --seed {seed} --learning-rate 2e-4 {learning} --folder {folder}/sft",
        ]
        adapter = f"{folder}/sft/adapter"
    return commands


BABYAI_COMMANDS = {
    "start": [
        f"collect --environments {BOTH_TASKS} --episodes 16 --history 0 --folder start-data",
        f"sft --data start-data/rows --learning-rate 5e-4 --epochs 3 --warmup 2 {ROWS} --folder start",
    ],
    **{
        f"grpo-{seed}": [f"grpo {ON_POLICY} --iterations 12 --seed {seed} --first-seed {first_seed(seed)} --folder grpo-{seed}"]
        for seed in SEEDS
    },
    "rejection-0": rejection(0, LEARNT, 256, f"--max-steps 150 {ROWS}"),
    "dagger-0": [
        f"dagger --model {START} --data start-data/rows --environments {shlex.join(LEARNT)} --iterations {ROUNDS} "
        f"--episodes-per-iteration 48 --first-seed {first_seed(0)} {FAST} --tokens-per-pass 8192 --folder dagger-0"
    ],
}
BABYAI = Game(
    commands=BABYAI_COMMANDS,
    environments={task: f"BabyAIText-v0?task={task}" for task in TASKS},
    shown=[*((task, "success") for task in TASKS), *((f"{task}, drawn", "steps") for task in TASKS)],
    most_steps=64,
)

SEARCHES = {
    f"search-{seed}": [
        f"expert-iteration --model {START} --environments {shlex.join(LEARNT)} --iterations 8 --episodes-per-iteration 32 "
        f"--simulations 32 --uniform-share 0.2 --schedule constant --dev-every 2 --dev-episodes 24 {FAST} "
        f"--seed {seed} --first-seed {first_seed(seed)} --folder search-{seed}"
    ]
    for seed in SEEDS
}
SHORT = f"--model {START} --environments {shlex.join(LEARNT)} --iterations 10 --dev-every 2 --dev-episodes 24 {FAST}"
PPO_ROWS = Game(
    commands={
        "start": [BABYAI_COMMANDS["start"][0], f"{BABYAI_COMMANDS['start'][1]} --rank 8"],
        **{f"ppo-{seed}": [f"ppo {SHORT} --seed {seed} --first-seed {first_seed(seed)} --folder ppo-{seed}"] for seed in SEEDS},
        "grpo-0": [f"grpo {SHORT} --seed 0 --first-seed {first_seed(0)} --folder grpo-0"],
        "search-0": SEARCHES["search-0"],
    },
    environments=BABYAI.environments,
    shown=[*((task, "success") for task in TASKS), *((task, "steps") for task in TASKS)],
    most_steps=64,
    network=None,
    kept=ADAPTERS / "babyai-start",
)

SEARCH = dataclasses.replace(PPO_ROWS, commands={"start": BABYAI_COMMANDS["start"], **SEARCHES}, kept=None)

MOST_STEPS = {"goto": 24, "pickup": 24, "open": 40, "putnext": 40, "pick_up_seq_go_to": 40}
REMEMBERED = {task: f"BabyAIText-v0?memory=True&task={task}" for task in MOST_STEPS}
HARD = ("putnext", "pick_up_seq_go_to", "open")
"""They are played twice as often."""
LIMITED = tuple(f"{REMEMBERED[task]}&max_episode_steps={MOST_STEPS[task]}" for task in (*MOST_STEPS, *HARD))
FIVE = Game(
    commands={
        "start": [
            f"collect --environments {shlex.join(REMEMBERED.values())} --episodes 16 --noise 0.3 --history 0 --folder start-data",
            f"sft --data start-data/rows --learning-rate 5e-4 --epochs 3 --warmup 2 {ROWS} --folder start",
        ],
        "search-0": [
            f"expert-iteration --model {START} --environments {shlex.join(LIMITED)} --simulations 96 --uniform-share 0.1 "
            "--expert-share 0.5 --iterations 8 --episodes-per-iteration 64 --learning-rate 2e-4 --epochs 2 --dev-every 4 "
            f"--dev-episodes 12 --gradient-checkpointing --tokens-per-pass 2048 {FAST} --first-seed 30000 --folder search-0"
        ],
    },
    environments=REMEMBERED,
    shown=[(task, "success") for task in MOST_STEPS],
    most_steps=128,
    network=None,
)

HOVER = "'LunarLanderLLM-v2?max_episode_steps=300'"
IMPROVED = f"--model helpers.small_copy:Improved --strategy tenths --history 0 --environments {HOVER} --threshold -10000"
IMPROVED_ROWS = f"--warmup 10 {FAST} --rows-per-step 16 --tokens-per-pass 4096"


def copied(seed: int) -> list[str]:
    """Return the commands of a run by a small copy. All copy the same episodes of the start; each improves on its own levels."""
    improved, learnt = f"collect {IMPROVED} --options run={seed} --first-seed", f"{IMPROVED_ROWS} --seed {seed} --folder"
    drawn = (
        f"collect --model {START} --options temperature=1 dtype=bfloat16 --environments {HOVER} --episodes 320 --first-seed 20000 "
        "--num-envs 16 --folder copy-0-data-own"
    )
    return [
        *(() if seed else (drawn,)),
        f"-m helpers.small_copy copy-0-data-own {seed} {(1_020_320, 1_021_000, 1_022_000)[seed]}",
        f"{improved} {30_000 + 20_000 * seed} --episodes 128 --folder copy-{seed}-data-drawn",
        f"sft --model {START} --data copy-{seed}-data-drawn/rows --learning-rate 5e-4 {learnt} player-{seed}",
        f"{improved} {40_000 + 20_000 * seed} --episodes 72 --num-envs 24 --folder copy-{seed}-data",
        f"sft --model player-{seed}/adapter --data copy-{seed}-data/rows --learning-rate 4e-4 {learnt} copy-{seed}",
    ]


LANDER = Game(
    commands={
        "start": [
            "collect --environments 'LunarLanderLLM-v2?decimals=1&max_episode_steps=300' --episodes 40 --noise 0.15 --history 0 "
            "--strategy tenths --folder start-data",
            f"sft --data start-data/rows --learning-rate 8e-4 --epochs 3 --warmup 10 {FAST} --rows-per-step 8 "
            "--tokens-per-pass 8192 --rank 8 --save-steps 200 --folder start",
        ],
        "ppo-0": [
            f"ppo --model {START} --environments {HOVER} --iterations 10 "
            "--episodes-per-iteration 16 --group-size 1 --episodes-per-step 2 --learning-rate 1.5e-4 --discount 0.99 --decay 0.9 "
            f"--dev-every 0 {FAST} --gradient-checkpointing --tokens-per-pass 8192 --seed 0 --first-seed {first_seed(0)} "
            "--folder ppo-0"
        ],
        **{f"copy-{seed}": copied(seed) for seed in SEEDS},
    },
    environments={"LunarLander": "LunarLanderLLM-v2"},
    shown=[("LunarLander", "return"), ("LunarLander", "success")],
    most_steps=1000,
    network=None,
    kept=ADAPTERS / "lunarlander-start",
    num_envs=24,
)
"""The numbers are in tenths, and the expert acts on these. An episode is played once: its steps have rewards of their own."""

FOODS = (
    *("banana", "block of cheese", "carrot", "chicken leg", "chicken wing", "cilantro", "orange bell pepper", "parsley"),
    *("pork chop", "purple potato", "red apple", "red hot pepper", "red onion", "red potato", "white onion"),
    *("yellow bell pepper", "yellow potato"),
)
"""Names that are exchanged with each other in each episode: a recipe then has to be read."""
KITCHENS = ("CookingWorldText-v0?max_episode_steps=30", "CookingWorldText-v0?num_locations=1&max_episode_steps=16")
"""Half the levels have one room, where an episode is short and is about cooking."""
EXCHANGED = f"--interchangeable {shlex.join(FOODS)}"
COOKING_ROWS = f"{FAST} --rows-per-step 4 {EXCHANGED}"
COOKING_SFT = f"--warmup 4 {COOKING_ROWS}"
COOKINGWORLD_COMMANDS = {
    "start": [
        "collect --environments CookingWorldText-v0 --episodes 320 --noise 0.1 --folder start-data",
        f"sft --data start-data/rows --learning-rate 7e-4 {COOKING_SFT} --folder start-1",
        "collect --environments CookingWorldText-v0 --episodes 640 --first-seed 320 --noise 0.1 --folder start-data-2",
        f"sft --model start-1/adapter --data start-data-2/rows --learning-rate 4e-4 {COOKING_SFT} --folder start",
    ],
    **{
        f"grpo-{seed}": [
            f"grpo --model {START} --environments {shlex.join(KITCHENS)} {EXCHANGED} --episodes-per-step 16 "
            f"--learning-rate 6e-5 --discount 0.98 --decay 0.7 {FAST} --tokens-per-pass 16384 "
            f"--gradient-checkpointing --dev-every 4 --dev-episodes 24 --iterations 8 --seed {seed} "
            f"--first-seed {first_seed(seed) + 300 * seed} --folder grpo-{seed}"
        ]
        for seed in SEEDS
    },
    "rejection-0": rejection(0, KITCHENS, 128, COOKING_SFT),
    "dagger-0": [
        "collect --environments CookingWorldText-v0 --episodes 32 --noise 0.1 --folder dagger-0/start-data",
        f"dagger --model {START} --data dagger-0/start-data/rows --environments {shlex.join(KITCHENS)} --iterations {ROUNDS} "
        f"--episodes-per-iteration 24 --first-seed {first_seed(0)} {FAST} {EXCHANGED} --folder dagger-0",
    ],
}
"""There are 1,000 levels of a fold, so these are levels that the start has learnt, under other names; each run has its own."""
COOKINGWORLD = Game(
    commands=COOKINGWORLD_COMMANDS,
    environments={"CookingWorld": "CookingWorldText-v0"},
    shown=[("CookingWorld", "success"), ("CookingWorld", "return"), ("CookingWorld", "steps")],
    most_steps=50,
    network=MaskablePPO,
    arguments={"actions": "index"},
    kept=STARTS / "cookingworld-start",
)
COOKING_SEARCH = (
    f"{EXCHANGED} --simulations 32 --uniform-share 0.05 --schedule constant --gradient-checkpointing "
    f"--dev-every 2 {FAST} --iterations 2 --episodes-per-iteration 64"
)
KITCHEN = Game(
    commands={
        "start": COOKINGWORLD_COMMANDS["start"],
        "search-0": [
            f"expert-iteration --model {START} --environments {shlex.join(KITCHENS)} {COOKING_SEARCH} --learning-rate 2e-4 "
            f"--dev-episodes 32 --first-seed {first_seed(0)} --folder search-0"
        ],
    },
    environments=COOKINGWORLD.environments,
    shown=COOKINGWORLD.shown,
    most_steps=50,
    network=None,
    kept=COOKINGWORLD.kept,
)
SHIPPED = Game(
    commands={
        "start": [],
        "search-0": [
            f"expert-iteration --model adapters/cookingworld-sft --environments CookingWorldText-v0?max_episode_steps=40 "
            f"{COOKING_SEARCH} --learning-rate 1e-4 --expert-share 0.5 --dev-episodes 64 --first-seed {first_seed(0)} "
            "--folder search-0"
        ],
    },
    environments=COOKINGWORLD.environments,
    shown=COOKINGWORLD.shown,
    most_steps=50,
    network=None,
    kept=ADAPTERS / "cookingworld-sft",
    first_level=200,
)
TAUGHT = Game(
    commands={
        name: [
            f"collect --environments {BOTH_TASKS} --episodes 100 --history 0 --strategy {strategy} --folder {name}-data",
            f"sft --data {name}-data/rows --learning-rate 5e-4 --warmup 2 --rank 8 {ROWS} --folder {name}",
        ]
        for name, strategy in {"start": "chat", "labels-0": "labels"}.items()
    },
    environments=BABYAI.environments,
    shown=PPO_ROWS.shown,
    most_steps=64,
    network=None,
    start="exact: the whole name of each action",
    with_speed=True,
)
GAMES = {
    **{"babyai": BABYAI, "labels": TAUGHT, "ppo": PPO_ROWS, "cookingworld": COOKINGWORLD, "lunarlander": LANDER},
    **{"search": SEARCH, "search-five": FIVE, "search-cookingworld": KITCHEN, "search-cookingworld-sft": SHIPPED},
}


def make(game: Game, name: str, folder: Path) -> None:
    """Run the commands of a run, one after the other, each once; write the minutes that they took into the folder."""
    done = folder / f"{name}.json"
    taken: list[list[Any]] = json.loads(done.read_text("utf-8")) if done.exists() else []
    for line in game.commands[name][len(taken) :]:
        called = line if line.startswith("-m ") else f"-m gym_text_policies.cli {line}"
        print(f"python {called}", flush=True)
        began = time.perf_counter()
        settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}  # helpers are found as they are here
        subprocess.run([sys.executable, *shlex.split(called)], cwd=folder, env=os.environ | settings, check=True)
        taken.append([line, (time.perf_counter() - began) / 60])
        write_atomically(done, json.dumps(taken) + "\n")


def bring(kept: Path, folder: Path) -> None:
    """Copy the stored start into the runs' folder, with the minutes that its training took."""
    if not (folder / START).exists():
        shutil.copytree(kept, folder / START)
        if (folder / START / "minutes.json").exists():
            shutil.move(folder / START / "minutes.json", folder / "start.json")


def network(game: Game, folder: Path, name: str, steps: int, seeds: int) -> dict[str, Any]:
    """Train a small network from scratch in a game's environment, and return its figures."""
    done = folder / f"network-{name}-{steps}.json"
    if not done.exists():
        print(f"stable-baselines3: {name}, {steps} steps", flush=True)
        torch.set_num_threads(1)
        learnt, unseen = (
            environment_maker(game.environments[name], fold=fold, expert="off", **game.arguments) for fold in ("train", "test")
        )
        began = time.perf_counter()
        model = train(Network(steps=steps), learnt, game.network, features_extractor_class=WordEmbeddings)
        seconds = time.perf_counter() - began
        saved = done.with_suffix(".zip")
        model.save(saved)
        played = list(rollout(unseen, load_policy(f"sb3:{saved}", unseen()), range(seeds)))
        write_atomically(done, json.dumps(row(name, seconds, played)) + "\n")
    return dict(json.loads(done.read_text("utf-8")))


Played = dict[str, dict[int | str, Summary]]
"""Column -> level -> episode."""


def evaluate(game: Game, folder: Path, name: str, seeds: int) -> Played:
    """Let a run's adapter play the test fold with greedy and, if the table shows them, drawn actions; return the episodes."""
    variants = {
        name + kind: {"model": str(folder / adapter_of(name)), "temperature": temperature, "options": {"dtype": "bfloat16"}}
        for kind, temperature in {"": 0.0, ", drawn": 1.0}.items()
        if not kind or game.is_drawn
    }
    played = {"folder": str(folder / "evaluation" / name), "environments": tuple(game.environments.values()), "baselines": ()}
    _, record, store = play_plan(variants, **played, first_seed=game.first_level, llm_episodes=seeds, num_envs=game.num_envs)
    levels = levels_of_rows(store, record["rows"])
    return {
        column + policy.removeprefix(name): {
            level: Summary.of(episode)
            for (where, level), episode in levels[policy].items()
            if where == environment and episode.error is None
        }
        for column, environment in game.environments.items()
        for policy in levels
    }


FIGURES = {"success": ".2f", "return": ".2f", "steps": ".1f"}
"""What is measured of an episode, and how it is written."""


def compared(runs: Sequence[Mapping[int | str, Summary]], start: Mapping[int | str, Summary]) -> dict[str, Any]:
    """Return the mean figures of an algorithm's runs, and p beside the start: McNemar's for success of one run, else Wilcoxon's."""
    found: dict[str, Any] = {}
    tests = paired_tests([run_of(run) for run in runs], [run_of(start)])
    for name in FIGURES:
        found[name], found[f"{name}_difference"], found[f"{name}_p"] = tests[name].value, tests[name].difference, tests[name].p
    if len(runs) == 1:
        found["gained"], found["lost"] = tests["success"].alone or (0, 0)
        found["interval"] = wilson_interval(sum(one.outcome == "won" for one in runs[0].values()), len(runs[0]))
    return found


def cost(folder: Path, name: str) -> dict[str, float]:
    """Return the number of a run's training episodes, and the minutes of play and learning, without the dev fold."""
    if parts := [*curves(folder, name).values()]:
        simulated = sum(int(line.get("simulator_steps", 0)) for lines in parts for line in lines)
        episodes, minutes = (sum(lines[-1][figure] for lines in parts) for figure in ("episodes", "minutes"))
        return {"episodes": int(episodes), "minutes": minutes, "simulator_steps": simulated}
    minutes = sum(minutes for _, minutes in json.loads((folder / f"{name}.json").read_text("utf-8")))
    found = [*folder.glob(f"{name}-data*/episodes.jsonl"), *(folder / name).rglob("data/episodes.jsonl")]
    episodes = sum(len(path.read_text("utf-8").splitlines()) for path in found)
    if not found:  # a start that was kept
        commands = [shlex.split(command) for command, _ in json.loads((folder / f"{name}.json").read_text("utf-8"))]
        collected = [words for words in commands if words[0] == "collect"]
        episodes = sum(int(words[words.index("--episodes") + 1]) * sum("-v" in word for word in words) for words in collected)
    return {"episodes": episodes, "minutes": minutes}


def curves(folder: Path, run: str) -> dict[str, list[dict[str, float]]]:
    """Return, by its folder's name, the metrics of each training that counts iterations, rounded; fine-tuning counts steps."""
    found = {
        path.parent.name: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in sorted(folder.glob(f"{run}*/metrics.jsonl"))
    }
    return {
        name: [{figure: round(value, 4) for figure, value in line.items()} for line in lines]
        for name, lines in found.items()
        if "episodes" in lines[-1]
    }


def speeds(game: Game, folder: Path, name: str) -> list[float]:
    """Return the decisions of a run's adapter in a second of one core's time, one by one in the states of the expert's path.

    The player's own path would have its circles, whose answers are remembered.
    """
    torch.set_num_threads(1)
    found = []
    for environment in game.environments.values() if game.with_speed else ():
        with closing(environment_maker(environment, fold="test")()) as bare:
            policy = load_policy(str(folder / adapter_of(name)), bare)
            env, seconds, asked = policy.wrap(bare), 0.0, 0
            for seed in range(20):
                obs, info = env.reset(seed=seed)
                for action in info["gold_path"]:
                    began = time.process_time()
                    policy(obs)
                    seconds, asked = seconds + time.process_time() - began, asked + 1
                    obs, *_ = env.step(text_spec(env).encode(action, obs))
        found.append(asked / seconds)
    return found


def results(game: Game, folder: Path, played: Mapping[str, Played], seeds: int) -> dict[str, Any]:
    """Return the record: the figures, cost and curve of each run that was evaluated."""
    columns = [*dict.fromkeys(column for column, _ in game.shown)]

    def figures(names: Sequence[str]) -> dict[str, Any]:
        return {column: compared([played[name][column] for name in names], played["start"][column]) for column in columns}

    ways = {kind: [name for name in played if name.startswith(f"{kind}-")] for kind in ORDER}
    return {
        "command": command(),
        "rows": [
            {"run": name, **cost(folder, name), "columns": figures([name]), "speeds": speeds(game, folder, name)} for name in played
        ],
        "means": {kind: figures(names) for kind, names in ways.items() if len(names) > 1},
        "networks": [
            network(game, folder, name, steps, seeds) | {"steps": steps}
            for steps in STEPS * (game.network is not None)
            for name in game.environments
        ],
        "curves": {training: lines for name in played for training, lines in curves(folder, name).items()},
        "commands": {name: [*commands] for name, commands in game.commands.items()},
        "ran_on": environment_record(),
    }


def report(game: Game, record: Mapping[str, Any], seeds: int) -> str:
    """Return the results in Markdown."""
    heads = [f"{column}{'' if figure == 'success' else f': {figure}'}, p" for column, figure in game.shown]
    heads += [f"{column}: decisions a CPU second" for column in game.environments if game.with_speed]
    drawn = ", and the steps by drawing" if game.is_drawn else ""
    device = record["ran_on"]["device"]
    where = "one core" if device.startswith("CPU") else f"the start on one core, of all else on {device}"
    note = (
        f"{seeds} levels of the test fold, at most {game.most_steps} steps: the share won greedily{drawn}. "
        "p compares with the start on the same levels: McNemar's exact test of wins, Wilcoxon's of steps and of means. "
        f"Minutes of {where}."
    )
    if game.network:
        note += f" The small network learns by stable-baselines3's {game.network.__name__} and plays greedily."
    return f"{table(('way', 'episodes', 'minutes', *heads), rows_of(game, record))}\n\n{note}"


def rows_of(game: Game, record: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the table."""

    def cells(columns: Mapping[str, Any], is_start: bool = False) -> list[str]:
        figures = [(columns[column], figure) for column, figure in game.shown]
        texts = [(f"{one[figure]:{FIGURES[figure]}}", f"{one[f'{figure}_p']:.1g}") for one, figure in figures]
        return [text if is_start else f"{text}, {p}" for text, p in texts]

    for found in record["rows"]:
        kind, _, seed = found["run"].partition("-")
        name = (ORDER[kind] if seed else game.start) + (f", seed {seed}" if seed else "")
        simulated = f" and {steps:,} steps in copies" if (steps := found.get("simulator_steps")) else ""
        yield (
            name,
            f"{found['episodes']}{simulated}",
            f"{found['minutes']:.0f}",
            *cells(found["columns"], not seed),
            *(f"{speed:.1f}" for speed in found["speeds"]),
        )
    for kind, columns in record["means"].items():
        yield f"{ORDER[kind]}, mean", "", "", *cells(columns)
    for steps in dict.fromkeys(found["steps"] for found in record["networks"]):
        networks = {found["policy"]: found for found in record["networks"] if found["steps"] == steps}
        figures = ((networks[column.removesuffix(", drawn")], figure) for column, figure in game.shown)
        texts = (f"{one['length' if figure == 'steps' else figure]:{FIGURES[figure]}}" for one, figure in figures)
        minutes = sum(found["training_seconds"] for found in networks.values()) / 60
        yield f"a small network from scratch, {steps:,} steps a task", "", f"{minutes:.1f}", *texts


@dataclass(frozen=True)
class Config:
    """What to make."""

    names: tuple[str, ...] = field(default=(), metadata={"positional": True})
    """Runs to make; none: all that are missing, and the results. A wrong name is answered with the list."""
    game: Literal[
        "babyai",
        "ppo",
        "labels",
        "cookingworld",
        "lunarlander",
        "search",
        "search-five",
        "search-cookingworld",
        "search-cookingworld-sft",
    ] = "babyai"
    """What is learnt; search: BabyAI's tasks, by expert iteration."""
    folder: str = ""
    """Folder of the runs; empty: runs/reinforcement, with the game's name unless it is babyai."""
    episodes: int = 200
    """Levels of the test fold, of each task."""
    new_start: bool = False
    """Whether to make the start anew where one is kept."""


def main() -> None:
    """Make the runs of these names, or all missing runs, and then the results."""
    config = options(Config, __doc__)
    game = GAMES[config.game]
    name = "reinforcement" + ("" if config.game == "babyai" else f"_{config.game.replace('-', '_')}")
    for chosen in config.names:
        check_choice("run", chosen, game.commands)
    folder = Path(config.folder or f"runs/{name}")
    folder.mkdir(parents=True, exist_ok=True)
    if game.kept and not config.new_start:
        bring(game.kept, folder)
    played = {}
    for chosen in config.names or game.commands:
        make(game, chosen, folder)
        played[chosen] = evaluate(game, folder, chosen, config.episodes)
    if not config.names:
        record = results(game, folder, played, config.episodes)
        write(name, report(game, record, config.episodes), record)


if __name__ == "__main__":
    run(main)
