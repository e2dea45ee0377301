"""TextWorld's games: the expert on levels of each fold, and steps a second beside the official client.

``python benchmarks/textworld_games.py`` plays everything, makes the levels that are not there, and writes ``textworld_games.md``
and ``.json``. Seconds are those of one core: the interpreter runs in this process, so other programs on the machine do not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from helpers.experts import play_gold_path, take_over
from helpers.harness import by_turns, command, options, run, table, write
from helpers.scripts import random_scripts
from tqdm import tqdm

from gym_text.folds import FOLDS
from gym_text_policies.environments import environment_maker

GAMES = ("TextWorldCooking-v0", "TextWorldTreasureHunter-v0", "TextWorldCoinCollector-v0", "TextWorldText-v0")
DETOURS = (1, 3, 10, 30)
"""Random valid actions before the replanning expert takes over; level s has the (s % 4)-th number of them."""
FACTS = ("feedback", "description", "inventory", "admissible_commands", "score", "max_score", "won", "lost", "moves")


@dataclass(frozen=True)
class Config:
    """What to play."""

    games: tuple[str, ...] = GAMES
    """Environments, with their arguments."""
    levels: int = 8
    """Levels of train and dev, for the expert."""
    test_levels: int = 200
    """Levels of test, for the expert."""
    speed_levels: int = 5
    """Levels of the train fold of the first game, for the speed."""
    steps: int = 50
    """Random steps of each of them."""
    rounds: int = 3
    """Rounds of the speed; the best counts."""


@dataclass(frozen=True)
class ExpertRow:
    """The expert on the levels of one fold."""

    game: str
    fold: str
    levels: int
    won: int
    """Levels that the path wins."""
    steps: tuple[int, int, int]
    """Least, median and most steps of the paths."""
    invalid: int
    """Steps of the paths that were not valid."""
    most_actions: int
    """Most valid actions seen."""
    longest_text: int
    """Most characters of a text."""
    detours: int
    """Levels that random actions have not ended, in which the replanning expert takes over."""
    detours_won: int


def expert_row(game: str, fold: str, levels: int) -> ExpertRow:
    """Play the paths, and detours, of a fold."""
    env, planner = (environment_maker(game, fold=fold, expert=expert)().unwrapped for expert in ("path", "replan"))
    seen: list[dict[str, Any]] = []
    lengths, won, invalid, detours, detours_won = [], 0, 0, 0, 0
    for seed in tqdm(range(levels), desc=f"{game} {fold}", disable=None):
        played, rng = play_gold_path(env, seed), random.Random(seed)
        detour = take_over(planner, seed, DETOURS[seed % len(DETOURS)], lambda obs, rng=rng: rng.choice(obs["valid_actions"]))
        seen += [*played.observations, *detour.observations]
        lengths.append(played.length)
        won, invalid = won + played.won, invalid + played.invalid
        detours, detours_won = detours + (not detour.over), detours_won + (detour.won and not detour.over)
    lengths.sort()
    return ExpertRow(
        game,
        fold,
        levels,
        won,
        (lengths[0], lengths[levels // 2], lengths[-1]),
        invalid,
        max(len(obs["valid_actions"]) for obs in seen),
        max(len(text) for obs in seen for key, text in obs.items() if key != "valid_actions"),
        detours,
        detours_won,
    )


def official(env: gym.Env[Any, Any], seed: int, plans: bool) -> Callable[[str], object]:
    """Return the step function of the official client in a new game of a level."""
    import textworld

    game: Any = env.unwrapped
    client = textworld.start(
        str(game.level_file(game._level_seed(seed))), textworld.EnvInfos(**dict.fromkeys(FACTS, True), policy_commands=plans)
    )
    client.reset()
    step: Callable[[str], object] = client.step
    return step


def speeds(game: str, config: Config) -> dict[str, float]:
    """Return steps a second of each contender, all on the same levels with the same actions."""
    played = random_scripts(environment_maker(game, expert="off", max_episode_steps=-1)(), config.speed_levels, config.steps)
    envs = {expert: environment_maker(game, expert=expert, max_episode_steps=-1)() for expert in ("off", "path", "replan")}

    def ours(expert: str, seed: int) -> Callable[[str], object]:
        envs[expert].reset(seed=seed)
        return envs[expert].step

    starts: dict[str, Callable[[int], Callable[[str], object]]] = {
        "official client": lambda seed: official(envs["off"], seed, plans=False),
        "expert='off'": lambda seed: ours("off", seed),
        "expert='path'": lambda seed: ours("path", seed),
        "official client, with its policy": lambda seed: official(envs["off"], seed, plans=True),
        "expert='replan'": lambda seed: ours("replan", seed),
    }

    def play(start: Callable[[int], Callable[[str], object]]) -> float:
        seconds = 0.0
        for seed, actions in played:
            step = start(seed)
            began = time.process_time()
            for action in actions:
                step(action)
            seconds += time.process_time() - began
        return seconds

    seconds = by_turns({name: partial(play, start) for name, start in starts.items()}, config.rounds)
    steps = sum(len(actions) for _, actions in played)
    return {name: steps / min(rounds) for name, rounds in seconds.items()}


def report(rows: list[ExpertRow], rates: dict[str, float], game: str) -> str:
    """Return both tables."""
    lines = (
        (
            *(f"`{row.game}`", row.fold, f"{row.won} of {row.levels}", ", ".join(map(str, row.steps))),
            *(f"{row.detours_won} of {row.detours}", row.most_actions, row.longest_text),
        )
        for row in rows
    )
    columns = ("game", "fold", "path wins", "its steps: least, median, most", "won after a detour", "most valid actions")
    return "\n\n".join(
        (
            f"Made by `{command()}`.",
            table((*columns, "longest text"), lines),
            f"Steps in a second of one core, `{game}`, random valid actions:",
            table(("", "steps/s"), ((name, f"{rate:.0f}") for name, rate in rates.items())),
        )
    )


def main() -> None:
    """Play everything and write the results."""
    config = options(Config, __doc__)
    levels = {fold: config.test_levels if fold == "test" else config.levels for fold in FOLDS}
    rows = [expert_row(game, fold, levels[fold]) for game in config.games for fold in FOLDS]
    rates = speeds(config.games[0], config)
    record = {"config": asdict(config), "experts": [asdict(row) for row in rows], "steps_per_second": rates}
    write("textworld_games", report(rows, rates, config.games[0]), record)


if __name__ == "__main__":
    run(main)
