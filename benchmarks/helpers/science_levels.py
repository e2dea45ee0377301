"""ScienceWorld's 30 tasks as they are published: who plays, the official score of each episode, and the table by task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gym_text.science_world.tasks import TASKS, task_and_variation
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.config import PolicyConfig, settings_of
from gym_text_policies.records import Episode
from gym_text_policies.report.statistics import DRAWS, percentiles
from gym_text_policies.run.plan import EXPERT, PlanRow, label_of
from gym_text_policies.run.play import EpisodeOptions, open_run, versions
from gym_text_policies.run.progress import Progress

from .harness import table

CHANCE = ("random", *(f"random, seed {seed}" for seed in (1, 2)))
"""Chance plays each level three times."""
FIGURES = ("score", "strict", "success")
"""The official score before a loss, from 0 to 100; the same with 0 for a lost task; the share of levels that are won."""


def policy_of(model: str, options: Mapping[str, Any]) -> PolicyConfig:
    """Return how a model plays: as an adapter was trained, else in choose with the template chat, which lists no actions.

    In choose it looks for the most probable action alone, which takes a fraction of the time among a hundred.
    """
    if model.startswith("random"):
        return PolicyConfig("random", seed=int(model.rpartition(" ")[2]) if "seed" in model else None)
    config = PolicyConfig(model)
    if not config.asks_model:
        return config
    known = settings_of(model)
    asked = {} if known else {"strategy": "chat", "history": "all", "mode": "choose"}
    alone = {"probabilities": False} if {**known, **asked}.get("mode") == "choose" else {}
    return PolicyConfig(model, options=options, **asked, **alone)


def scores(episode: Episode) -> tuple[float, float]:
    """Return the score, from 0 to 100, that an episode has reached, and the same with 0 for a lost one.

    The engine sets the score of a lost task to -100. SwiftSage's code counts the score before the action that loses. The return of
    this environment is 0 then.
    """
    before = sum(step.reward for step in episode.steps[:-1])
    return 100 * (before if episode.outcome == "lost" else episode.total_reward), 100 * episode.total_reward


def figures(episodes: Iterable[Episode]) -> dict[str, Any]:
    """Return the figures of one policy: by task, and the means over tasks. An episode that ended in an error is only counted."""
    episodes = list(episodes)
    played = [episode for episode in episodes if episode.error is None]
    levels: dict[int, list[tuple[float, ...]]] = {}
    for episode in played:
        assert episode.level is not None
        levels.setdefault(episode.level, []).append((*scores(episode), float(episode.outcome == "won")))
    by_task: dict[str, list[Any]] = {}
    for level in sorted(levels):  # in the order of the tasks
        by_task.setdefault(task_and_variation(level)[0], []).append(np.mean(levels[level], axis=0))
    steps, seconds = (sum(getattr(episode, name) for episode in played) for name in ("length", "seconds"))
    record: dict[str, Any] = {"levels": len(levels), "episodes": len(played), "errors": len(episodes) - len(played)}
    record |= {name: sum(episode.outcome == name for episode in played) for name in ("won", "lost", "truncated")}
    record |= {"steps": steps / len(played), "seconds_per_step": seconds / steps}
    for place, name in enumerate(FIGURES):
        values = [[float(level[place]) for level in found] for found in by_task.values()]
        record |= {name: float(np.mean([np.mean(found) for found in values])), f"{name}_interval": interval(values)}
    means = {task: dict(zip(FIGURES, np.mean(found, axis=0).tolist(), strict=True)) for task, found in by_task.items()}
    return record | {"tasks": {task: {"levels": len(by_task[task]), **row} for task, row in means.items()}}


def interval(values: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of the tasks' means, by a bootstrap over the levels within each task.

    Of n levels of a task n - 1 are drawn, with replacement. With so few levels the variance would be too small otherwise (Rao and
    Wu 1988). If a task has a single level, the means of the tasks are drawn instead; that interval is too wide for these tasks.
    None if there is a single task then.
    """
    if min(map(len, values)) < 2:
        values = [[float(np.mean(found)) for found in values]]
    if len(values[0]) < 2:
        return None
    rng = np.random.default_rng(0)
    drawn = [np.array(found)[rng.integers(len(found), size=(DRAWS, len(found) - 1))].mean(axis=1) for found in values]
    return percentiles(np.mean(drawn, axis=0))


def play(
    models: Iterable[str], environment: str, variations: int, folder: str, options: Mapping[str, Any], engine: EpisodeOptions
) -> dict[str, Any]:
    """Play what is missing, and return the figures of each policy, as far as it was played without an error; Ctrl-C ends the play.

    The order is variation 1 of all tasks, variation 2 of all, and so on: a run that is stopped is a balanced sample.

    Args:
        models: Who plays; `random` stands for `CHANCE`.
        environment: ScienceWorld with its arguments, among them `task=all`.
        variations: Variations of each task; all where there are fewer.
        folder: Run folder; a second run goes on.
        options: Options of the language models' backend.
        engine: How episodes are played.
    """
    names = [name for model in models for name in (CHANCE if model == "random" else (model,))]
    plan, seeds = [], levels_of(environment, variations)
    for name in names:
        arguments = {"fold": "test", "expert": "path" if name == "gold" else "off"}  # its path takes seconds
        plan.append(PlanRow(name, environment, policy_of(name, options), seeds, arguments))
    with open_run(folder, {"benchmark": "science_world", "fold": "test"}, plan, engine) as run:
        try:
            run.play(Progress())
        except KeyboardInterrupt:
            print("Stopped. The table has what was played; the same command goes on.")
        found: dict[str, list[Episode]] = {}
        for row in run.rows:
            name = row.plan.label
            label = "random" if name in CHANCE else label_of(name).rpartition("/")[2]
            found.setdefault(label, []).extend(run.episodes(row))
        about = {"options": dict(options), "versions": versions()}
        return {label: figures(episodes) | about for label, episodes in found.items() if any_played(label, episodes)}


def any_played(label: str, episodes: Sequence[Episode]) -> bool:
    """Return whether a policy has an episode without an error; warn if all of its episodes ended in one."""
    if episodes and all(episode.error for episode in episodes):
        logging.warning(
            "%s: expected an episode without an error; all %d ended in one. The table leaves the policy out. The first error: %s",
            *(label, len(episodes), episodes[0].error),
        )
        return False
    return bool(episodes)


def levels_of(environment: str, variations: int) -> list[int]:
    """Return the seeds of the first variations of all tasks in the fold test, where two tasks have fewer than six."""
    with environment_maker(environment, fold="test")() as env:
        tasks = [task_and_variation(env.get_wrapper_attr("level_of")(seed))[0] for seed in range(30 * variations)]
    return [seed for seed, task in enumerate(tasks) if tasks[:seed].count(task) < variations]


def lines(record: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table: a row for each task, and the means; a column for each policy."""
    order = sorted(record, key=lambda name: (EXPERT in name, "random" not in name, name))
    columns = [record[name] for name in order]
    rows = [(task, *(_cell(column["tasks"].get(task)) for column in columns)) for task in TASKS.values()]
    for title, name, factor in (
        ("**mean score**", "score", 1),
        ("a lost task counts 0", "strict", 1),
        ("success, %", "success", 100),
    ):
        rows.append((title, *(f"{factor * column[name]:.1f}{_interval(column, name, factor)}" for column in columns)))
    rows.append(("tasks", *(str(len(column["tasks"])) for column in columns)))
    for title in ("levels", "episodes", "won", "lost", "truncated", "errors"):
        rows.append((title, *(str(column[title]) for column in columns)))
    rows.append(("steps of an episode", *(f"{column['steps']:.0f}" for column in columns)))
    yield table(("task", *order), rows)
    yield "\nScore and, in brackets, success. Episodes end after {} steps.".format("/".join({str(c["limit"]) for c in columns}))


def _cell(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else f"{row['score']:.0f} ({100 * row['success']:.0f} %)"


def _interval(row: Mapping[str, Any], name: str, factor: int) -> str:
    ends = row[f"{name}_interval"]
    return "" if ends is None else f" [{factor * ends[0]:.1f}, {factor * ends[1]:.1f}]"
