"""Episodes as flat rows, for pandas: a row for each episode, or for each decision."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from gym_text.errors import check_choice, import_extra
from gym_text.html import block, line, table
from gym_text_policies.environments import environment_name
from gym_text_policies.files.json_data import without_surrogates
from gym_text_policies.records import Episode

Rows = Literal["episodes", "decisions"]
_SUMS = ("tokens_in", "tokens_out", "tokens_reasoning", "model_calls", "simulator_steps")
COLUMNS: dict[Rows, dict[str, type]] = {
    "episodes": {
        **dict.fromkeys(("key", "environment", "policy", "environment_config", "policy_config"), str),
        **{"seed": int, "level": int, "outcome": str, "total_reward": float, "length": int, "invalid": int},
        **dict.fromkeys((*_SUMS, "thoughts_cut"), int),
        **{"seconds": float, "cost": float, "error": str, "version": int},
    },
    "decisions": {
        **{"key": str, "environment": str, "policy": str, "seed": int, "level": int, "step": int, "action": str},
        **{"probability": float, "probabilities": str, "probability_kind": str, "reward": float, "score": float},
        **dict.fromkeys(("terminated", "truncated", "success", "failure", "action_was_valid"), bool),
        **{"gold_action": str, "valid": bool, "invalid": str, "retries": int, "finish": str, "completion": str, "reasoning": str},
        **{"thought_cut": bool, "visits": str, "values": str, "tokens_cached": int, **dict.fromkeys(_SUMS, int)},
        **{"seconds": float, "cost": float, "observation": str},
    },
}
"""The columns of each kind of rows, with their types. Any value may be missing. Columns with the names of fields have the values of
these fields of `Episode`, `Step` or `Decision`. ``environment`` is the name that commands take; ``policy`` is the model or the
policy's name; ``step`` counts from 0; ``probability`` is that of the action. Mappings, such as probabilities, are JSON."""
_DTYPES = {str: "string", int: "Int64", float: "float64", bool: "boolean"}
"""Types of pandas in which values may be missing."""
_MOST_COUNTED = 1000
"""Most episodes that a store reads to show itself in a notebook."""


def player(policy: Mapping[str, Any]) -> str:
    """Return the model of a policy, or of the policy that plays within one that mixes actions or looks ahead; else its name."""
    while isinstance(policy.get("player"), Mapping):
        policy = policy["player"]
    return str(policy.get("model") or policy.get("name") or policy.get("kind", ""))


def flat_rows(episodes: Iterable[Episode], rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield a row of `COLUMNS` for each episode or for each decision."""
    for episode in episodes:
        shared: dict[str, Any] = {"environment": environment_name(episode.environment), "policy": player(episode.policy)}
        if rows == "episodes":
            parts: Iterable[tuple[Any, ...]] = [(episode,)]
            shared |= {"environment_config": episode.environment, "policy_config": episode.policy}
        else:
            parts = [(step, step.decision, episode) for step in episode.steps]
        for number, part in enumerate(parts):
            row = shared | {"step": number}
            if rows == "decisions" and (chances := part[1].probabilities) is not None:
                row["probability"] = chances.get(part[1].action)
            yield {name: _cell(row[name] if name in row else _of(part, name)) for name in COLUMNS[rows]}


def _of(part: Iterable[Any], name: str) -> Any:
    """Return a value of the first record that has it."""
    return next((getattr(record, name) for record in part if hasattr(record, name)), None)


def _cell(value: Any) -> Any:
    """Return a value for a table: a mapping as JSON, a text without halves of characters, which a model may have written."""
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return without_surrogates(value)


def data_frame(episodes: Iterable[Episode], rows: Rows) -> Any:
    """Return the rows as a `pandas.DataFrame`.

    Raises:
        MissingDependencyError: If pandas is not installed.
    """
    check_choice("rows", rows, tuple(COLUMNS))
    pandas = import_extra("pandas", "pandas")
    frame = pandas.DataFrame(flat_rows(episodes, rows), columns=list(COLUMNS[rows]))
    return frame.astype({name: _DTYPES[kind] for name, kind in COLUMNS[rows].items()})


def counts_html(path: Path, number: int, episodes: Iterable[Episode]) -> str:
    """Return for a notebook how many episodes a file has, and how the first ones of each policy in an environment ended."""
    groups: dict[tuple[str, str], list[Episode]] = {}
    for episode in itertools.islice(episodes, _MOST_COUNTED):
        who = ", ".join(filter(None, (player(episode.policy), str(episode.policy.get("mode") or ""))))
        groups.setdefault((environment_name(episode.environment), who), []).append(episode)
    rows = []
    for names, group in groups.items():
        played = [episode for episode in group if episode.error is None]
        won = sum(episode.outcome == "won" for episode in played) if any(episode.tells_success for episode in played) else "-"
        means = [f"{fmean(getattr(one, name) for one in played):.3g}" if played else "-" for name in ("total_reward", "length")]
        rows.append((*names, len(group), won, *means, len(group) - len(played)))
    note = [line(f"Counted are the first {_MOST_COUNTED:,} episodes.", faint=True)] * (number > _MOST_COUNTED)
    headings = ("environment", "policy", "episodes", "won", "mean return", "mean steps", "errors")
    return str(block(line(f"{path}: {number:,} episode{'s' * (number != 1)}"), *[table(headings, rows)] * bool(rows), *note))
