"""The figures of a table's row: a policy in an environment, with intervals."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from gym_text.registration import RETURNS
from gym_text_policies.answers import REASONS
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.policies.labels import thinking
from gym_text_policies.records import Episode, Outcome, player_within
from gym_text_policies.report.calibration import Judged, judged
from gym_text_policies.report.calibration import figures as probability_figures
from gym_text_policies.report.statistics import by_level, mean, return_interval, wilson_interval


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
    tells_success: bool = True
    """Whether the environment said if the task was done."""
    tokens_reasoning: int = 0
    thoughts_cut: int = 0
    invalid_reasons: Mapping[str, int] = field(default_factory=dict)
    looks_ahead: bool = False
    """Whether the policy has tried actions in copies of the game."""
    model_calls: int = 0
    simulator_steps: int = 0
    judged: Sequence[Judged] = ()
    """The decisions whose probabilities can be compared with the expert's action."""
    latencies: Sequence[float] = ()
    """Seconds of each decision."""

    @property
    def won(self) -> bool:
        """Whether the episode was won."""
        return self.outcome == "won"

    @classmethod
    def of(cls, episode: Episode) -> Summary:
        """Return the summary of an episode."""
        names = [field.name for field in dataclasses.fields(cls) if field.name not in ("judged", "latencies")]
        latencies = tuple(step.decision.seconds for step in episode.steps)
        return cls(**{name: getattr(episode, name) for name in names}, judged=judged(episode), latencies=latencies)


def labels(folder: Path) -> dict[str, str]:
    """Return the names of the rows of a benchmark's run folder, each by the key of one episode of the row."""
    try:
        stored = json.loads(check_regular(folder / "table.json", folder).read_text("utf-8"))["labels"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {str(key): str(label) for key, label in stored.items()} if isinstance(stored, dict) else {}


def row(
    environment: str,
    policy: str,
    episodes: Iterable[Episode | Summary],
    *,
    asked: str = "",
    measured: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the figures of one row.

    An episode that ended in an error counts in `error` and in no mean. A level that was played more than once counts once in
    ``return``, ``success`` and their intervals: by the mean of its episodes. ``success`` is None if the environment does not say
    what a success is.

    Args:
        environment: Name of the environment.
        policy: Name of the row.
        episodes: The episodes of one policy in one environment.
        asked: How a language model is asked; see `how_asked`.
        measured: What was measured of its probabilities after play; see `calibration.read_measured`.
    """
    summaries = [episode if isinstance(episode, Summary) else Summary.of(episode) for episode in episodes]
    played = [summary for summary in summaries if summary.error is None]
    outcomes = Counter(summary.outcome for summary in summaries)

    def of(name: str) -> list[float]:
        return [float(getattr(summary, name)) for summary in played]

    returns = list(by_level(played, lambda summary: summary.total_reward).values())
    tells_success = any(summary.tells_success for summary in played)
    wins = list(by_level(played, lambda summary: summary.won).values()) if tells_success else []
    steps = sum(of("length"))
    return {
        "environment": environment,
        "policy": policy,
        "asked": asked,
        "episodes": len(summaries),
        "levels": len(returns),
        "return": mean(returns),
        "return_interval": return_interval(returns, RETURNS.get(environment.partition("?")[0])),
        "success": sum(wins) / len(wins) if wins else None,
        "success_interval": wilson_interval(sum(wins), len(wins)),
        **{outcome: outcomes[outcome] for outcome in get_args(Outcome)},
        "invalid": sum(of("invalid")) / steps if steps else None,
        "invalid_reasons": _reasons(played),
        "length": mean(of("length")),
        "tokens_in": mean(of("tokens_in")),
        "tokens_out": mean(of("tokens_out")),
        "tokens_reasoning": mean(of("tokens_reasoning")),
        "thoughts_cut": sum(of("thoughts_cut")) / steps if steps else None,
        "looks_ahead": any(summary.looks_ahead for summary in summaries),
        "model_calls": mean(of("model_calls")),
        "simulator_steps": mean(of("simulator_steps")),
        "seconds_per_decision": sum(of("seconds")) / steps if steps else None,
        "cost": mean(of("cost")),
        "total_cost": sum(summary.cost for summary in summaries),
        **probability_figures(played, measured),
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
    mixed, player = policy.get("kind") == "mixed", player_within(policy)
    parts = [f"{key} {policy[key]}" for key in ("noise", "expert_share") if mixed and policy.get(key)]
    if player.get("kind") == "llm":
        usual = {"history": 0, "history_thoughts": "none", "temperature": 0.0, "with_reward": False}
        parts = [f"{key} {player[key]}" for key, value in usual.items() if player.get(key, value) != value] + parts
        mode = str(player.get("mode"))
        thinks = thinking(player)
        shown = [mode] * (f", {mode}" not in name) + [thinks] * (thinks not in name)
        shown += ["pictures"] * bool(player.get("pictures") and ", pictures" not in name)
        parts = [str(player.get("strategy")), *filter(None, shown), *parts]
    return ", ".join(part if len(part) <= 60 else f"{part[:59]}…" for part in parts)  # a record by somebody else may be long
