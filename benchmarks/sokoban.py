"""Sokoban: the expert on levels of each size, random play and its speed, and how many lost positions the game recognises.

``python benchmarks/sokoban.py`` writes ``sokoban.md`` and ``.json``. Times are seconds of this thread.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from helpers.experts import play_gold_path, spread
from helpers.harness import command, options, run, table, write
from tqdm import tqdm

import gym_text  # noqa: F401  registers the environments
from gym_text.folds import fold_seed
from gym_text.sokoban.env import SokobanEnv
from gym_text.sokoban.expert import solve
from gym_text.sokoban.levels import SIZES, Size, make_level

ENV_ID = "SokobanText-v0"


@dataclass(frozen=True)
class Config:
    """What to play."""

    levels: int = 1000
    """Levels of the test fold of each size, for the expert."""
    random_levels: int = 200
    """Levels of the test fold of each size, for random valid moves."""


@dataclass(frozen=True)
class Row:
    """One size of levels."""

    size: str
    levels: int
    different: int
    """Levels of which no earlier one is equal, the player's place included."""
    won: int
    """Levels that the gold path wins within the registered limit."""
    moves: tuple[int, float, int]
    """Least, mean and most moves of the gold path."""
    pushes: tuple[int, float, int]
    """Least, mean and most pushes of it."""
    made: tuple[float, float]
    """Mean and greatest time to make a level, in milliseconds."""
    solved: tuple[float, float]
    """Mean and greatest time of the search, in milliseconds."""
    rate: float
    """Steps a second of random valid moves on one core, the starts of levels included."""
    random_won: float
    """Share of levels that random valid moves win within the limit."""
    random_failed: float
    """Share of levels in which random moves come to a position that the game recognises as lost."""
    unrecognised: float
    """Share of levels in which random moves reach the limit in a lost position that the game does not recognise."""
    refuted: tuple[float, float]
    """Mean and greatest time to search all of such a position, in milliseconds."""


def measured(size: Size, config: Config) -> Row:
    """Play the levels of a size."""
    env, seen, won, moves, pushes, made, solved = gym.make(ENV_ID, size=size, fold="test"), set(), 0, [], [], [], []
    for seed in tqdm(range(config.levels), desc=size, unit=" levels"):
        start = time.thread_time()
        level = make_level.__wrapped__(size, fold_seed("test", seed))
        middle = time.thread_time()
        solve(level.room, level.boxes, level.player)
        made, solved = [*made, middle - start], [*solved, time.thread_time() - middle]
        seen.add((level.room.floor, level.room.goals, level.boxes, level.player))
        played = play_gold_path(env, seed)
        won += played.won
        moves.append(played.length)
        pushes.append(sum(pushed(played.observations)))
    ended = list(random_ends(size, config.random_levels))
    refuted = [end.refuted for end in ended if end.refuted is not None]
    rate = sum(end.steps for end in ended) / sum(end.seconds for end in ended)
    success, failure = (statistics.fmean(getattr(end, name) for end in ended) for name in ("success", "failure"))
    return Row(
        *(size, config.levels, len(seen), won, spread(moves), spread(pushes), _time(made), _time(solved)),
        *(rate, success, failure, len(refuted) / config.random_levels, _time(refuted)),
    )


def pushed(observations: tuple[dict[str, str], ...]) -> Iterator[bool]:
    """Yield for each move of a won path whether it moved a box; the last move of a path always does."""
    drawings = [obs["text"].rpartition("\n")[0].translate(str.maketrans("@+", "-.")) for obs in observations]
    yield from (before != after for before, after in itertools.pairwise(drawings))
    yield True


class End(NamedTuple):
    """How an episode of random valid moves ended."""

    success: bool
    failure: bool
    steps: int
    seconds: float
    """Of the whole episode."""
    refuted: float | None
    """Seconds in which a search finds that the last position is lost."""


def random_ends(size: Size, levels: int) -> Iterator[End]:
    """Play at random; yield how each level ends."""
    env, rng = gym.make(ENV_ID, size=size, fold="test", expert="off"), np.random.default_rng(0)
    game = env.unwrapped
    assert isinstance(game, SokobanEnv)
    for seed in range(levels):
        began = time.thread_time()
        obs, over, steps = env.reset(seed=seed)[0], False, 0
        while not over:
            name = obs["valid_actions"][rng.integers(len(obs["valid_actions"]))]
            obs, _, terminated, truncated, info = env.step(game.text_spec.encode(name, obs))
            over, steps = terminated or truncated, steps + 1
        played, seconds = time.thread_time() - began, None
        if not terminated and game._level is not None:
            start = time.thread_time()
            if solve(game._level.room, game._boxes, game._player) is None:
                seconds = time.thread_time() - start
        yield End(info["success"], info["failure"], steps, played, seconds)


def _time(seconds: list[float]) -> tuple[float, float]:
    return (1000 * statistics.fmean(seconds), 1000 * max(seconds)) if seconds else (0.0, 0.0)


def report(rows: list[Row]) -> str:
    """Return the tables in Markdown."""
    expert = table(
        ("size", "won", "different", "moves: least, mean, most", "pushes", "level made: mean, most", "solved: mean, most"),
        (
            (
                *(row.size, f"{row.won} of {row.levels}", row.different),
                *("{}, {:.1f}, {}".format(*spread) for spread in (row.moves, row.pushes)),
                *("{:.1f}, {:.1f} ms".format(*times) for times in (row.made, row.solved)),
            )
            for row in rows
        ),
    )
    chance = table(
        (
            "size",
            "random: won",
            "failed",
            "at the limit, lost, not recognised",
            "search of such a position: mean, most",
            "steps a second",
        ),
        (
            (
                *(row.size, f"{row.random_won:.3f}", f"{row.random_failed:.3f}", f"{row.unrecognised:.3f}"),
                *("{:.1f}, {:.1f} ms".format(*row.refuted) if row.unrecognised else "", f"{row.rate:,.0f}"),
            )
            for row in rows
        ),
    )
    return f"`{command()}`\n\n## The expert on the test fold\n\n{expert}\n\n## Random valid moves\n\n{chance}"


def main() -> int:
    """Measure, and write the tables; return 1 if the expert does not win a level."""
    config = options(Config, __doc__)
    rows = [measured(size, config) for size in SIZES]
    write("sokoban", report(rows), {"config": asdict(config), "rows": list(map(asdict, rows))})
    return int(any(row.won < row.levels for row in rows))


if __name__ == "__main__":
    run(main)
