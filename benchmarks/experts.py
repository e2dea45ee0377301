"""Check the experts: the gold path on every level, and replanning after random actions.

``python benchmarks/experts.py`` plays everything (some minutes on two cores) and writes ``experts.md`` and ``experts.json`` of
TextWorldExpress's games and ``babyai_experts.md`` and ``.json`` of BabyAI's levels; ``--help`` lists the options.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import check_choice
from gym_text_policies.commands.options import add_fields

FOLDS = ("train", "dev", "test")
DISTANCES = (1, 3, 10)
"""Random actions before the replanning expert takes over."""
GAMES = (
    "CookingWorldText-v0",
    "CommonsenseText-v0",
    "CoinCollectorText-v0",
    "MapReaderText-v0",
    "ArithmeticText-v0",
    "SortingText-v0",
    "SimonSaysText-v0",
    "SimonSaysMemoryText-v0",
    "PeckingOrderText-v0",
)
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((game, {}) for game in GAMES),
    ("CookingWorldText-v0", {"num_locations": 1}),
    ("CookingWorldText-v0", {"num_locations": 11, "max_episode_steps": 150}),
    (
        "CookingWorldText-v0",
        {"num_locations": 11, "num_ingredients": 5, "num_distractor_items": 10, "limit_inventory_size": False}
        | {"max_episode_steps": 200},
    ),
    (
        "CookingWorldText-v0",
        {"num_locations": 1, "num_ingredients": 5, "num_distractor_items": 10, "limit_inventory_size": False},
    ),
    ("CommonsenseText-v0", {"include_doors": True}),
    ("CoinCollectorText-v0", {"num_distractor_items": 10, "limit_inventory_size": False}),
    ("MapReaderText-v0", {"num_locations": 48, "max_distance_apart": 8, "include_doors": True}),
)
"""What the gold path is checked on: the registered parameters, CookingWorld at 1 and 11 rooms, and the largest games."""


@dataclass(frozen=True)
class ExpertsConfig:
    """Check the experts of TextWorldExpress's games and of BabyAI."""

    part: str = "all"
    """What to check: all, games or babyai."""
    seeds: int = 1000
    """Levels of each fold on which the gold path is played."""
    random_steps: int = 50
    """Random actions played on each of these levels, nine of ten of them gathering things, to see how many can be valid."""
    replan_seeds: int = 200
    """Levels of the train fold on which the replanning expert takes over."""
    games: tuple[str, ...] = GAMES
    """Environments to be checked."""
    level_seeds: int = 20
    """Episodes of each of BabyAI's 96 levels."""
    task_seeds: int = 200
    """Episodes of each of BabyAI's five tasks, for the expert."""
    random_episodes: int = 1000
    """Episodes of each of BabyAI's five tasks, for a random policy."""
    folder: str = "benchmarks/results"
    """Where the tables are written."""


@dataclass(frozen=True)
class PathRow:
    """The gold path on the levels of one fold."""

    game: str
    arguments: str
    fold: str
    levels: int
    won: int
    """Levels won by the gold path within the limit, each step valid when it was played."""
    shortest: int
    mean: float
    longest: int
    """Steps of the gold path."""
    limit: int
    """Steps of the environment's limit."""
    most_actions: int
    """Most valid actions seen on the gold path and in random play."""


@dataclass(frozen=True)
class ReplanRow:
    """The replanning expert after random actions; shares of the levels."""

    game: str
    distance: int
    """Random valid actions played first."""
    levels: int
    lost: float
    """Lost by the random actions."""
    winnable: float
    """At most this share can still be won: not lost, as far as the game says."""
    hint: float
    """Won by the random actions, or with a hint after them."""
    won: float
    """Won within the limit by following the hints."""


def gold_rows(config: ExpertsConfig) -> Iterator[PathRow]:
    """Play the gold path of every setting, fold and level."""
    jobs = [(game, arguments, fold) for game, arguments in SETTINGS if game in config.games for fold in FOLDS]
    with tqdm(total=len(jobs) * config.seeds, desc="gold paths", unit=" levels") as bar:
        for game, arguments, fold in jobs:
            env, wanderer = (gym.make(game, fold=fold, expert=expert, **arguments) for expert in ("path", "off"))
            lengths, won, most = [], 0, 0
            for seed in range(config.seeds):
                length, success, actions = play_gold_path(env, seed)
                lengths, won = [*lengths, length], won + success
                most = max(most, actions, play_at_random(wanderer, seed, config.random_steps))
                bar.update()
            limit = env.spec.max_episode_steps if env.spec and env.spec.max_episode_steps else 0
            shown = ", ".join(f"{key}={value}" for key, value in arguments.items() if key != "max_episode_steps")
            yield PathRow(game, shown, fold, config.seeds, won, min(lengths), statistics.fmean(lengths), max(lengths), limit, most)
            env.close()


def play_gold_path(env: gym.Env[Any, Any], seed: int) -> tuple[int, bool, int]:
    """Return the gold path's length, whether it wins with valid steps only, and the most valid actions seen."""
    obs, info = env.reset(seed=seed)
    path, most = info.get("gold_path", ()), len(obs["valid_actions"])
    valid, truncated = bool(path), False
    for action in path:
        obs, _, _, truncated, info = env.step(action)
        valid, most = valid and info["action_was_valid"], max(most, len(obs["valid_actions"]))
        if truncated:
            break
    return len(path), bool(valid and info["success"]), most


def play_at_random(env: gym.Env[Any, Any], seed: int, steps: int) -> int:
    """Return the most valid actions seen in random play, which mostly gathers things: what is carried can be put anywhere."""
    rng, (obs, _) = random.Random(seed), env.reset(seed=seed)
    most = len(obs["valid_actions"])
    for _ in range(steps):
        valid = obs["valid_actions"]
        gathering = [action for action in valid if action.startswith(("take ", "open ")) and "door" not in action]
        moving = [action for action in valid if action.startswith(("move ", "open "))]
        obs, _, terminated, truncated, _ = env.step(rng.choice(((rng.random() < 0.9) and (gathering or moving)) or valid))
        most = max(most, len(obs["valid_actions"]))
        if terminated or truncated:
            break
    return most


def replan_rows(config: ExpertsConfig) -> Iterator[ReplanRow]:
    """Leave the gold path by random valid actions on every level, then follow the replanning expert."""
    with tqdm(total=len(config.games) * len(DISTANCES) * config.replan_seeds, desc="replanning", unit=" levels") as bar:
        for game in config.games:
            env = gym.make(game, expert="replan")
            for distance in DISTANCES:
                lost = hints = won = 0
                for seed in range(config.replan_seeds):
                    ended, hint, success = replan(env, seed, distance)
                    lost, hints, won = lost + ended, hints + hint, won + success
                    bar.update()
                share = 1 / config.replan_seeds
                yield ReplanRow(game, distance, config.replan_seeds, lost * share, 1 - lost * share, hints * share, won * share)
            env.close()


def replan(env: gym.Env[Any, Any], seed: int, distance: int) -> tuple[bool, bool, bool]:
    """Return whether random actions lost the game, whether there was a hint (or a win) after them, and whether it was won."""
    rng, (obs, info) = random.Random(seed), env.reset(seed=seed)
    over = False
    for _ in range(distance):
        obs, _, terminated, truncated, info = env.step(rng.choice(obs["valid_actions"]))
        over = terminated or truncated
        if over:
            break
    lost, hint = bool(info["failure"]), "gold_action" in info or bool(info["success"])
    while not over and "gold_action" in info:
        _, _, terminated, truncated, info = env.step(info["gold_action"])
        over = terminated or truncated
    return lost, hint, bool(info["success"])


@dataclass(frozen=True)
class BabyAIRow:
    """The gold path of a level or task of BabyAI."""

    name: str
    episodes: int
    won: int
    """Episodes with a gold path, which wins within the limit when it is played."""
    mean: float
    longest: int
    """Steps of the gold path; 0 where there is none."""
    limit: int
    """The greatest limit in these episodes: that of a level depends on the mission."""
    random: float | None = None
    """Share of episodes won by random actions, where this was measured."""


def babyai_rows(config: ExpertsConfig) -> Iterator[BabyAIRow]:
    """Play the gold paths of the five tasks and of all levels."""
    import minigrid  # noqa: F401  registers the levels

    from gym_text.babyai.levels import TASKS

    levels = sorted(name for name in gym.registry if name.startswith("BabyAI-"))
    jobs: list[tuple[dict[str, str], int]] = [({"task": task}, config.task_seeds) for task in TASKS]
    jobs += [({"level": level}, config.level_seeds) for level in levels]
    with tqdm(total=sum(seeds for _, seeds in jobs), desc="BabyAI", unit=" episodes") as bar:
        for arguments, seeds in jobs:
            (name,) = arguments.values()
            bar.set_postfix_str(name)
            env, lengths, limit = gym.make("BabyAIText-v0", **arguments), [], 0
            for seed in range(seeds):
                lengths += play_path(env, seed)
                limit = max(limit, env.unwrapped._game.max_steps)  # type: ignore[attr-defined]
                bar.update()
            chance = random_success(arguments, config.random_episodes) if "task" in arguments else None
            mean = statistics.fmean(lengths) if lengths else 0.0
            yield BabyAIRow(name, seeds, len(lengths), mean, max(lengths, default=0), limit, chance)


def play_path(env: gym.Env[Any, Any], seed: int) -> list[int]:
    """Play the gold path of an episode; return its length, or nothing where there is none or it does not win."""
    obs, info = env.reset(seed=seed)
    path = info.get("gold_path", ())
    for name in path:
        obs, *_, info = env.step(env.get_wrapper_attr("text_spec").encode(name, obs))
    return [len(path)] if info["success"] else []


def random_success(arguments: dict[str, str], episodes: int) -> float:
    """Return the share of episodes that random actions win."""
    env, won = gym.make("BabyAIText-v0", expert="off", **arguments), 0
    for seed in range(episodes):
        rng, over = random.Random(seed), False
        env.reset(seed=seed)
        while not over:
            _, _, terminated, truncated, info = env.step(rng.randrange(6))
            over = terminated or truncated
        won += info["success"]
    return won / episodes


def babyai_report(rows: Sequence[BabyAIRow]) -> str:
    """Return the table of BabyAI in Markdown, the tasks before the levels."""
    lines = [
        "# Experts of BabyAI",
        "",
        "Made by `python benchmarks/experts.py --part babyai`.",
        "",
        "Won: the gold path wins within the limit when it is played; elsewhere there is none. The reasons are on the page of",
        "`BabyAITextEnv`. Random: share of episodes that random actions win.",
        "",
        "| task or level | won | mean | longest | limit | random |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        chance = "" if row.random is None else f"{row.random:.3f}"
        lines.append(f"| {row.name} | {row.won} of {row.episodes} | {row.mean:.1f} | {row.longest} | {row.limit} | {chance} |")
    return "\n".join(lines) + "\n"


def report(paths: Sequence[PathRow], replans: Sequence[ReplanRow]) -> str:
    """Return both tables in Markdown."""
    lines = [
        "# Experts of TextWorldExpress's games",
        "",
        "Made by `python benchmarks/experts.py`.",
        "",
        "## Gold path",
        "",
        "Won: within the limit, each step valid when it was played. Most actions: valid at once, on the path or in random play.",
        "",
        "| game | parameters | fold | won | shortest | mean | longest | limit | most actions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for p in paths:
        lines.append(
            f"| {p.game} | {p.arguments or 'registered'} | {p.fold} | {p.won} of {p.levels} | {p.shortest} | {p.mean:.1f} "
            f"| {p.longest} | {p.limit} | {p.most_actions} |"
        )
    lines += [
        "",
        "## Replanning",
        "",
        "After k random valid actions from the start, shares of the levels. Still winnable: all that the game has not declared",
        "lost, an upper bound, which is exact where the last column equals it. A hint is only given if the plan behind it wins.",
        "",
        "| game | k | levels | lost | still winnable | with a hint | won when following |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in replans:
        lines.append(f"| {r.game} | {r.distance} | {r.levels} | {r.lost:.3f} | {r.winnable:.3f} | {r.hint:.3f} | {r.won:.3f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print and write the tables; return 1 if a gold path of a game or of a task of BabyAI does not win."""
    parser = argparse.ArgumentParser(description=ExpertsConfig.__doc__)
    add_fields(parser, ExpertsConfig)
    config = ExpertsConfig(**vars(parser.parse_args(arguments)))
    check_choice("part", config.part, ("all", "games", "babyai"))
    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    failed = False
    if config.part != "babyai":
        paths, replans = list(gold_rows(config)), list(replan_rows(config))
        write(config, "experts", report(paths, replans), {"paths": paths, "replanning": replans})
        failed = any(p.won < p.levels for p in paths)
    if config.part != "games":
        rows = list(babyai_rows(config))
        write(config, "babyai_experts", babyai_report(rows), {"rows": rows})
        failed = failed or any(row.won < row.episodes for row in rows if row.random is not None)
    return int(failed)


def write(config: ExpertsConfig, name: str, text: str, rows: dict[str, list[Any]]) -> None:
    """Print a report, and write it and what it was made from."""
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    data = {"config": asdict(config)} | {key: [asdict(row) for row in values] for key, values in rows.items()}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
