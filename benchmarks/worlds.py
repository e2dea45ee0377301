"""Every world in one table and one report: chance, the embedded language model and the expert on ten levels of the test fold.

``.venv/bridges/textworld/bin/python benchmarks/worlds.py`` writes ``results/worlds.md``, ``.json`` and ``.html`` (the report, with
a few episodes to step through). Only this Python has TextWorld; `make test-bridges ARGS=textworld` makes its environment. The
script takes a quarter of an hour of one core; a run that was stopped goes on. The options are those of ``gym-text bench``, with
other defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.harness import options, run, table, write

from gym_text_policies.environments import playable_ids
from gym_text_policies.report.table import number
from gym_text_policies.run.bench import BenchConfig
from gym_text_policies.run.bench import run as play

LIMITS = {"ScienceWorldText-v0": 25, "LunarLanderLLM-v2": 300, "MountainCarContinuousLLM-v0": 300}
"""Fewer steps than are registered, where the model would take hours; the experts need fewer."""
WORLDS = tuple(f"{name}?max_episode_steps={LIMITS[name]}" if name in LIMITS else name for name in playable_ids(gymnasium=False))
DEFAULTS: dict[str, Any] = {
    **{"folder": "runs/worlds", "environments": WORLDS, "modes": ("choose",), "baselines": ("random", "gold")},
    **{"episodes": 10, "llm_episodes": 10},
}
PLAYERS = {"random": "chance", "smollm2, choose": "smollm2", "gold (expert)": "expert"}
"""Rows of the benchmark, and their columns here."""


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table in Markdown, a line for each world: the mean return and the success of each player."""
    found = {(row["environment"], row["policy"]): row for row in rows}
    lines = []
    for world in dict.fromkeys(row["environment"] for row in rows):
        own = [found.get((world, policy)) for policy in PLAYERS]
        cells = [f"{number(row['return'], '.2f')}, {number(row['success'], '.1f')}" if row else "" for row in own]
        steps = number(own[-1]["length"], ".1f") if own[-1] else "no expert"
        lines.append((world, *cells, steps))
    return table(("world", *(f"{player}: return, won" for player in PLAYERS.values()), "steps of the expert"), lines)


def main() -> None:
    """Play what is missing, and write the results."""
    _, store = play(options(BenchConfig, __doc__, **DEFAULTS))
    record = json.loads((store.folder / "table.json").read_text("utf-8"))
    write("worlds", report(record["rows"]), record)


if __name__ == "__main__":
    run(main)
