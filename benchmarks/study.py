"""The BabyAI study with the published design: five tasks x seeds from 200 on x variants of the prompt.

The results have standard errors and a plot. The variants are lines of ``study.yaml`` in this folder; change their ``model`` for
another. The study can be stopped at any time (Ctrl-C); the next run continues. The published study has 20 seeds a task:
``--episodes 20``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import harness
from helpers.harness import options, run, table

from gym_text.babyai.levels import TASKS
from gym_text_policies.engines.options import PLAY_OPTIONS, PlayOptions
from gym_text_policies.experiments import bench
from gym_text_policies.experiments.bench_table import versions
from gym_text_policies.experiments.variants import read_variants
from gym_text_policies.report.intervals import mean_and_error
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.table import Summary
from gym_text_policies.store import EpisodeStore

HERE = Path(__file__).parent
MEASURES: dict[str, Callable[[Summary], float]] = {
    "success": lambda episode: float(episode.outcome == "won"),
    "return": lambda episode: episode.total_reward,
    "length": lambda episode: float(episode.length),
    "tokens in": lambda episode: float(episode.tokens_in),
    "tokens out": lambda episode: float(episode.tokens_out),
}
Figures = dict[str, tuple[float | None, float | None]]
"""Measure -> mean and standard error."""


@dataclass(frozen=True)
class Config(PlayOptions):
    """Play variants of a policy on the tasks of BabyAIText, and compare them."""

    episodes: int = 3
    """Episodes of each task and variant."""
    first_seed: int = 200
    """Seed of the first episode of each task; the others follow it."""
    tasks: tuple[str, ...] = TASKS
    """Tasks of BabyAIText-v0."""
    variants: str = str(HERE / "study.yaml")
    """The variants: a YAML file, name -> options of load_policy."""
    folder: str = "runs/study"
    """Run folder. A second run continues there."""


def play(config: Config) -> EpisodeStore:
    """Play the episodes that are missing."""
    _, store = bench.run(
        bench.BenchConfig(
            folder=config.folder,
            environments=tuple(f"BabyAIText-v0?task={task}" for task in config.tasks),
            variants=config.variants,
            fold="none",
            episodes=config.episodes,
            llm_episodes=config.episodes,
            **{name: getattr(config, name) for name in PLAY_OPTIONS},
        )
    )
    return store


def group(config: Config, store: EpisodeStore) -> dict[str, dict[str, list[Summary]]]:
    """Return the study's episodes by variant and task."""
    seeds, groups = range(config.first_seed, config.first_seed + config.episodes), {}
    for name in ("random", *read_variants(config.variants), "gold (expert)"):
        groups[name] = {task: [] for task in config.tasks}
    for row in read_runs([store.folder]).variants:
        task = row.environment.rpartition("task=")[2]
        if row.policy in groups and task in config.tasks:
            groups[row.policy][task] = [episode for episode in row.episodes if episode.seed in seeds]
    return groups


def figures(episodes: Sequence[Summary]) -> Figures:
    """Return means and standard errors. Episodes that ended in an error are not counted."""
    played = [episode for episode in episodes if episode.error is None]
    return {name: mean_and_error([measure(episode) for episode in played]) for name, measure in MEASURES.items()}


def over_tasks(tasks: Sequence[Figures]) -> Figures:
    """Return the mean of the tasks' means, with the standard error of a mean of independent means."""
    found: Figures = {}
    for name in MEASURES:
        means = [task[name][0] for task in tasks]
        errors = [task[name][1] for task in tasks]
        mean = None if None in means else sum(means) / len(means)  # type: ignore[arg-type]
        error = None if None in errors else math.sqrt(sum(e * e for e in errors if e is not None)) / len(errors)
        found[name] = (mean, error)
    return found


def tabulate(config: Config, store: EpisodeStore) -> tuple[str, dict[str, Any]]:
    """Return the table in Markdown, and its rows as plain JSON."""
    lines = []
    rows: list[dict[str, Any]] = []
    by_variant = group(config, store)
    for name, tasks in by_variant.items():
        each = {task: figures(found) for task, found in tasks.items()}
        for task, row in {**each, "all": over_tasks(list(each.values()))}.items():
            some = [episode for other, found in tasks.items() if task in ("all", other) for episode in found]
            count = {"episodes": len(some), "errors": sum(episode.error is not None for episode in some)}
            rows.append({"task": task, "variant": name, **count, **{measure: list(pair) for measure, pair in row.items()}})
    for row in sorted(rows, key=lambda row: [*config.tasks, "all"].index(row["task"])):
        cells = [row["task"], row["variant"], str(row["episodes"]), str(row["errors"])]
        lines.append([*cells, *(shown(name, *row[name]) for name in MEASURES)])
    return table(("task", "variant", "episodes", "errors", *MEASURES), lines), {"rows": rows}


def shown(name: str, mean: float | None, error: float | None) -> str:
    """Return a figure with its standard error, as text."""
    digits = 2 if name in ("success", "return") else 1 if name == "length" else 0
    return "-" if mean is None else f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw each measure by variant, over all tasks, with standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [row for row in rows if row["task"] == "all"]
    figure, panels = pyplot.subplots(1, len(MEASURES), figsize=(3.2 * len(MEASURES), 3.2), layout="constrained", sharey=True)
    for panel, name in zip(panels, MEASURES, strict=True):
        means, errors = [row[name][0] or 0.0 for row in chosen], [row[name][1] or 0.0 for row in chosen]
        panel.barh([row["variant"] for row in chosen], means, xerr=errors, color="#4878a8", ecolor="#202020", capsize=3)
        panel.set_title(name)
        panel.locator_params(axis="x", nbins=4)  # five figures side by side leave room for four numbers
        panel.invert_yaxis() if panel is panels[0] else None
    figure.suptitle(f"BabyAI, {chosen[0]['episodes']} episodes a variant; bars: standard error")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def write(config: Config, store: EpisodeStore, folder: Path | None = None) -> str:
    """Write the table, its figures and the plot, by default among the committed results; return the table."""
    text, record = tabulate(config, store)
    settings = {key: value for key, value in dataclasses.asdict(config).items() if key not in ("folder", "variants")}
    record = {
        "config": settings,
        "variants": {name: row.policy.to_json() for name, row in read_variants(config.variants).items()},
        "versions": versions(),
        **record,
    }
    note = "Means ± standard errors over the episodes; `all`: the mean of the tasks' means."
    about = f"`python benchmarks/study.py --episodes {config.episodes}`"
    written = harness.write("study", f"{about}\n\n{text}\n\n{note}\n\n![by variant](study.png)", record, folder)
    plot(record["rows"], written / "study.png")
    return text


def main() -> None:
    """Play, then tabulate and plot."""
    config = options(Config, __doc__)
    write(config, play(config))


if __name__ == "__main__":
    run(main)
