"""Our policies in benchmarks as others publish them: on the same levels, with the same steps, counted in the same way.

``python benchmarks/published.py four`` plays four games of TextWorldExpress as in "Behavior Cloned Transformers are Neurosymbolic
Reasoners" (EACL 2023, https://arxiv.org/abs/2210.07382), and writes ``results/published_four.md`` and ``.json``. A call plays the
games that ``--games`` names, and keeps the stored figures of the others.

``python benchmarks/published.py scienceworld`` plays ScienceWorld's 30 tasks, and writes ``results/published_scienceworld.md`` and
``.json``. A call plays the policies that ``--models`` names, and keeps the stored figures of the others. Chance and the expert take
half an hour, a language model some hours.

``python benchmarks/published.py tales`` plays the sixteen tasks of TextWorldExpress in TALES (https://arxiv.org/abs/2504.14128) in
the same way, and writes ``results/published_tales.md`` and ``.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import science_levels, tales_levels
from helpers.harness import Levels, command, earlier, levels_of_rows, options, play_plan, run, table, with_argument, write

from gym_text.errors import check_choice
from gym_text_policies.records import Episode
from gym_text_policies.report.statistics import mean, return_interval
from gym_text_policies.report.table import interval, number
from gym_text_policies.run.play import EpisodeOptions
from gym_text_policies.training.model.lora import environment_record

FOUR_GAMES = {
    "Arithmetic": "ArithmeticText-v0",
    "MapReader": "MapReaderText-v0",
    "Sorting": "SortingText-v0",
    "Commonsense": "CommonsenseText-v0?num_locations=1&num_items_to_put_away=1",
}
"""The paper's levels of Commonsense have one room and one thing; the other games have the engine's parameters."""
MODULES = {"Arithmetic": "calculator", "MapReader": "navigator", "Sorting": "sorter", "Commonsense": "knowledge"}
"""The symbolic module of each game."""
FOUR_PUBLISHED = {
    "T5-base (220M), a model for each game": (0.50, 0.71, 0.73, 0.895),
    "the same with symbolic modules": (1.00, 1.00, 0.98, 0.97),
}
"""Mean scores of the paper's table; a lost game counts 0."""


@dataclass(frozen=True)
class Config:
    """What to play."""

    part: str = field(default="four", metadata={"positional": True})
    """Whose benchmark: four (games of TextWorldExpress), scienceworld, or tales."""
    models: tuple[str, ...] | None = None
    """Who plays. By default in scienceworld random, gold, its adapter and smollm2; in four the adapter of all worlds, and always
    random and gold; in tales random, gold, smollm2 and the adapter of all worlds."""
    games: tuple[str, ...] = tuple(FOUR_GAMES)
    """Which of the four games."""
    modules: bool = False
    """Whether the four games are played with their symbolic modules."""
    levels: int = 100
    """Levels of each of them, the first of the fold test; of TALES's tasks 1, 6 or 11 levels, those it may have played."""
    ahead_levels: int = 100
    """Levels that the adapter plays once more, looking ahead by 16 simulations; 0: none."""
    variations: int = 5
    """Variations of each task of ScienceWorld, the first of the fold test; all where there are fewer."""
    steps: int = 100
    """Most steps of an episode of ScienceWorld."""
    simplifications: str = ""
    """Of ScienceWorld: easy, or names with commas between."""
    folder: str = "runs/published"
    """Folder of each part's run folder; a second run goes on."""
    dtype: str = "bfloat16"
    """Numbers with which a language model computes: bfloat16 or float32."""
    num_envs: int = 8
    """Episodes that run at once in a process."""
    workers: int = 0
    """Processes that play, each with a model of its own; 0: this process alone."""

    def __post_init__(self) -> None:
        check_choice("part", self.part, tuple(PARTS))
        for game in self.games:
            check_choice("games", game, tuple(FOUR_GAMES))


def four(config: Config) -> None:
    """Play the four games, and write the results."""
    games = four_games(config.modules)
    rows: dict[str, dict[str, Any]] = {}
    for model in config.models or ("adapters/all-worlds-sft",):
        row = {"model": model, "dtype": config.dtype}
        name = Path(model).name
        rows[name] = row | {"episodes": config.levels}
        rows[f"{name} †"] = row | {"lookahead": "puct", "simulations": 16, "episodes": config.ahead_levels}
    played: dict[str, Any] = {"num_envs": config.num_envs, "workers": config.workers, "episodes": config.levels}
    played |= {"folder": f"{config.folder}/four", "environments": tuple(games[game] for game in config.games)}
    _, record, store = play_plan(rows, baselines=("random", "gold"), **played)
    known = earlier("published_four").get("scores", {})
    for name, levels in levels_of_rows(store, record["rows"]).items():
        name += ", with symbolic modules" * config.modules
        known[name] = known.get(name, {}) | {game: row for game, row in scores(levels, games).items() if row["levels"]}
    found = {"published": FOUR_PUBLISHED, "scores": known, "dtype": config.dtype, "ran_on": environment_record()}
    write("published_four", "\n".join(four_lines(known)), found | {"command": command()})


def four_games(modules: bool) -> dict[str, str]:
    """Return the environments of the four games, maybe each with its module."""
    return {game: with_argument(name, "modules", MODULES[game]) if modules else name for game, name in FOUR_GAMES.items()}


def scores(levels: Levels, games: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return a policy's figures in each game: the mean score, in which a lost game counts 0, and the mean return."""
    found = {}
    for game, name in games.items():
        own = [episode for (environment, _), episode in levels.items() if environment == name and episode.error is None]
        counted = [max(0.0, episode.total_reward) for episode in own]
        found[game] = {"score": mean(counted), "interval": return_interval(counted, (0.0, 1.0)), **_ends(own)}
    return found


def _ends(episodes: Iterable[Episode]) -> dict[str, Any]:
    episodes = list(episodes)
    ends = {end: sum(episode.outcome == end for episode in episodes) for end in ("won", "lost", "truncated")}
    returns, lengths = [episode.total_reward for episode in episodes], [episode.length for episode in episodes]
    return {"return": mean(returns), "steps": mean(lengths), "levels": len(episodes), **ends}


def four_lines(scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterable[str]:
    """Yield the tables: the scores beside those that are published, and how the games ended."""
    lines = [(f"{name}, published", *(f"{score:.3g}" for score in published)) for name, published in FOUR_PUBLISHED.items()]
    for name, games in scores.items():
        cells = (_score(games.get(game)) for game in FOUR_GAMES)
        lines.append((name, *cells))
    yield table(("mean score; a lost game counts 0", *FOUR_GAMES), lines)
    yield ""
    ends = "{won}, {lost}, {truncated} of {levels}; {return:.2f}; {steps:.1f}"
    lines = [
        (name, *(ends.format(**games[game]) if game in games else "-" for game in FOUR_GAMES)) for name, games in scores.items()
    ]
    yield table(("won, lost, truncated; return, where a lost game counts -1; steps", *FOUR_GAMES), lines)


def _score(row: Mapping[str, Any] | None) -> str:
    return "-" if row is None else number(row["score"], ".3f") + interval(row["interval"], ".2f")


def scienceworld(config: Config) -> None:
    """Play ScienceWorld's tasks, and write the results."""
    models = config.models or ("random", "gold", "benchmarks/adapters/scienceworld-sft", "smollm2")
    engine = EpisodeOptions(num_envs=config.num_envs, workers=config.workers)
    environment, ending = f"ScienceWorldText-v0?task=all&max_episode_steps={config.steps}", ""
    if config.simplifications:
        environment = with_argument(environment, "simplifications", config.simplifications)
        ending = f", {config.simplifications}"
    folder = f"{config.folder}/scienceworld{config.simplifications}"
    found = science_levels.play(models, environment, config.variations, folder, {"dtype": config.dtype}, engine)
    about = {"limit": config.steps, "simplifications": config.simplifications}
    record = earlier("published_scienceworld") | {f"{name}{ending}": row | about for name, row in found.items()}
    write("published_scienceworld", "\n".join(science_levels.lines(record)), record)


def tales(config: Config) -> None:
    """Play TALES's tasks of TextWorldExpress, and write the results."""
    models = config.models or ("random", "gold", "smollm2", "adapters/all-worlds-sft")
    engine = EpisodeOptions(num_envs=config.num_envs, workers=config.workers)
    found = tales_levels.play(models, config.levels, f"{config.folder}/tales", {"dtype": config.dtype}, engine)
    record = earlier("published_tales") | found
    write("published_tales", "\n".join(tales_levels.lines(record)), record)


PARTS: dict[str, Callable[[Config], None]] = {"four": four, "scienceworld": scienceworld, "tales": tales}


def main() -> None:
    """Play, and write the results."""
    config = options(Config, __doc__)
    PARTS[config.part](config)


if __name__ == "__main__":
    run(main)
