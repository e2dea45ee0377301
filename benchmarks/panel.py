"""Make the panel's reference, and the tables of its page.

``python benchmarks/panel.py`` writes the tables of ``docs/panel.md`` from the result files in ``benchmarks/panel`` (a second).
``--part reference`` first computes the digests of all levels, and what chance and the expert reach there (a quarter of an hour).
Do that only for a new version of the panel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from helpers.harness import options, run
from tqdm import tqdm

from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.report.statistics import mean
from gym_text_policies.report.table import aligned, number
from gym_text_policies.run.panel.reference import FILE, expert_walks, level_digest, made_with, random_walks, the_reference
from gym_text_policies.run.panel.results import cell, facts, read_result, short
from gym_text_policies.run.panel.worlds import the_panel

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/panel.md"
FILES = ROOT / "benchmarks/panel"
"""The folder of the committed result files."""
WALKS = 10
"""Random walks in each level, whose mean return is that of chance."""


@dataclass(frozen=True)
class Config:
    """Make the panel's reference, and the tables of its page."""

    part: Literal["page", "reference"] = "page"
    """What is made: page, or reference and page."""


def write_reference() -> None:
    """Play the expert's path and `WALKS` random walks in each level of the largest size, and write ``reference.json``."""
    panel, worlds = the_panel(), {}
    for name in tqdm(panel.worlds):
        worlds[name] = world_reference(name)
    record = {"version": panel.version, "versions": made_with(panel.packages), "worlds": worlds}
    write_atomically(FILE, json.dumps(record) + "\n")


def world_reference(name: str) -> dict[str, Any]:
    """Return what the reference says of a world: a list of each figure, level 0 first."""
    panel = the_panel()
    levels = panel.levels(name, "full")
    experts = list(expert_walks(panel, name, levels))
    digests = list(map(level_digest, experts, random_walks(panel, name, levels)))
    rows = [[walk.total_reward for walk in random_walks(panel, name, levels, number, most=None)] for number in range(WALKS)]
    chance = [round(sum(round(total, 6) for total in returns) / WALKS, 6) for returns in zip(*rows, strict=True)]
    return {"digests": digests, "expert": [round(walk.total_reward, 6) for walk in experts], "chance": chance}


def worlds_table() -> str:
    """Return the table of the worlds, with the mean returns of chance and the expert on all levels."""
    rows: list[tuple[str, ...]] = [("world", "environment", "chance", "expert")]
    for name, world in the_panel().worlds.items():
        known = the_reference().worlds[name]
        rows.append((name, f"`{world.environment}`", *(number(mean(values), ".2f") for values in (known.chance, known.expert))))
    return aligned(rows)


def results_table(files: Iterable[Path]) -> str:
    """Return the table of result files of the panel's version: a row for each, the best mean first."""
    panel, reference = the_panel(), the_reference()
    results = [read_result(path) for path in sorted(files)]
    tables = [(result, result.table(panel, reference)) for result in results if result.panel == panel.version]
    tables.sort(key=lambda entry: (-1e9 if entry[1]["mean"] is None else entry[1]["mean"], len(entry[1]["worlds"])), reverse=True)
    lines = [("policy", "size", "mean [95 %]", *facts(results[0]), *panel.worlds)]
    for result, table in tables:
        cells = [short(table["worlds"].get(name)) for name in panel.worlds]
        score = cell({"score": table["mean"], **table})
        lines.append((result.name, result.size, score, *facts(result).values(), *cells))
    return aligned(lines)


def updated(page: str, files: Iterable[Path]) -> str:
    """Return the text of the panel's page with its two tables made anew: of the worlds, and of the results."""
    for heading, table in (("world", worlds_table()), ("policy", results_table(files))):
        pattern = rf"^\| {heading} .*\n(\|.*\n)*"  # the table whose first column has this heading
        page = re.sub(pattern, lambda _, table=table: f"{table}\n", page, count=1, flags=re.MULTILINE)
    return page


def main() -> None:
    """Make what the command line asks for."""
    if options(Config, __doc__).part == "reference":
        write_reference()
    write_atomically(PAGE, updated(PAGE.read_text("utf-8"), FILES.glob("*.json")))


if __name__ == "__main__":
    run(main)
