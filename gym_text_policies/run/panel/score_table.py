"""The table of scores: a row for each world, a column for each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gym_text_policies.report.statistics import mean
from gym_text_policies.report.table import aligned, interval, number
from gym_text_policies.run.panel.reference import Reference
from gym_text_policies.run.panel.results import Result
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
        lines.append((name, str(len(levels)), *ends, *(cell(table["worlds"].get(name)) for table in tables)))
    lines.append(("mean", "", "0", "100", *(cell({"score": table["mean"], **table}) for table in tables)))
    lines.append(("won", "", "", "", *map(won, results)))
    lines.append(("unusable", "", "", "", *map(unusable, results)))
    return (
        f"{aligned(lines)}\n\nScore [95 %]: 0 is chance and 100 the expert on the same levels; a dash if a level is missing or "
        "ended in an error.\nChance and expert: their mean returns. Won: levels that were won, of those played; in Arithmetic and "
        "Sorting doing nothing has a\nscore, but wins nothing. Unusable: share of the steps whose answer could not be used."
    )


def won(result: Result) -> str:
    """Return how many of the played levels were won."""
    return f"{result.won}/{len(result.played)}"


def unusable(result: Result) -> str:
    """Return the share of the steps whose answer could not be used."""
    return number(result.unusable, ".0%")


def cell(figures: Mapping[str, Any] | None) -> str:
    """Return a score with its interval; empty for a world that was not played."""
    return short(figures) + ("" if figures is None else interval(figures["interval"], ".0f"))


def short(figures: Mapping[str, Any] | None) -> str:
    """Return a score without decimals; empty for a world that was not played."""
    if figures is None:
        return ""
    return "-" if figures["score"] is None else str(round(figures["score"]))
