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
    "won / lost / truncated / error": lambda row: _ends(row),
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
    thought, ahead = (any(row[name] for row in rows) for name in ("tokens_reasoning", "looks_ahead"))
    shown = {
        "asked": len(asked) > 1 or any("expert_share" in way for way in asked),
        "why invalid": any(row["invalid_reasons"] for row in rows),
        **dict.fromkeys(("share of thoughts", "thoughts cut"), thought),
        **dict.fromkeys(("model calls", "simulator steps"), ahead),
        "cost, $": paid,
    }
    columns = {name: cell for name, cell in _COLUMNS.items() if shown.get(name, True)}
    lines = [tuple(columns), *(tuple(cell(row) for cell in columns.values()) for row in rows)]
    return [*lines, ("", "total", *[""] * (len(columns) - 3), number(paid, ".3g"))] if paid else lines


class Table(str):
    """A table as aligned Markdown. In a notebook it shows itself as HTML."""

    rows: Sequence[Mapping[str, Any]]
    """The figures of its rows; see `row`."""

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        heads, *lines = table(self.rows)
        notes = [html.line(html.shown(note, 1000), faint=True) for note in more_notes(self.rows)]
        return str(html.block(html.table(heads, lines), *notes))


def markdown(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the rows as a Markdown table whose columns are aligned, and `more_notes` below it."""
    shown = Table("\n\n".join([aligned(table(rows)), *more_notes(rows)]))
    shown.rows = rows
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


def _ends(row: Mapping[str, Any]) -> str:
    """Return how many episodes ended in which way; without wins and losses if the environment does not say what a success is."""
    first = [f"{row['ended']} ended"] if row["ended"] else [str(row[name]) for name in ("won", "lost")]
    return " / ".join([*first, str(row["truncated"]), str(row["error"])])


def _count(row: Mapping[str, Any]) -> str:
    """Return the number of episodes, of levels if some were played more than once, and of episodes that ended in an error."""
    again = row["levels"] < row["episodes"] - row["error"]
    errors = f", {row['error']} error{'s' * (row['error'] > 1)}" if row["error"] else ""
    levels = f" of {row['levels']} levels" if again else ""
    return f"{row['episodes']}{levels}{errors}"


def number(value: float | None, form: str) -> str:
    """Return a number in a format, or a dash for None. A number of more than twelve digits is shown as a power of ten."""
    if value is None:
        return "-"
    return format(value, form if abs(value) < LONG else "+.3g" if form.startswith("+") else ".3g")


def interval(bounds: tuple[float, float] | None, form: str) -> str:
    """Return an interval in brackets, or an empty text for None."""
    return "" if bounds is None else f" [{number(bounds[0], form)}, {number(bounds[1], form)}]"


_WIDTH = 120
"""Most characters of a line in a terminal."""
_MOST_TELLING = (
    *("policy", "success [95 %]", "return [95 %]", "episodes", "unusable answers", "cost, $", "model calls", "simulator steps"),
    *("length", "s / decision", "asked", "won / lost / truncated / error", "share of thoughts", "thoughts cut"),
    *("tokens out", "tokens in"),
)
"""Columns, the most telling first."""
_TRUTH = _MOST_TELLING[:5]
"""Columns that are shown whatever their width: without one of them a row may look better than it is."""
_NOTE = "Success: rate and Wilson's 95 % interval. Return: mean and Student's interval, within the returns that are possible."
_UNUSABLE = "Unusable answers: share of the steps, and the most frequent reason."
_TOO_LONG = "Too long: the answer did not end within max_tokens, by default 16 in text or the longest action's name."
"""What is said in addition if that is the most frequent reason of a row."""


def fitted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table in Markdown that is at most 120 characters wide, if the columns of `_TRUTH` are not wider.

    The success comes first; notes stand below. Answers that could not be used have one column: their share of the steps, and the
    most frequent reason.
    """
    (_, *headings), *lines = table(rows)
    cells = [dict(zip(headings, line[1:], strict=True)) | {"unusable answers": ""} for line in lines]
    for cell, row in zip(cells, rows, strict=False):  # the last line may be the sum of the costs
        cell |= {"policy": f"  {cell['policy']}", "return [95 %]": _return(row, rows), "unusable answers": _unusable(row)}
    environments = [row["environment"] for row in rows]
    columns: list[str] = []
    left = _WIDTH - 1
    for name in _MOST_TELLING:
        texts = [name, *(cell[name] for cell in cells if name in cell), *(environments if name == "policy" else ())]
        width = max(map(len, texts)) + 3
        told = any(cell.get(name, "-") not in ("-", "", "0%") for cell in cells)
        if name in _MOST_TELLING[:2] or (told and (name in _TRUTH or width <= left)):
            columns.append(name)
            left -= width
    shown = [tuple(columns)]
    for i, cell in enumerate(cells):
        if i < len(rows) and environments[i] not in environments[:i]:
            shown.append((environments[i], *[""] * (len(columns) - 1)))
        shown.append(tuple(cell[name] for name in columns))
    note = _NOTE
    if "unusable answers" in columns:
        note += f" {_UNUSABLE}" + f" {_TOO_LONG}" * any(next(iter(row["invalid_reasons"]), "") == "cut" for row in rows)
    notes = [f"{note} table.md has all columns.", *more_notes([{**row, "invalid_reasons": {}} for row in rows])]
    return "\n\n".join([aligned(shown), *(textwrap.fill(note, _WIDTH) for note in notes)])


def _unusable(row: Mapping[str, Any]) -> str:
    """Return which share of the steps had an answer that could not be used, and the only or the most frequent reason."""
    if not row["invalid"]:
        return "-"
    reason, *others = row["invalid_reasons"] or [""]
    why = "mostly " * bool(others) + {"cut": "too long", "several actions": "> 1 action"}.get(reason, reason)
    return ": ".join(filter(None, (number(row["invalid"], ".0%"), why)))


def _return(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean and its interval. Where an environment's returns are in the hundreds, they need no decimals."""
    means = [abs(other["return"] or 0.0) for other in rows if other["environment"] == row["environment"]]
    form = ".0f" if max(means) >= 100 else ".1f" if max(means) >= 10 else ".2f"
    return number(row["return"], form) + interval(row["return_interval"], form)
