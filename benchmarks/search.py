"""Compare optimisers of a linear policy on MountainCarContinuous at equal numbers of evaluations.

``python benchmarks/search.py`` runs the searches that are missing in ``--folder``, and writes ``search.md`` and ``search.json``. It
can be stopped at any time; the next run continues. ``--rows hybrid numeric semantic`` adds the language model, which needs minutes
of a core for each search; ``search.json`` has the seconds.
"""

from __future__ import annotations

import itertools
import logging
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from helpers.harness import options, run, table, write

from gym_text.errors import GymTextError
from gym_text.folds import fold_seed
from gym_text_policies.report.statistics import iqm
from gym_text_policies.report.table import interval, number
from gym_text_policies.search import SearchConfig, search
from gym_text_policies.search.evaluations import Evaluation, Evaluator, best, open_evaluations

BUDGETS = (100, 400)
PUBLISHED = (
    ("gpt-4o, numeric (ProPS)", "87.21 ± 29.28"),
    ("gpt-4o, semantic (ProPS)", "89.16 ± 29.72"),
    ("SAC", "86.65"),
    ("PPO", "78.16"),
)
"""Mean and standard deviation over 10 runs, as published for 3 parameters and 400 evaluations, the optimum told to the model:
Prompted Policy Search, 2025, https://arxiv.org/abs/2511.21928; SAC and PPO as its table has them."""
SHAPES = {3: {"bias": True, "bounds": (-6.0, 6.0)}, 2: {"bias": False, "bounds": (-7.0, 7.0)}}
MODEL = {"reasons": False, "buffer_size": 10, "proposals_per_prompt": 16}
"""How the language model is asked. It makes several proposals from one prompt, as in OPRO (https://arxiv.org/abs/2309.03409)."""
ALONE = {"optimiser": "model", "warmup_evaluations": 20, **MODEL}
HYBRID = {"optimiser": "model then cma", "prompt": "numeric", "warmup_evaluations": 120, "refine_at": 152, **MODEL}


@dataclass(frozen=True)
class Config:
    """Search with each optimiser and several seeds, and compare the best policies found."""

    folder: str = "runs/search-benchmark"
    """Folder of the searches."""
    seeds: int = 10
    """Number of searches with each optimiser."""
    model_seeds: int = 3
    """Number of searches with the language model alone."""
    rows: tuple[str, ...] = ("random", "cma", "random then cma", "gp", "without")
    """Optimisers to run now. The tables also have earlier runs. The language model's are hybrid, numeric, semantic."""
    model: str = "smollm2"
    """The language model."""
    test_rollouts: int = 100
    """Rollouts of the best policy, on seeds that no search has seen."""


@dataclass(frozen=True)
class Row:
    """An optimiser, with a number of parameters and a number of evaluations."""

    name: str
    label: str
    size: int
    budget: int
    settings: tuple[tuple[str, Any], ...] = ()
    """Fields of `SearchConfig`."""

    def seeds(self, config: Config) -> range:
        """Return the seeds of its searches."""
        return range(config.model_seeds if self.name in ("numeric", "semantic") else config.seeds)

    def search(self, config: Config, seed: int) -> SearchConfig:
        """Return the search of a seed."""
        folder = Path(config.folder) / f"{self.size}" / self.key / f"{seed}"
        settings: dict[str, Any] = {**SHAPES[self.size], **dict(self.settings)}
        return SearchConfig(
            folder=str(folder),
            seed=seed,
            evaluations=self.budget,
            model=config.model,
            **settings,
        )

    @property
    def key(self) -> str:
        """Name of its folder. If the optimiser does not depend on the budget, all budgets share a folder."""
        return f"{self.name}-{self.budget}" if " then " in self.name else self.name


def all_rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for size in SHAPES:
        for budget in BUDGETS:
            yield Row("random", "random", size, budget, (("optimiser", "random"),))
            yield Row("cma", "CMA-ES", size, budget, (("optimiser", "cma"),))
            yield Row("gp", "Gaussian process", size, budget, (("optimiser", "gp"),))
            then = "random then cma"
            yield Row(then, "random, then CMA-ES", size, budget, (("optimiser", then),))
    for budget, prompt in itertools.product(BUDGETS, ("numeric", "semantic")):
        yield Row(prompt, f"smollm2, {prompt}", 3, budget, tuple({"prompt": prompt, **ALONE}.items()))
    without = {"optimiser": "random then cma", "refine_at": HYBRID["refine_at"]}
    yield Row("without", "random (152), CMA-ES: the next without the model", 3, 400, tuple(without.items()))
    yield Row("hybrid", "random (120), smollm2 (32), CMA-ES", 3, 400, tuple(HYBRID.items()))


def search_all(config: Config) -> None:
    """Run the missing searches of the chosen rows."""
    for row in [row for row in all_rows() if row.name in config.rows]:
        for seed in row.seeds(config):
            try:
                found = search(row.search(config, seed))
            except GymTextError as error:
                logging.warning("%s, seed %d: %s", row.label, seed, error)
                continue
            logging.info(
                "%s, %d parameters, %d evaluations, seed %d: %.2f", row.label, row.size, row.budget, seed, found.best.value
            )


def measured(config: Config, row: Row) -> list[dict[str, Any]]:
    """Return the figures of each finished search of a row, within its budget."""
    found = []
    for seed in row.seeds(config):
        settings = row.search(config, seed)
        if not (Path(settings.folder) / "evaluations.jsonl").is_file():
            continue
        with open_evaluations(settings.folder, settings.identity()) as store:  # an error where the search was another one
            history = list(store)[: row.budget]
        if len(history) == row.budget:
            found.append({"seed": seed, **figures(config, settings, history)})
    return found


def figures(config: Config, settings: SearchConfig, history: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the value of the best policy, on the search's rollouts and on test rollouts, and counts of the proposals."""
    top = best(history)
    seeds = tuple(fold_seed("test", seed) for seed in range(config.test_rollouts))
    bounds = settings.bounds[0], settings.bounds[1]
    evaluator = Evaluator(settings.environment, seeds, bias=settings.bias, bounds=bounds)
    (rollouts,) = evaluator([top.parameters])
    evaluator.close()
    sources = [evaluation.proposal.source for evaluation in history]
    return {
        "value": top.value,
        "test": float(np.mean([rollout.total_reward for rollout in rollouts])),
        "parameters": list(top.parameters),
        "evaluation": top.index,
        "sources": {source: sources.count(source) for source in dict.fromkeys(sources)},
        "seconds": sum(evaluation.proposal.seconds for evaluation in history),
        "tokens_in": sum(evaluation.proposal.tokens_in for evaluation in history),
        "tokens_out": sum(evaluation.proposal.tokens_out for evaluation in history),
    }


def statistics(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, median and interquartile mean, with 95 % intervals of 10,000 bootstrap samples over the searches."""
    array = np.array(values)
    drawn = array[np.random.default_rng(0).integers(len(array), size=(10_000, len(array)))]
    result: dict[str, Any] = {}
    for name, of in (("mean", np.mean), ("median", np.median), ("iqm", iqm)):
        result[name] = float(of(array))
        result[f"{name}_interval"] = [float(v) for v in np.percentile(of(drawn, axis=1), [2.5, 97.5])]
    return result


def tabulate(config: Config) -> tuple[str, list[dict[str, Any]]]:
    """Return the table in Markdown, and its rows."""
    about = [
        "`python benchmarks/search.py`: MountainCarContinuous-v0, a linear policy, 20 rollouts an evaluation; the best policy that",
        f"each search found. Test: that policy on {config.test_rollouts} seeds that no search has seen. IQM: mean of the middle",
        "half of the searches. Intervals: 95 %, bootstrap over the searches. CMA-ES refines from the best proposal that solved an",
        "episode: an idea from two failures among the seeds of the table (0 and 1), tried only on seeds 100 to 109 and 200 to 229.",
        "These also chose where it takes over (after half the evaluations; after 152 in the two rows that say so) and its first",
        "step (0.05 of the range); for 152, 40 worthless proposals stood in for the model's. Rows without figures were not run.",
    ]
    lines, rows = [], []
    for row in all_rows():
        found = measured(config, row)
        if not found:
            lines.append((row.size, row.budget, row.label, 0, *"-----"))
            continue
        own, test = statistics([f["value"] for f in found]), statistics([f["test"] for f in found])
        bounds = {n: tuple(own[f"{n}_interval"]) if len(found) > 1 else None for n in ("mean", "median", "iqm")}
        cells = [number(own[n], ".1f") + interval(bounds[n], ".1f") for n in bounds]
        cells += [f"{test['mean']:.1f}", f"{test['iqm']:.1f}"]
        lines.append((row.size, row.budget, row.label, len(found), *cells))
        record = {**{k: v for k, v in asdict(row).items() if k != "settings"}, "settings": dict(row.settings)}
        rows.append({**record, "own": own, "test": test, "searches": found})
    lines += [(3, 400, f"published: {label}", 10, value, *"----") for label, value in PUBLISHED]
    columns = ("parameters", "evaluations", "optimiser", "searches", "mean [95 %]", "median [95 %]", "IQM [95 %]")
    return "\n".join([*about, "", table((*columns, "test, mean", "test, IQM"), lines)]), rows


def main() -> None:
    """Search, print and write the tables."""
    config = options(Config)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    search_all(config)
    text, rows = tabulate(config)
    packages = {name: version(name) for name in ("gymnasium", "numpy", "cma", "scikit-learn", "torch", "transformers")}
    settings = {key: value for key, value in asdict(config).items() if key not in ("folder", "rows")}
    record = {"config": settings, "python": platform.python_version(), "versions": packages, "rows": rows}
    write("search", text, record)


if __name__ == "__main__":
    run(main)
