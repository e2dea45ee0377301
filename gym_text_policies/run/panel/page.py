"""Tables of results: in the terminal a row for each world, on the page a row for each policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gym_text_policies.report.statistics import mean
from gym_text_policies.report.table import aligned, interval, number
from gym_text_policies.run.panel.reference import Reference
from gym_text_policies.run.panel.results import Result, read_result
from gym_text_policies.run.panel.worlds import Panel


def terminal_table(results: Sequence[Result], panel: Panel, reference: Reference) -> str:
    """Return a row for each world and the mean, and a column for each policy."""
    tables = [result.table(panel, reference) for result in results]
    lines = [("world", "levels", "chance", "expert", *(result.name for result in results))]
    for name in panel.worlds:
        if not any(name in table["worlds"] for table in tables):
            continue
        levels, known = panel.levels(name, results[0].size), reference.worlds[name]
        ends = (number(mean(values[: len(levels)]), ".2f") for values in (known.chance, known.expert))
        lines.append((name, str(len(levels)), *ends, *(_cell(table["worlds"].get(name)) for table in tables)))
    lines.append(("mean", "", "0", "100", *(_cell({"score": table["mean"], **table}) for table in tables)))
    lines.append(("won", "", "", "", *map(_won, results)))
    lines.append(("unusable", "", "", "", *map(_unusable, results)))
    return (
        f"{aligned(lines)}\n\nScore [95 %]: 0 is chance and 100 the expert on the same levels; a dash if a level is missing or "
        "ended in an error.\nChance and expert: their mean returns. Won: levels that were won, of those played; in Arithmetic and "
        "Sorting doing nothing has a\nscore, but wins nothing. Unusable: share of the steps whose answer could not be used."
    )


def _won(result: Result) -> str:
    """Return how many of the played levels were won."""
    return f"{result.won}/{len(result.played)}"


def _unusable(result: Result) -> str:
    """Return the share of the steps whose answer could not be used."""
    return number(result.unusable, ".0%")


def _cell(figures: Mapping[str, Any] | None) -> str:
    return _short(figures) + ("" if figures is None else interval(figures["interval"], ".0f"))


def page_table(files: Iterable[Path], panel: Panel, reference: Reference) -> str:
    """Return the table of result files of the panel's version: a row for each, the best mean first.

    Raises:
        UsageError: If a file is no result file.
    """
    results = [read_result(path)[0] for path in sorted(files)]
    tables = [(result, result.table(panel, reference)) for result in results if result.panel == panel.version]
    tables.sort(key=lambda entry: (-1e9 if entry[1]["mean"] is None else entry[1]["mean"], len(entry[1]["worlds"])), reverse=True)
    lines = [("policy", "size", "mean [95 %]", "won", "unusable", *panel.worlds)]
    for result, table in tables:
        cells = [_short(table["worlds"].get(name)) for name in panel.worlds]
        score = _cell({"score": table["mean"], **table})
        lines.append((result.name, result.size, score, _won(result), _unusable(result), *cells))
    return aligned(lines)


def _short(figures: Mapping[str, Any] | None) -> str:
    """Return a score without decimals; empty for a world that was not played."""
    if figures is None:
        return ""
    return "-" if figures["score"] is None else str(round(figures["score"]))


def updated(page: str, files: Iterable[Path], panel: Panel, reference: Reference) -> str:
    """Return the text of the panel's page with its two tables made anew: of the worlds, and of the results."""
    rows: list[tuple[str, ...]] = [("world", "environment", "chance", "expert")]
    for name, world in panel.worlds.items():
        known = reference.worlds[name]
        rows.append((name, f"`{world.environment}`", *(number(mean(values), ".2f") for values in (known.chance, known.expert))))
    return _with_table(_with_table(page, "world", aligned(rows)), "policy", page_table(files, panel, reference))


def _with_table(page: str, heading: str, table: str) -> str:
    """Return a page with a table in place of the one whose first column has this heading."""
    return re.sub(rf"^\| {heading} .*\n(\|.*\n)*", lambda _: f"{table}\n", page, count=1, flags=re.MULTILINE)
