"""`gym-text make-games`: make the levels of an environment that keeps levels in files, so that no episode waits for a level."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.folds import FOLDS
from gym_text_policies.environments import environment_maker, parse_environment


class LevelFiles(Protocol):
    """The levels of an environment, its attribute ``levels``."""

    def file(self, seed: int) -> Path:
        """Return the file of a level, which is made if it is not there."""


@dataclass(frozen=True)
class MakeGamesConfig:
    """Make the levels of one of TextWorld's games before they are played, and keep them where the environment looks for them."""

    environment: str
    """Id of the environment, with keyword arguments as in TextWorldCooking-v0?difficulty=gata-10."""
    episodes: int = 100
    """Episodes of each fold for which levels are made."""
    first_seed: int = 0
    """Seed of the first episode. The next episodes have the next seeds."""
    folds: tuple[str, ...] = ("train",)
    """Folds, of train, dev and test."""
    workers: int = 1
    """Processes that make games; each keeps one core busy."""


def run(config: MakeGamesConfig) -> str:
    """Make the levels that have no file yet, with a progress bar; return the folders of the files.

    Raises:
        UsageError: If the environment has no levels to make, or an option is out of its range.
    """
    check_int("episodes", config.episodes, 1, 1_000_000)
    check_int("first_seed", config.first_seed, 0, 2**62)
    check_int("workers", config.workers, 1, 256)
    jobs = [(levels, seed) for fold in config.folds for levels, seed in _wanted(config, fold)]
    tqdm = import_extra("tqdm", "bench").tqdm
    with ProcessPoolExecutor(min(config.workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        try:
            done = as_completed([pool.submit(levels.file, seed) for levels, seed in jobs])
            files = [future.result() for future in tqdm(done, total=len(jobs), unit="level", disable=None)]
        except BaseException:  # Ctrl-C as well: else all other levels would be made first
            pool.shutdown(cancel_futures=True)
            raise
    folders = sorted({str(file.parents[1]) for file in files})
    return f"{len(files)} levels are in\n" + "\n".join(folders)


def _wanted(config: MakeGamesConfig, fold: str) -> list[tuple[LevelFiles, int]]:
    """Return the levels of a fold with each of TextWorld's seeds once."""
    check_choice("folds", fold, FOLDS)
    if "fold" in parse_environment(config.environment)[1]:
        raise UsageError(f"environment: expected no fold, which --folds says; got {config.environment!r}.")
    game: Any = environment_maker(config.environment, fold=fold, expert="off")().unwrapped
    levels: LevelFiles | None = getattr(game, "levels", None)
    if levels is None:
        raise UsageError(f"environment: expected one that keeps its levels in files; {config.environment!r} does not.")
    seeds = range(config.first_seed, config.first_seed + config.episodes)
    return [(levels, number) for number in dict.fromkeys(map(game._level_seed, seeds))]
