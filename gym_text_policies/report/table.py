"""The table of results: as Markdown, in a notebook, and fitted to the width of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gym_text import html

LONG = 1e12
"""Numbers of this size or more are shown as powers of ten."""
_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "environment": lambda row: row["environment"],
    "policy": lambda row: row["policy"] + " †" * row["looks_ahead"],
    "asked": lambda row: row["asked"] or "-",
    "success [95 %]": lambda row: number(row["success"], ".2f") + interval(row["success_interval"], ".2f"),
    "return [95 %]": lambda row: number(row["return"], ".2f") + interval(row["return_interval"], ".2f"),
    "episodes": lambda row: _count(row),
    "won / lost / truncated / error": lambda row: " / ".join(str(row[name]) for name in ("won", "lost", "truncated", "error")),
    "invalid": lambda row: number(row["invalid"], ".0%"),
    "why invalid": lambda row: ", ".join(f"{reason} {count}" for reason, count in row["invalid_reasons"].items()) or "-",
    "length": lambda row: number(row["length"], ".1f"),
    "tokens in": lambda row: number(row["tokens_in"], ".0f"),
    "tokens out": lambda row: number(row["tokens_out"], ".0f"),
    "share of thoughts": lambda row: number(
        row["tokens_reasoning"] / max(row["tokens_out"], 1) if row["tokens_reasoning"] else None, ".0%"
    ),
    "thoughts cut": lambda row: number(row["thoughts_cut"] if row["tokens_reasoning"] else None, ".0%"),
    "model calls": lambda row: number(row["model_calls"] if row["looks_ahead"] else None, ".1f"),
    "simulator steps": lambda row: number(row["simulator_steps"] if row["looks_ahead"] else None, ".1f"),
    "s / decision": lambda row: number(row["seconds_per_decision"], ".2g"),
    "cost, $": lambda row: number(row["total_cost"], ".3g"),
}
"""Heading -> the text of a row's cell."""
NOTES = """
Success: rate and Wilson's 95 % interval; a dash if the environment does not say what a success is. Return: mean and Student's 95 %
interval, cut at the least and the greatest return where they are known; Wilson's if all these returns are equal. A level that was
played more than once counts once in both. An episode that ended in an error counts only in the column error. Invalid: share of
steps whose answer could not be used or whose action the game did not understand. Tokens: mean per episode; in `choose` the model
reads the candidate actions, which counts as tokens in, and generates nothing but its thoughts. Seconds: the time of a batch divided
by its decisions. Cost: the sum over all episodes of the row.
"""
LOOKS_AHEAD = (
    "† The policy looks ahead: before each decision it tries actions in copies of the game. It uses the simulator, which no other "
    "row does. Model calls: states about which it asked its model; any other policy asks once a step. Simulator steps: steps in "
    "copies. Both are means per episode."
)
"""What is said of rows of policies that look ahead."""


def table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the lines of a table as cells: the headings, the rows, and the sum of the costs if anything was paid.

    The column ``asked`` is shown if rows of language models differ in it, or if an expert played some actions. The column of costs
    is shown if anything was paid, the columns of thoughts if a model thought, the reasons of invalid answers if there are any, and
    the columns of a search if a policy looks ahead.
    """
    asked = {row["asked"] for row in rows if row["asked"]}
    paid = sum(row["total_cost"] for row in rows)
    hidden = {"asked"} if len(asked) < 2 and not any("expert_share" in way for way in asked) else set()
    hidden |= set() if paid else {"cost, $"}
    hidden |= set() if any(row["tokens_reasoning"] for row in rows) else {"share of thoughts", "thoughts cut"}
    hidden |= set() if any(row["invalid_reasons"] for row in rows) else {"why invalid"}
    hidden |= set() if any(row["looks_ahead"] for row in rows) else {"model calls", "simulator steps"}
    columns = {name: cell for name, cell in _COLUMNS.items() if name not in hidden}
    lines = [tuple(columns), *(tuple(cell(row) for cell in columns.values()) for row in rows)]
    return [*lines, ("", "total", *[""] * (len(columns) - 3), number(paid, ".3g"))] if paid else lines


class Table(str):
    """A table as aligned Markdown. In a notebook it shows itself as HTML."""

    rows: Sequence[Mapping[str, Any]]
    """The figures of its rows; see `row`."""
    notes: Sequence[str]
    """What is said below it."""

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        heads, *lines = table(self.rows)
        notes = [html.line(html.shown(note, 1000), faint=True) for note in self.notes]
        return str(html.block(html.table(heads, lines), *notes))


def markdown(rows: Sequence[Mapping[str, Any]], notes: Iterable[str] = ()) -> Table:
    """Return the rows as a Markdown table whose columns are aligned. `notes` stand below it, after those of `more_notes`."""
    notes = [*more_notes(rows), *notes]
    shown = Table("\n".join([aligned(table(rows)), *(part for note in notes for part in ("", note))]))
    shown.rows, shown.notes = rows, notes
    return shown


def aligned(lines: Iterable[Sequence[str]]) -> str:
    """Return lines of cells, the first with the headings, as a Markdown table whose columns are aligned."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells]
    shown.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(shown)


def more_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes beside `NOTES` that some tables need: on looking ahead, on thoughts, on reasons."""
    thoughts = (
        "Of it thoughts: share of the tokens out. Thoughts cut: share of steps whose thought reached its greatest length."
        if any(row["tokens_reasoning"] for row in rows)
        else ""
    )
    reasons = {reason for row in rows for reason in row["invalid_reasons"]}
    why = "Why invalid: number of answers that could not be used." if reasons else ""
    why += " Cut: the answer did not end within max_tokens." if "cut" in reasons else ""
    ahead = LOOKS_AHEAD if any(row["looks_ahead"] for row in rows) else ""
    return list(filter(None, (ahead, " ".join(filter(None, (thoughts, why))))))


def _count(row: Mapping[str, Any]) -> str:
    """Return the number of episodes, and the number of levels if some were played more than once."""
    again = row["levels"] < row["episodes"] - row["error"]
    return f"{row['episodes']} of {row['levels']} levels" if again else str(row["episodes"])


def number(value: float | None, form: str) -> str:
    """Return a number in a format, or a dash for None. A number of more than twelve digits is shown as a power of ten."""
    if value is None:
        return "-"
    return format(value, form if abs(value) < LONG else "+.3g" if form.startswith("+") else ".3g")


def interval(bounds: tuple[float, float] | None, form: str) -> str:
    """Return an interval in brackets, or an empty text for None."""
    return "" if bounds is None else f" [{number(bounds[0], form)}, {number(bounds[1], form)}]"


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
