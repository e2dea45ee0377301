"""Check the experts: the gold path on every level, and replanning after random actions.

``python benchmarks/experts.py`` plays everything (some minutes on two cores) and writes ``experts.md`` and ``experts.json`` of
TextWorldExpress's games and ``babyai_experts.md`` and ``.json`` of BabyAI's levels; ``--help`` lists the options.
"""

from __future__ import annotations

import logging
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
from helpers.experts import play_gold_path, take_over
from helpers.harness import options, run, table, write
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import check_choice

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

ABOUT = (
    "# Experts of TextWorldExpress's games\n\nMade by `python benchmarks/experts.py`. Experts of other environments: "
    "[BabyAI](babyai_experts.md), [ScienceWorld](science_world.md),\n[Sokoban](sokoban.md), [TextCraft](textcraft_levels.md), "
    "[TextWorld](textworld_games.md); LunarLander's controller is the row `gold` of\n[adapters_lunarlander.md]"
    "(adapters_lunarlander.md).\n\n"
)
"""What the page says above its tables."""


@dataclass(frozen=True)
class ExpertsConfig:
    """Check the experts of TextWorldExpress's games and of BabyAI."""

    part: str = "all"
    """What to check: all, games or babyai."""
    levels: int = 1000
    """Levels of each fold on which the gold path is played."""
    random_steps: int = 50
    """Random actions played on each of these levels, nine of ten of them gathering things, to see how many can be valid."""
    replan_levels: int = 200
    """Levels of the train fold on which the replanning expert takes over."""
    games: tuple[str, ...] = GAMES
    """Environments to be checked."""
    level_episodes: int = 20
    """Episodes of each of BabyAI's 96 levels."""
    task_episodes: int = 200
    """Episodes of each of BabyAI's five tasks, for the expert."""
    random_episodes: int = 1000
    """Episodes of each of BabyAI's five tasks, for a random policy."""


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
    with tqdm(total=len(jobs) * config.levels, desc="gold paths", unit=" levels") as bar:
        for game, arguments, fold in jobs:
            env, wanderer = (gym.make(game, fold=fold, expert=expert, **arguments) for expert in ("path", "off"))
            lengths, won, most = [], 0, 0
            for seed in range(config.levels):
                played = play_gold_path(env, seed)
                lengths, won = [*lengths, played.length], won + (played.won and not played.invalid)
                listed = (len(obs["valid_actions"]) for obs in played.observations)
                most = max(most, *listed, play_at_random(wanderer, seed, config.random_steps))
                bar.update()
            limit = env.spec.max_episode_steps if env.spec and env.spec.max_episode_steps else 0
            shown = ", ".join(f"{key}={value}" for key, value in arguments.items() if key != "max_episode_steps")
            yield PathRow(game, shown, fold, config.levels, won, min(lengths), statistics.fmean(lengths), max(lengths), limit, most)
            env.close()


def play_at_random(env: gym.Env[Any, Any], seed: int, steps: int) -> int:
    """Return the greatest number of valid actions in random play that prefers to take things: each thing carried adds actions."""
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
    with tqdm(total=len(config.games) * len(DISTANCES) * config.replan_levels, desc="replanning", unit=" levels") as bar:
        for game in config.games:
            env = gym.make(game, expert="replan")
            for distance in DISTANCES:
                lost = hints = won = 0
                for seed in range(config.replan_levels):
                    played = take_over(env, seed, distance, _drawing(seed))
                    lost, hints, won = lost + played.failed, hints + played.hint, won + played.won
                    bar.update()
                share = 1 / config.replan_levels
                yield ReplanRow(game, distance, config.replan_levels, lost * share, 1 - lost * share, hints * share, won * share)
            env.close()


def _drawing(seed: int) -> Callable[[Any], str]:
    """Return a function that draws one of the valid actions."""
    rng = random.Random(seed)
    return lambda obs: rng.choice(obs["valid_actions"])


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
    jobs: list[tuple[dict[str, str], int]] = [({"task": task}, config.task_episodes) for task in TASKS]
    jobs += [({"level": level}, config.level_episodes) for level in levels]
    with tqdm(total=sum(seeds for _, seeds in jobs), desc="BabyAI", unit=" episodes") as bar:
        for arguments, seeds in jobs:
            (name,) = arguments.values()
            bar.set_postfix_str(name)
            env, lengths, limit = gym.make("BabyAIText-v0", **arguments), [], 0
            for seed in range(seeds):
                played = play_gold_path(env, seed)
                lengths += [played.length] * played.won
                limit = max(limit, env.unwrapped._game.max_steps)  # type: ignore[attr-defined]
                bar.update()
            chance = random_success(arguments, config.random_episodes) if "task" in arguments else None
            mean = statistics.fmean(lengths) if lengths else 0.0
            yield BabyAIRow(name, seeds, len(lengths), mean, max(lengths, default=0), limit, chance)


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
    lines = []
    for row in rows:
        chance = "" if row.random is None else f"{row.random:.3f}"
        lines.append((row.name, f"{row.won} of {row.episodes}", f"{row.mean:.1f}", row.longest, row.limit, chance))
    about = (
        "# Experts of BabyAI\n\nMade by `python benchmarks/experts.py --part babyai`.\n\n"
        "Won: the gold path wins within the limit when it is played; elsewhere there is none. The reasons are on the page of\n"
        "`BabyAITextEnv`. Random: share of episodes that random actions win.\n\n"
    )
    return about + table(("task or level", "won", "mean", "longest", "limit", "random"), lines)


def report(paths: Sequence[PathRow], replans: Sequence[ReplanRow]) -> str:
    """Return both tables in Markdown."""
    gold = table(
        ("game", "parameters", "fold", "won", "shortest", "mean", "longest", "limit", "most actions"),
        (
            (
                *(p.game, p.arguments or "registered", p.fold, f"{p.won} of {p.levels}"),
                *(p.shortest, f"{p.mean:.1f}", p.longest, p.limit, p.most_actions),
            )
            for p in paths
        ),
    )
    replanned = table(
        ("game", "k", "levels", "lost", "still winnable", "with a hint", "won when following"),
        ((r.game, r.distance, r.levels, *(f"{share:.3f}" for share in (r.lost, r.winnable, r.hint, r.won))) for r in replans),
    )
    return (
        f"{ABOUT}## Gold path\n\n"
        "Won: within the limit, each step valid when it was played. Most actions: valid at once, on the path or in random play."
        f"\n\n{gold}\n\n## Replanning\n\n"
        "After k random valid actions from the start, shares of the levels. Still winnable: all that the game has not declared\n"
        "lost, an upper bound, which is exact where the last column equals it. A hint is only given if the plan behind it wins.\n\n"
        f"{replanned}"
    )


def main() -> int:
    """Check, print and write the tables; return 1 if a gold path of a game or of a task of BabyAI does not win."""
    config = options(ExpertsConfig)
    check_choice("part", config.part, ("all", "games", "babyai"))
    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    failed = False
    if config.part != "babyai":
        paths, replans = list(gold_rows(config)), list(replan_rows(config))
        figures = {"paths": list(map(asdict, paths)), "replanning": list(map(asdict, replans))}
        write("experts", report(paths, replans), {"config": asdict(config), **figures})
        failed = any(p.won < p.levels for p in paths)
    if config.part != "games":
        rows = list(babyai_rows(config))
        record = {"config": asdict(config), "rows": list(map(asdict, rows))}
        write("babyai_experts", babyai_report(rows), record)
        failed = failed or any(row.won < row.episodes for row in rows if row.random is not None)
    return int(failed)


if __name__ == "__main__":
    run(main)
