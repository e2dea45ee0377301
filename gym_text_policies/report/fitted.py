"""The table as a terminal shows it: a heading for each environment, and the columns that fit its width."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text_policies.report.table import aligned, interval, more_notes, number, table

WIDTH = 120
"""Most characters of a line."""
_REMOVED = "won / lost / truncated / error"
_MOST_TELLING = (
    *("policy", "success [95 %]", "return [95 %]", "episodes", "unusable answers", "cost, $", "model calls", "simulator steps"),
    *("length", "s / decision", "asked", _REMOVED, "share of thoughts", "thoughts cut", "tokens out", "tokens in"),
)
"""Columns, the most telling first. The first two are shown in any width."""
_ALWAYS = 2
_IN_WORDS = {"cut": "too long", "several actions": "> 1 action"}
NOTE = "Success: rate and Wilson's 95 % interval. Return: mean and Student's interval, within the returns that are possible."
"""What is said below every table."""
_UNUSABLE = "Unusable answers: share of the steps, and the most frequent reason."
TOO_LONG = "Too long: the answer did not end within max_tokens, by default 16 in text or the longest action's name."
"""What is said in addition if that is the most frequent reason of a row."""
_WIDE = "table.md has all columns."


def fitted(rows: Sequence[Mapping[str, Any]], width: int = WIDTH) -> str:
    """Return rows as a table in Markdown that is at most `width` characters wide, if the names of the policies are not longer.

    The success comes first; notes stand below. Answers that could not be used have one column: their share of the steps, and the
    most frequent reason.

    Args:
        rows: The figures of the rows; see `row`.
        width: Most characters of a line.
    """
    (_, *headings), *lines = table(rows)
    cells = [dict(zip(headings, line[1:], strict=True)) for line in lines]
    for cell, row in zip(cells, rows, strict=False):  # the last line may be the sum of the costs
        cell["unusable answers"] = _unusable(row)
        cell["return [95 %]"] = _return(row, rows)
        cell["policy"] = f"  {cell['policy']}"
    for cell in cells[len(rows) :]:
        cell["unusable answers"] = ""
    is_cut = any(next(iter(row.get("invalid_reasons", ())), "") == "cut" for row in rows)
    environments = [row["environment"] for row in rows]
    columns = _columns(cells, environments, width)
    reasons = [_UNUSABLE, *[TOO_LONG] * is_cut] if "unusable answers" in columns else []
    note = " ".join([NOTE, *reasons, _WIDE])
    notes = [note, *more_notes([{**row, "invalid_reasons": {}} for row in rows])]
    shown = aligned(_grouped(cells, environments, columns))
    return "\n\n".join([shown, *(textwrap.fill(note, width) for note in notes)])


def _columns(cells: Sequence[Mapping[str, str]], environments: Sequence[str], width: int) -> list[str]:
    """Return the headings that fit, in the order of `_MOST_TELLING`."""
    chosen: list[str] = []
    left = width - 1
    for name in _MOST_TELLING:
        texts = [name, *(cell[name] for cell in cells if name in cell), *(environments if name == "policy" else ())]
        widest = max(map(len, texts))
        shown = any(cell.get(name, "-") not in ("-", "", "0%") for cell in cells)
        if len(chosen) < _ALWAYS or (shown and widest + 3 <= left):
            chosen.append(name)
            left -= widest + 3
    return chosen


def _grouped(cells: Sequence[Mapping[str, str]], environments: Sequence[str], columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the lines: the headings, and before the rows of an environment a line with its name."""
    lines, before = [tuple(columns)], ""
    for number_of_row, cell in enumerate(cells):
        environment = environments[number_of_row] if number_of_row < len(environments) else before
        if environment != before:
            lines.append((environment, *[""] * (len(columns) - 1)))
        lines.append(tuple(cell[name] for name in columns))
        before = environment
    return lines


def _unusable(row: Mapping[str, Any]) -> str:
    """Return which share of the steps had an answer that could not be used, and the only or the most frequent reason."""
    if not row["invalid"]:
        return "-"
    reason, *others = row.get("invalid_reasons", {}) or [""]
    why = "mostly " * bool(others) + _IN_WORDS.get(reason, reason)
    return ": ".join(filter(None, (number(row["invalid"], ".0%"), why)))


def _return(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and its interval. Where an environment's returns are in the hundreds, they need no decimals."""
    means = [abs(other["return"] or 0.0) for other in rows if other["environment"] == row["environment"]]
    form = ".0f" if max(means) >= 100 else ".1f" if max(means) >= 10 else ".2f"
    return number(row["return"], form) + interval(row["return_interval"], form)
