"""Success and return of the shipped adapters on the test fold, greedy and drawn, beside their base, random play and the expert.

python benchmarks/adapters.py babyai --episodes 10
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from helpers.harness import command, options, play_plan, run, table, write

from gym_text.babyai.levels import TASKS
from gym_text.errors import check_choice
from gym_text_policies.backends.local.adapters import ADAPTERS, RECORD
from gym_text_policies.report.table import interval, number

BASE = "the base, asked alike"


class Family(NamedTuple):
    """Adapters for the same environments."""

    environments: tuple[str, ...]
    figure: str
    """What is asked of them: success or return."""


SHORT_TASKS = (
    *("lifespan-longest-lived", "lifespan-shortest-lived", "lifespan-longest-lived-then-shortest-lived"),
    *("find-non-living-thing", "find-living-thing", "find-animal", "find-plant"),
    *("power-component", "identify-life-stages-2", "chemistry-mix-paint-secondary-color"),
)
"""ScienceWorld's ten tasks with the shortest solutions: 5 to 14 steps on average, at most 29."""
FAMILIES = {
    "babyai": Family(tuple(f"BabyAIText-v0?task={task}" for task in TASKS), "success"),
    "cookingworld": Family(("CookingWorldText-v0",), "success"),
    "lunarlander": Family(("LunarLanderLLM-v2",), "return"),
    "scienceworld": Family(tuple(f"ScienceWorldText-v0?task={task}&max_episode_steps=30" for task in SHORT_TASKS), "return"),
}
"""By what the names of the adapters that play all of it begin with: babyai-sft …"""


@dataclass(frozen=True)
class Config:
    """Which adapters to evaluate, and on how many episodes."""

    family: str = field(default="babyai", metadata={"positional": True})
    """With what the adapters' names begin: babyai, cookingworld, lunarlander or scienceworld."""
    episodes: int = 100
    """Episodes of each environment and adapter, greedy; and of chance and the expert."""
    drawn_episodes: int = 20
    """Episodes of each environment and adapter at temperature 1; 0: none."""
    base_episodes: int = 10
    """Episodes of the base in each environment: it seldom ends one before the limit."""
    num_envs: int = 10
    """Episodes that run at once."""
    folder: str = "runs/adapters"
    """Folder of each family's run folder; a second run goes on."""

    def __post_init__(self) -> None:
        check_choice("family", self.family, tuple(FAMILIES))


def rows(config: Config) -> dict[str, dict[str, Any]]:
    """Return the language models of the table, as a file of variants has them: an adapter, and its base with the same prompts."""
    name = f"{config.family}-sft"
    shipped = ADAPTERS / name
    place = shipped if shipped.exists() else Path(__file__).parent / "adapters" / name
    model = f"adapters/{name}" if shipped.exists() else f"benchmarks/adapters/{name}"
    found = {
        f"{name}, greedy": {"model": model},
        f"{name}, drawn": {"model": model, "temperature": 1.0, "episodes": config.drawn_episodes},
    }
    asked = json.loads((place / RECORD).read_text("utf-8"))["asked"]
    return {BASE: {"model": "smollm2", "episodes": config.base_episodes, **asked}, **found}


def summary(figures: Sequence[Mapping[str, Any]], figure: str) -> str:
    """Return a table in Markdown: each policy's success or return in each environment, and the means of that and of steps."""
    found = {(row["policy"], row["environment"]): row for row in figures}
    policies, environments = (list(dict.fromkeys(row[name] for row in figures)) for name in ("policy", "environment"))
    columns = [re.sub(".*task=|&.*", "", name) for name in environments]
    rows = []
    for policy in policies:
        own = [found[policy, environment] for environment in environments]
        mean, steps = (sum(row[name] for row in own) / len(own) for name in (figure, "length"))
        cells = [number(row[figure], ".2f") + interval(row[f"{figure}_interval"], ".2f") for row in own]
        rows.append((policy, own[0]["episodes"], *cells, f"{mean:.2f}", f"{steps:.1f}"))
    return table((figure, "episodes", *columns, "mean", "steps"), rows)


def main() -> None:
    """Play and write the results."""
    config = options(Config, __doc__)
    models, family = rows(config), FAMILIES[config.family]
    played = {"folder": f"{config.folder}/{config.family}", "environments": family.environments, "num_envs": config.num_envs}
    text, record, _ = play_plan(models, **played, llm_episodes=config.episodes, episodes=config.episodes)
    record["command"] = command()
    record["config"] = {key: value for key, value in record["config"].items() if key not in ("variants", "folder")}
    head = summary(record["rows"], family.figure)
    text = "\n".join([head, "", text, "", f"Made by `{record['command']}`."])
    write(f"adapters_{config.family}", text, record)


if __name__ == "__main__":
    run(main)
