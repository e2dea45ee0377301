"""TextCraft: the expert on levels of each depth, and random play.

``python benchmarks/textcraft_levels.py`` writes ``textcraft_levels.md`` and ``.json``. Times are seconds of this thread.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

import gymnasium as gym
import numpy as np
from helpers.experts import play_gold_path, spread, take_over
from helpers.harness import command, options, run, table, write
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text.textcraft.expert import plan
from gym_text.textcraft.levels import DEPTHS, goals, make_level

ENV_ID = "TextCraftText-v0"
LIMITS = (20, 50, 100)
"""Steps within which random actions are to win; the last is the registered limit."""


@dataclass(frozen=True)
class Config:
    """What to play."""

    levels: int = 1000
    """Levels of each depth, for the expert's path. They have no fold, so that each item of the depth is among them."""
    others: int = 200
    """Levels of the test fold of each depth, for random valid actions, and for the expert after 15 of these."""


@dataclass(frozen=True)
class Row:
    """One depth."""

    depth: int
    items: int
    levels: int
    different: int
    """Levels of which no earlier one has the same item and the same recipes."""
    won: int
    """Levels that the gold path wins within the registered limit."""
    unlisted: int
    """Commands of gold paths that were not among the valid actions at their turn, or that the game refused."""
    recipes: tuple[int, float, int]
    """Least, mean and most recipes of a level."""
    commands: tuple[int, float, int]
    """Least, mean and most commands of the gold path."""
    choices: tuple[int, float, int]
    """Least, mean and most valid actions along it."""
    planned: tuple[float, float]
    """Mean and greatest time of a plan, in milliseconds."""
    others: int
    random_won: tuple[int, ...]
    """Levels that random valid actions win within each of `LIMITS`."""
    taken_over: int
    """Levels that the expert wins within the limit after 15 random valid actions."""


def measured(depth: int, config: Config) -> Row:
    """Play the levels of a depth."""
    env, seen, won, unlisted = gym.make(ENV_ID, depth=depth), set(), 0, 0
    recipes, commands, choices, planned = [], [], [], []
    for seed in tqdm(range(config.levels), desc=f"depth {depth}", unit=" levels"):
        level = make_level(depth, seed)
        seen.add((level.item, frozenset(level.recipes)))
        recipes.append(len(level.recipes))
        start = time.thread_time()
        plan(level, {})
        planned.append(1000 * (time.thread_time() - start))
        played = play_gold_path(env, seed)
        won += played.won
        unlisted += played.unlisted + played.invalid
        commands.append(played.length)
        choices += [len(obs["valid_actions"]) for obs in played.observations]
    others = after_random(depth, config.others)
    return Row(
        *(depth, len(goals(depth, None)), config.levels, len(seen), won, unlisted),
        *(spread(recipes), spread(commands), spread(choices), (statistics.fmean(planned), max(planned))),
        *(config.others, *others),
    )


def after_random(depth: int, levels: int) -> tuple[tuple[int, ...], int]:
    """Return how many levels random valid actions win within each of `LIMITS`, and how many the expert wins after 15 of them."""
    rng = np.random.default_rng(0)

    def draw(obs: dict[str, tuple[str, ...]]) -> str:
        return obs["valid_actions"][rng.integers(len(obs["valid_actions"]))]

    env = gym.make(ENV_ID, depth=depth, fold="test", expert="off")
    played = [take_over(env, seed, LIMITS[-1], draw) for seed in range(levels)]
    wins = tuple(sum(each.won and len(each.observations) <= limit for each in played) for limit in LIMITS)
    env = gym.make(ENV_ID, depth=depth, fold="test", expert="replan")
    return wins, sum(take_over(env, seed, 15, draw).won for seed in range(levels))


def report(rows: list[Row]) -> str:
    """Return the tables in Markdown."""
    expert = table(
        (
            "depth",
            "items",
            "won",
            "different",
            "recipes told: least, mean, most",
            "commands",
            "valid actions",
            "a plan: mean, most",
        ),
        (
            (
                *(row.depth, row.items, f"{row.won} of {row.levels}", row.different),
                *("{}, {:.1f}, {}".format(*spread) for spread in (row.recipes, row.commands, row.choices)),
                "{:.2f}, {:.1f} ms".format(*row.planned),
            )
            for row in rows
        ),
    )
    others = table(
        ("depth", *(f"random valid actions: won in {limit} steps" for limit in LIMITS), "the expert after 15 of them: won"),
        ((row.depth, *(f"{won} of {row.others}" for won in (*row.random_won, row.taken_over))) for row in rows),
    )
    unlisted = sum(row.unlisted for row in rows)
    return (
        f"`{command()}`\n\n## The expert's path, on levels of no fold\n\n{expert}\n\n"
        f"{unlisted} of its commands were not among the valid actions at their turn, or were refused.\n\n"
        f"## On the test fold\n\n{others}"
    )


def main() -> int:
    """Measure, and write the tables; return 1 if the expert does not win a level."""
    config = options(Config, __doc__)
    rows = [measured(depth, config) for depth in DEPTHS]
    write("textcraft_levels", report(rows), {"config": asdict(config), "rows": list(map(asdict, rows))})
    return int(any(row.won < row.levels for row in rows))


if __name__ == "__main__":
    run(main)
