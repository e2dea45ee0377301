"""Success of policies that look ahead, beside greedy play and at equal model calls, on the same levels of the test fold.

Each part has a start: an adapter that wins some of the levels, or the embedded model as it is. From there the policies play:
greedy, PUCT with the model's probabilities as prior, PUCT with a uniform prior, and best of n. For a uniform prior nobody is asked:
the policy random looks ahead, and a model call of its row is a state about which it could have asked. BabyAI's start is made by the
commands of ``reinforcement.py``, in a few minutes.

``python benchmarks/lookahead.py`` plays all parts, in about two hours of one core; names, as in ``python benchmarks/lookahead.py
goto pickup``, play single parts. Stored episodes are not played again. The table has all parts that were played in this call or an
earlier one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.harness import Levels, command, earlier, levels_of_rows, options, play_plan, run, table, write
from reinforcement import BABYAI, START, make

from gym_text.errors import check_choice
from gym_text_policies.records import Episode
from gym_text_policies.report.statistics import paired_tests, run_of, wilson_interval
from gym_text_policies.training.model.lora import environment_record

GREEDY = "greedy"
UNIFORM = "uniform prior"
BABYAI_START = f"runs/reinforcement/{START}"
MODEL_OPTIONS = {"dtype": "bfloat16", "max_cached_tokens": 98_304}
"""Eight long episodes of CookingWorld are kept, with all leaves: of less, the model would read some again and again."""
Settings = dict[str, Any]


def puct(simulations: int, **settings: Any) -> dict[str, Settings]:
    """Return a row of PUCT with the model's prior, by its name."""
    return {f"PUCT, {simulations} simulations": {"lookahead": "puct", "simulations": simulations, **settings}}


def best_of_n(simulations: int, **settings: Any) -> dict[str, Settings]:
    """Return a row that draws whole episodes with as many model calls, by its name."""
    return {f"best of n, {simulations} model calls": {"lookahead": "best_of_n", "simulations": simulations, **settings}}


def uniform(simulations: int, **settings: Any) -> dict[str, Settings]:
    """Return a row of PUCT with a uniform prior, by its name."""
    searching = {"model": "random", "lookahead": "puct", "simulations": simulations}
    return {f"PUCT, {UNIFORM}, {simulations} simulations": searching | settings}


def mixed(simulations: int, **settings: Any) -> dict[str, Settings]:
    """Return rows of PUCT with a prior that is made flatter, by their names."""
    ways = {"half the prior uniform": {"uniform_share": 0.5}, "prior at temperature 2": {"prior_temperature": 2.0}}
    return {
        f"PUCT, {name}, {simulations} simulations": {"lookahead": "puct", "simulations": simulations, **way, **settings}
        for name, way in ways.items()
    }


@dataclass(frozen=True)
class Part:
    """Levels, and who plays them."""

    title: str
    model: str
    """The start."""
    environments: tuple[str, ...]
    levels: int
    """Of each environment."""
    ways: Mapping[str, Settings]
    """The rows beside greedy play: their names, and the settings in which they differ from it. With ``episodes`` a row has fewer
    levels, the first ones."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all rows."""

    @property
    def variants(self) -> dict[str, Settings]:
        """The rows, as in a file of variants."""
        asked = {"model": self.model, "options": MODEL_OPTIONS, **self.settings}
        rows = {name: asked | way for name, way in ({GREEDY: {}} | dict(self.ways)).items()}
        return {name: {"model": "random"} | self.ways[name] if row["model"] == "random" else row for name, row in rows.items()}


def babyai(task: str, levels: int, ways: Mapping[str, Settings]) -> Part:
    """Return the part of a task of BabyAI."""
    return Part(f"BabyAI's start: {task}", BABYAI_START, (f"BabyAIText-v0?task={task}&expert=off",), levels, ways)


def untaught(title: str, environment: str, levels: int, searched: int) -> Part:
    """Return the part of the embedded model, as it is, in an environment: played greedily, and the first levels with a search."""
    ways = {**puct(32, episodes=searched), **mixed(32, episodes=searched), **uniform(32)}
    return Part(f"smollm2 as it is: {title}", "smollm2", (environment,), levels, ways, {"mode": "choose"})


LEARNT = {
    **puct(8, episodes=100),
    **puct(32),
    **best_of_n(32, episodes=20),
    **uniform(32, episodes=100),
}
"""Rows of the tasks that BabyAI's start has learnt."""
PARTS = {
    "goto": babyai("goto", 200, LEARNT),
    "pickup": babyai("pickup", 200, LEARNT),
    "cookingworld": Part(
        "CookingWorld's start",
        "benchmarks/adapters/cookingworld-start",
        ("CookingWorldText-v0?expert=off",),
        40,
        {**puct(32), **uniform(32)},
    ),
    "putnext": babyai("putnext", 24, {**puct(512, uniform_share=0.25), **uniform(512)}),
    "smollm2-goto": untaught("goto", "BabyAIText-v0?task=goto&expert=off", 16, 8),
    "smollm2-coin": untaught("CoinCollector", "CoinCollectorText-v0?expert=off", 24, 8),
}
"""By their names on the command line."""


def play(part: Part, folder: Path, num_envs: int) -> dict[str, Levels]:
    """Play what is missing of a part; return the episodes of each row. A level that two seeds play counts once."""
    _, record, store = play_plan(
        part.variants,
        folder=str(folder),
        environments=part.environments,
        baselines=(),
        episodes=part.levels,
        llm_episodes=part.levels,
        num_envs=num_envs,
    )
    return {name.partition(", looks ahead")[0]: levels for name, levels in levels_of_rows(store, record["rows"]).items()}


def figures(episodes: Levels) -> dict[str, Any]:
    """Return the figures of a row: its success, and means of its levels."""
    played = [episode for episode in episodes.values() if episode.error is None]
    won = sum(episode.outcome == "won" for episode in played)
    measures: dict[str, Callable[[Episode], float]] = {
        "return": lambda episode: episode.total_reward,
        "steps": lambda episode: episode.length,
        "model_calls": lambda episode: episode.model_calls if episode.looks_ahead else episode.length,
        "simulator_steps": lambda episode: episode.simulator_steps,
        "seconds": lambda episode: episode.seconds,
    }
    return {
        "levels": len(played),
        "errors": len(episodes) - len(played),
        "won": won,
        "success": won / len(played),
        "interval": wilson_interval(won, len(played)),
        **{name: sum(map(measure, played)) / len(played) for name, measure in measures.items()},
        "policy": dict(played[0].policy),
    }


def compared(row: Levels, other: Levels) -> dict[str, Any]:
    """Return how a row differs from another on the same levels: McNemar's test of wins, Wilcoxon's of returns."""
    tests = paired_tests([run_of(row)], [run_of(other)])
    wins, (gained, lost) = tests["success"], tests["success"].alone or (0, 0)
    return {"levels": wins.levels, "gained": gained, "lost": lost, "p": wins.p, "p_return": tests["return"].p}


def results(part: Part, played: Mapping[str, Levels]) -> dict[str, Any]:
    """Return the record of a part."""
    others = {"greedy": played[GREEDY], "uniform": next(row for name, row in played.items() if UNIFORM in name)}
    rows = [
        {"way": name, **figures(episodes), **{kind: compared(episodes, other) for kind, other in others.items()}}
        for name, episodes in played.items()
    ]
    return {"title": part.title, "environments": part.environments, "rows": rows, "ran_on": environment_record()}


def cells(row: Mapping[str, Any]) -> Iterator[object]:
    """Yield the cells of a row of the table."""
    low, high = row["interval"]
    yield from (row["way"], row["levels"], f"{row['success']:.2f} [{low:.2f}, {high:.2f}]", f"{row['return']:.2f}")
    yield from (f"{row['steps']:.1f}", f"{row['model_calls']:.0f}", f"{row['simulator_steps']:.0f}", f"{row['seconds']:.2g}")
    for kind, name in (("greedy", GREEDY), ("uniform", UNIFORM)):
        yield "" if name in row["way"] else f"{row[kind]['p']:.1g}"


def report(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the results in Markdown."""
    heads = ("policy", "levels", "success [95 %]", "return", "steps", "model calls", "simulator steps", "seconds")
    texts = []
    for name in (name for name in PARTS if name in parts):
        rows = table((*heads, "p, greedy", "p, uniform"), map(cells, parts[name]["rows"]))
        texts.append(f"## {parts[name]['title']}\n\n{rows}")
    note = (
        "Levels of the test fold: a row with fewer levels has the first of them, and p compares the levels that both rows have. "
        "Success has Wilson's interval. Model calls (states about which the model is asked), steps in copies of the game, and "
        "seconds of decisions are means of a level; in the row of a uniform prior nobody is asked, and its model calls are the "
        "states about which the model could have been asked. p: McNemar's exact test of wins, beside greedy play and beside the "
        "uniform prior. The model computes in bfloat16 on one thread. Other programs were at work on the machine, so seconds are "
        "rough. All settings are in the JSON file."
    )
    return "\n\n".join([*texts, note])


@dataclass(frozen=True)
class Config:
    """What to play."""

    names: tuple[str, ...] = field(default=(), metadata={"positional": True})
    """Parts to play; none: all. A wrong name is answered with the list."""
    folder: str = "runs/lookahead"
    """Run folder; each part has a folder in it."""
    levels: int = 0
    """Levels of each environment; 0: as many as the committed table has."""
    num_envs: int = 8
    """Episodes that run at once."""


def main() -> None:
    """Play parts, and write the table of all parts."""
    config = options(Config, __doc__)
    for name in config.names:
        check_choice("part", name, PARTS)
    parts = dict(earlier("lookahead").get("parts", {}))
    for name in config.names or PARTS:
        part = PARTS[name]
        if part.model == BABYAI_START and not Path(BABYAI_START).exists():
            folder = Path(BABYAI_START).parents[1]
            folder.mkdir(parents=True, exist_ok=True)
            make(BABYAI, "start", folder)
        part = dataclasses.replace(part, levels=config.levels or part.levels)
        parts[name] = results(part, play(part, Path(config.folder) / name, config.num_envs)) | {"command": command()}
        write("lookahead", report(parts), {"parts": {name: parts[name] for name in PARTS if name in parts}})


if __name__ == "__main__":
    run(main)
