"""The table: a row for each policy in an environment, with intervals, as figures, as text and as Markdown."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_text import html
from gym_text.registration import RETURNS
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.policies.labels import thinking
from gym_text_policies.policies.unusable import REASONS
from gym_text_policies.records import VERSION, Episode, Outcome
from gym_text_policies.report.intervals import by_level, mean, return_interval, wilson_interval

_MEASURES = (
    *("total_reward", "length", "invalid", "tokens_in", "tokens_out", "tokens_reasoning", "thoughts_cut", "seconds", "cost"),
    *("model_calls", "simulator_steps"),
)
LONG = 1e12
"""Numbers of this size or more are shown as powers of ten."""


@dataclass(frozen=True, slots=True)
class Summary:
    """An episode without its steps."""

    key: str
    seed: int
    outcome: Outcome
    error: str | None
    total_reward: float
    length: int
    invalid: int
    tokens_in: int
    tokens_out: int
    seconds: float
    cost: float
    level: int | None = None
    version: int = VERSION
    tells_success: bool = True
    """Whether the environment said if the task was done."""
    tokens_reasoning: int = 0
    thoughts_cut: int = 0
    invalid_reasons: Mapping[str, int] = field(default_factory=dict)
    looks_ahead: bool = False
    """Whether the policy has tried actions in copies of the game."""
    model_calls: int = 0
    simulator_steps: int = 0

    @property
    def won(self) -> bool:
        """Whether the episode was won."""
        return self.outcome == "won"

    @classmethod
    def of(cls, episode: Episode) -> Summary:
        """Return the summary of an episode."""
        return cls(**{field.name: getattr(episode, field.name) for field in dataclasses.fields(cls)})


def labels(folder: Path) -> dict[str, str]:
    """Return the names of the rows of a benchmark's run folder, each by the key of one episode of the row."""
    try:
        stored = json.loads(check_regular(folder / "table.json", folder).read_text("utf-8"))["labels"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {str(key): str(label) for key, label in stored.items()} if isinstance(stored, dict) else {}


def is_twin(row: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a row is a controller's that plays exactly as the environment's expert does: the expert is this controller."""
    names = ("environment", "episodes", "return", "return_interval", "length", "won", "lost")
    experts = [other for other in rows if other["policy"].partition(" ")[0] == "gold"]
    return row["policy"] == "controller" and any(all(other[name] == row[name] for name in names) for other in experts)


def row(environment: str, policy: str, episodes: Iterable[Episode | Summary], *, asked: str = "") -> dict[str, Any]:
    """Return the figures of one row.

    An episode that ended in an error counts in `error` and in no mean. A level that was played more than once counts once in
    ``return``, ``success`` and their intervals: by the mean of its episodes. ``success`` is None if the environment does not say
    what a success is.

    Args:
        environment: Name of the environment.
        policy: Name of the row.
        episodes: The episodes of one policy in one environment.
        asked: How a language model is asked; see `how_asked`.
    """
    summaries = [episode if isinstance(episode, Summary) else Summary.of(episode) for episode in episodes]
    played = [summary for summary in summaries if summary.error is None]
    outcomes = Counter(summary.outcome for summary in summaries)
    columns = {name: [float(getattr(summary, name)) for summary in played] for name in _MEASURES}
    returns = list(by_level(played, lambda summary: summary.total_reward).values())
    tells_success = any(summary.tells_success for summary in played)
    wins = list(by_level(played, lambda summary: summary.won).values()) if tells_success else []
    steps = sum(columns["length"])
    return {
        "environment": environment,
        "policy": policy,
        "asked": asked,
        "episodes": len(summaries),
        "earlier": sum(summary.version < VERSION for summary in summaries),
        "levels": len(returns),
        "return": mean(returns),
        "return_interval": return_interval(returns, RETURNS.get(environment.partition("?")[0])),
        "success": sum(wins) / len(wins) if wins else None,
        "success_interval": wilson_interval(sum(wins), len(wins)),
        **{outcome: outcomes[outcome] for outcome in ("won", "lost", "truncated", "error")},
        "invalid": sum(columns["invalid"]) / steps if steps else None,
        "invalid_reasons": _reasons(played),
        "length": mean(columns["length"]),
        "tokens_in": mean(columns["tokens_in"]),
        "tokens_out": mean(columns["tokens_out"]),
        "tokens_reasoning": mean(columns["tokens_reasoning"]),
        "thoughts_cut": sum(columns["thoughts_cut"]) / steps if steps else None,
        "looks_ahead": any(summary.looks_ahead for summary in summaries),
        "model_calls": mean(columns["model_calls"]),
        "simulator_steps": mean(columns["simulator_steps"]),
        "seconds_per_decision": sum(columns["seconds"]) / steps if steps else None,
        "cost": mean(columns["cost"]),
        "total_cost": sum(summary.cost for summary in summaries),
    }


def _reasons(played: Iterable[Summary]) -> dict[str, int]:
    """Return the number of unusable answers by their reasons, the most frequent first. A record may have reasons of its own."""
    known = [(reason if reason in REASONS else "other", count) for each in played for reason, count in each.invalid_reasons.items()]
    return dict(Counter(reason for reason, count in known for _ in range(count)).most_common())


def how_asked(policy: Mapping[str, Any], name: str = "") -> str:
    """Return in words how a language model is asked; for any other policy the text is empty.

    Args:
        policy: The policy's configuration, such as ``episode.policy``.
        name: Name of the row. The mode is left out if the name ends with it.
    """
    mixed = policy.get("kind") == "mixed"
    player: Any = policy
    while isinstance(player, Mapping) and player.get("kind") in ("mixed", "lookahead"):
        player = player.get("player")
    parts = [f"{key} {policy[key]}" for key in ("noise", "expert_share") if mixed and policy.get(key)]
    if isinstance(player, Mapping) and player.get("kind") == "llm":
        usual = {"history": 0, "history_thoughts": "none", "temperature": 0.0, "with_reward": False}
        parts = [f"{key} {player[key]}" for key, value in usual.items() if player.get(key, value) != value] + parts
        mode = str(player.get("mode"))
        thinks = thinking(player)
        shown = [mode] * (f", {mode}" not in name) + [thinks] * (thinks not in name)
        shown += ["pictures"] * bool(player.get("pictures") and ", pictures" not in name)
        parts = [str(player.get("strategy")), *filter(None, shown), *parts]
    return ", ".join(part if len(part) <= 60 else f"{part[:59]}…" for part in parts)  # a record by somebody else may be long


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
    earlier = {
        "asked": "",
        "total_cost": 0.0,
        "tokens_reasoning": 0,
        "thoughts_cut": 0,
        "invalid_reasons": {},
        "looks_ahead": False,
    }  # keys that tables of earlier releases lack
    rows = [{**earlier, "levels": row["episodes"] - row["error"], **row} for row in rows]
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
    """Return notes beside `NOTES` that some tables need: on looking ahead, on thoughts, on reasons, on earlier versions."""
    thoughts = (
        "Of it thoughts: share of the tokens out. Thoughts cut: share of steps whose thought reached its greatest length."
        if any(row.get("tokens_reasoning") for row in rows)
        else ""
    )
    reasons = {reason for row in rows for reason in row.get("invalid_reasons", ())}
    why = "Why invalid: number of answers that could not be used." if reasons else ""
    why += " Cut: the answer did not end within max_tokens." if "cut" in reasons else ""
    ahead = LOOKS_AHEAD if any(row.get("looks_ahead") for row in rows) else ""
    return list(filter(None, (ahead, " ".join(filter(None, (thoughts, why))), _of_earlier_version(rows))))


def _of_earlier_version(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence that counts episodes of an earlier version, which drew random numbers in another way; empty without any."""
    earlier = sum(row.get("earlier", 0) for row in rows)
    if not earlier:
        return ""
    return (
        f"{earlier} of {sum(row['episodes'] for row in rows)} episodes were stored by an earlier version, which drew random "
        "numbers in another way. A policy that draws at random would play them differently today."
    )


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
