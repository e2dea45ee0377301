"""Does a thought help the embedded model in CookingWorld? An adapter that thinks, with thoughts of several lengths and without.

python benchmarks/thinking.py --episodes 50
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters import differences
from helpers.harness import Levels, command, levels_of_rows, options, play_variants, run, table, write

from gym_text_policies.records import Episode
from gym_text_policies.report.table import interval, number

ENVIRONMENT = "CookingWorldText-v0"
BEFORE, WITHOUT = "the adapter before", "no thought"


@dataclass(frozen=True)
class Config:
    """What is played. All rows play the same levels of the test fold, greedily, in mode choose."""

    adapter: str = "benchmarks/starts/thinking"
    """The adapter that thinks."""
    before: str = "adapters/cookingworld-sft"
    """The adapter that its training began with."""
    think_tokens: tuple[str, ...] = ("24", "64")
    """Greatest lengths of thoughts, in tokens; a row for each."""
    episodes: int = 200
    """Episodes of each row."""
    first_seed: int = 600
    """Seed of the first episode."""
    num_envs: int = 16
    """Episodes that run at once."""
    dtype: str = "bfloat16"
    """Precision of weights and products."""
    folder: str = "runs/thinking"
    """Run folder; a second run goes on."""


def rows(config: Config) -> dict[str, dict[str, Any]]:
    """Return the rows of the table, as a file of variants has them."""
    shared = {"mode": "choose", "options": {"dtype": config.dtype}}
    thinking = {
        f"thought of up to {most} tokens": {"model": config.adapter, "think": True, "think_tokens": int(most), **shared}
        for most in config.think_tokens
    }
    without = {"model": config.adapter, "think": False, **shared}
    return {BEFORE: {"model": config.before, **shared}, WITHOUT: without, **thinking}


def figures(name: str, row: dict[str, Any], episodes: Sequence[Episode]) -> tuple[object, ...]:
    """Return a row of the table in words."""
    decisions = [step.decision for episode in episodes for step in episode.steps]
    thoughts = [decision for decision in decisions if decision.reasoning]
    length = sum(decision.tokens_reasoning for decision in decisions) / max(1, len(decisions))
    cut = sum(decision.thought_cut for decision in decisions)
    return (
        name,
        row["episodes"],
        number(row["success"], ".3f") + interval(row["success_interval"], ".2f"),
        f"{sum(e.outcome == 'lost' for e in episodes)}, {sum(e.outcome == 'truncated' for e in episodes)}",
        f"{row['length']:.1f}",
        f"{sum(decision.seconds for decision in decisions) / len(decisions):.2f}",
        f"{length:.1f}" if thoughts else "",
        f"{cut / len(decisions):.0%}" if thoughts else "",
    )


def results(record: dict[str, Any], played: Mapping[str, Levels]) -> Iterator[str]:
    """Yield the table, and the paired tests of each row beside the row without thoughts and the adapter before."""
    whole = {name: [episode for episode in levels.values() if episode.error is None] for name, levels in played.items()}
    shown = [figures(row["policy"], row, whole[row["policy"]]) for row in record["rows"]]
    columns = ("row", "episodes", "success", "lost, at the limit", "steps", "seconds a decision", "tokens of a thought", "cut")
    yield table(columns, shown)
    yield ""
    for name in played:
        for other in (BEFORE, WITHOUT):
            if name not in (BEFORE, other):
                yield from differences(played, name, other)


def main() -> None:
    """Play and write the results."""
    config = options(Config, __doc__)
    _, record, store = play_variants(
        rows(config),
        folder=config.folder,
        environments=(ENVIRONMENT,),
        num_envs=config.num_envs,
        llm_episodes=config.episodes,
        first_seed=config.first_seed,
        baselines=("none",),
    )
    text = "\n".join([*results(record, levels_of_rows(store, record["rows"])), "", f"Made by `{command()}`."])
    record["command"] = command()
    write("thinking", text, {key: record[key] for key in ("command", "rows")})


if __name__ == "__main__":
    run(main)
