"""TALES's sixteen tasks of TextWorldExpress: the levels that TALES may have played, the best score of each, and the tables.

Tasks, seeds and score are those of https://github.com/microsoft/tale-suite (MIT): `tales/textworld_express/twx_data.py` and
`twx_env.py`, `benchmark.py`. A game that ends before 100 steps begins again, and the best score of all counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gym_text_policies.environments import make_environment
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.records import Episode
from gym_text_policies.report.statistics import mean
from gym_text_policies.run.plan import EXPERT, PlanRow, label_of
from gym_text_policies.run.play import EpisodeOptions, open_run, versions
from gym_text_policies.run.progress import Progress

from .harness import table, with_argument
from .science_levels import interval

STEPS = 100
SIMON = "SimonSays{}Text-v0?game_length={}&num_distractors=4{}"
TASKS = {
    "CookingWorld": "CookingWorldText-v0?num_locations=1&num_distractor_items=5&include_doors=False&limit_inventory_size=False",
    "TextWorldCommonsense": "CommonsenseText-v0?num_locations=1&num_items_to_put_away=1",
    "CoinCollector": "CoinCollectorText-v0?num_locations=1&num_distractor_items=5&limit_inventory_size=False",
    "Arithmetic": "ArithmeticText-v0",
    "MapReader": "MapReaderText-v0?num_locations=2&max_distance_apart=1&max_distractor_items_per_location=2",
    "Sorting": "SortingText-v0",
    **{f"SimonSays{length}": SIMON.format("", length, "") for length in (10, 50, 100)},
    **{f"SimonSaysWithMemory{length}": SIMON.format("Memory", length, "") for length in (10, 50, 100)},
    **{f"SimonSaysWithMemory{length}Verbose": SIMON.format("Memory", length, "&verbose=True") for length in (10, 50, 100)},
    "PeckingOrder": "PeckingOrderText-v0",
}
"""TALES's name of a task -> the environment with TALES's parameters; what is left out is the registered value."""
LEVELS = {"level 0": (0,), "levels 1 to 5": (1, 2, 3, 4, 5), "levels 61 to 65": (61, 62, 63, 64, 65)}
"""Levels of the test fold that TALES may have played: its code plays level 0 unless told otherwise; its data set says seeds 1 to 5
for earlier models and 202411061 to 202411065 for later ones, of which the last three digits are the level."""
PUBLISHED = {"Llama-3.2-1B-Instruct": 19.0, "Llama-3.2-3B-Instruct": 42.0, "Qwen2.5-7B-Instruct": 45.6, "gpt-4o": 80.6, "o3": 91.9}
"""Of 100, from the table of https://microsoft.github.io/tale-suite."""
CHANCE = 5
"""Plays of each level by random valid actions."""

Scores = dict[str, dict[str, float]]
"""Task -> level -> the best score that was reached, from 0 to 1. Levels are strings, as in JSON."""


def environment(task: str) -> str:
    """Return the name of a task's environment, with TALES's limit."""
    return with_argument(TASKS[task], "max_episode_steps", STEPS)


def best(episode: Episode) -> float:
    """Return the best score that an episode reached; a lost game keeps what it had."""
    return max(0.0, *np.cumsum([step.reward for step in episode.steps]).tolist())


def chance(task: str, level: int, seed: int) -> float:
    """Return the best score of random valid actions in 100 steps; a game that ends begins again."""
    env, rng = make_environment(environment(task), fold="test", expert="off"), np.random.default_rng((level, seed))
    score, over, spec = 0.0, True, env.get_wrapper_attr("text_spec")
    for _ in range(STEPS):
        if over:
            obs, info = env.reset(seed=level)
        action = str(rng.choice(spec.names(obs)))
        obs, _, terminated, truncated, info = env.step(spec.encode(action, obs))
        score, over = max(score, info["score"]), terminated or truncated
        if info["success"]:
            break
    env.close()
    return score


def play(models: Iterable[str], count: int, folder: str, options: Mapping[str, Any], engine: EpisodeOptions) -> dict[str, Any]:
    """Play what is missing, and return the scores of each policy.

    A greedy policy plays each level once: if it began again, it would play the same.

    Args:
        models: Who plays; `random` is `chance`.
        count: Levels of each task, the first of `LEVELS`.
        folder: Run folder; a second run goes on.
        options: Options of the language models' backend.
        engine: How episodes are played.
    """
    levels = [level for some in LEVELS.values() for level in some][:count]
    found: dict[str, Scores] = {}
    plan = []
    for model in models:
        if model == "random":
            found[model] = {task: {str(n): mean([chance(task, n, k) for k in range(CHANCE)]) for n in levels} for task in TASKS}
            continue
        policy = PolicyConfig(model)
        policy = PolicyConfig(model, options=options) if policy.asks_model else policy
        plan += [PlanRow(model, environment(task), policy, levels, {"fold": "test"}) for task in TASKS]
    with open_run(folder, {"benchmark": "tales", "fold": "test"}, plan, engine) as run:
        run.play(Progress())
        names = {environment(task): task for task in TASKS}
        for row in run.rows:
            scores = {str(episode.seed): best(episode) for episode in run.episodes(row) if episode.error is None}
            found.setdefault(label_of(row.plan.label).rpartition("/")[2], {})[names[row.plan.environment]] = scores
    return {name: {"scores": scores, "options": dict(options), "versions": versions()} for name, scores in found.items()}


def figure(scores: Scores, levels: Sequence[int]) -> str:
    """Return 100 times the mean of the tasks' means, with its 95 % interval; nothing if a level was not played."""
    values = [[100 * own[str(level)] for level in levels if str(level) in own] for own in scores.values()]
    if any(len(own) < len(levels) for own in values):
        return ""
    low, high = interval(values)
    return f"{np.mean([np.mean(one) for one in values]):.1f} [{low:.0f}, {high:.0f}]"


def lines(record: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the tables: the means beside those that are published, and the score of each task."""
    order = sorted(record, key=lambda name: (name == EXPERT, name != "random", name))
    rows = [(name, f"{score:.1f}", *("" for _ in LEVELS)) for name, score in PUBLISHED.items()]
    rows += [(name, "", *_figures(record[name])) for name in order]
    yield table(("mean best score of 16 tasks, of 100", "published", *LEVELS), rows) + "\n"
    cells = [(task, *(f"{100 * mean(list(record[name]['scores'][task].values())):.0f}" for name in order)) for task in TASKS]
    yield table(("a task: the mean of all levels played", *order), cells)


def _figures(policy: Mapping[str, Any]) -> Iterator[str]:
    return (figure(policy["scores"], levels) for levels in LEVELS.values())
