"""`gym-text bench`: play policies in environments, and make one table of the stored episodes."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from gym_text.errors import MissingDependencyError, import_extra
from gym_text.experts import has_expert
from gym_text.registration import BENCHMARK
from gym_text_policies.backends.local.adapters import ADAPTERS
from gym_text_policies.environments import environment_maker, has_folds
from gym_text_policies.policies.config import Mode, PromptOptions
from gym_text_policies.policy import text_spec
from gym_text_policies.report import write_report
from gym_text_policies.report.films import film_wins
from gym_text_policies.report.table import Table, fitted, markdown
from gym_text_policies.run.measure import measure
from gym_text_policies.run.plan import (
    EXPERT,
    PlanRow,
    Player,
    PlayerOptions,
    Players,
    check_environments,
    label_of,
    player_in,
    read_plan,
)
from gym_text_policies.run.play import PlayOptions, check_some_played, naming, open_run, write_table
from gym_text_policies.run.progress import Progress
from gym_text_policies.store import EpisodeStore

_BEFORE = (
    "First table: what each stage of training brings, in three environments. It takes four to eight minutes on two cores. "
    "Ctrl-C stops it, and the same command goes on."
)
_SHOWN = 16
"""Episodes to step through in the report."""
STAGES = ADAPTERS / "stages.yaml"
"""The plan of the first table."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchConfig(PlayOptions, PlayerOptions, PromptOptions):
    """Play policies in environments, and make one table of the results. A second run plays only what is missing in the folder.

    A command that names no environments, models or modes, and does not say how a model is asked, also plays the adapters that ship:
    its rows show what each stage of training brings, and it makes a report of them, report.html in the folder.
    """

    folder: str = "runs/policies"
    """Run folder, which keeps episodes, tables and configuration. Episodes that it has are not played again."""
    environments: tuple[str, ...] = BENCHMARK
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto&num_dists=2. Gymnasium's own environments may be
    among them."""
    modes: tuple[Mode, ...] = ()
    """How language models answer: text, json, choose or tool. Each mode is a row. By default an adapter answers in the mode in
    which it was trained, and any other model has two rows, text and choose."""
    temperatures: tuple[float, ...] = ()
    """Temperatures of the language models' actions, such as 0 1: each is a row. At 0, the default, a model takes its most probable
    action; at 1 it draws actions by their probabilities."""
    baselines: tuple[Literal["random", "gold", "none"], ...] = ("random", "gold")
    """Baselines that get a row in each environment that has them: random, gold (the environment's expert). With none there
    are no such rows. One that models names as well has one row."""
    fold: Literal["train", "dev", "test", "none"] | None = None
    """Fold whose levels are played: train, dev or test; by default test in environments that have folds. With none the environment
    takes its default."""
    episodes: int = 100
    """Episodes of each environment in a row without a language model: of baselines, sb3:FILE and policies of your own."""
    llm_episodes: int | None = None
    """Episodes of each environment in a row with a language model. By default 3; the rows of the adapters that ship have numbers of
    their own."""

    @property
    def shows_stages(self) -> bool:
        """Whether the rows are those of `STAGES`: nobody has said what is played, who plays, or how a model is asked."""
        asked = (self.models, self.strategy, self.history)
        given = self.modes or self.temperatures or self.plan or self.options
        return self.environments == BENCHMARK and asked == (None,) * 3 and not given

    def rows(self) -> Players:
        """Return the rows that the user asks for, without the baselines."""
        if self.shows_stages:
            return read_plan(STAGES)
        asked = {"strategy": self.strategy, "history": self.history}
        return self.players(self.modes, ("text", "choose"), self.temperatures, **asked)

    def episodes_of(self, player: Player) -> int:
        """Return the number of episodes that a player plays in each environment."""
        if not player.asks_model:
            return self.episodes if player.episodes is None else player.episodes
        if self.llm_episodes is not None and (player.episodes is None or self.shows_stages):
            return self.llm_episodes
        return 3 if player.episodes is None else player.episodes


def plan_of(config: BenchConfig) -> Iterator[PlanRow]:
    """Yield the rows: of each environment the baselines, the policies that the user asks for, the expert, and who looks ahead."""
    rows = config.rows()
    check_environments(rows, config.environments)
    for environment in _installed(config):
        folded = has_folds(environment) if config.fold is None else config.fold != "none"
        arguments = {"fold": config.fold or "test"} if folded else {}
        wanted = {label: player for label, entries in rows.items() if (player := player_in(environment, entries))}
        with naming(environment):
            baselines = [name for name in _baselines_of(environment, arguments) if name in config.baselines]
        added = {label_of(name): Player(name) for name in baselines}
        last = {label: added.pop(label) for label in (EXPERT,) if label in added}
        players = {**added, **wanted, **last}
        for label, player in sorted(players.items(), key=lambda item: item[1].lookahead is not None):
            count = config.episodes_of(player)
            if count or not player.asks_model:  # else its model need not be loaded
                seeds = range(config.first_seed, config.first_seed + count)
                yield PlanRow(label, environment, player.policy, seeds, arguments)


def _installed(config: BenchConfig) -> Iterator[str]:
    """Yield the environments that are played: those that the user names, or those of the default that are installed."""
    for environment in config.environments:
        try:
            if config.environments == BENCHMARK:
                environment_maker(environment)().close()
            yield environment
        except MissingDependencyError as error:
            _logger.warning("%s is left out. %s", environment, error)


def _baselines_of(environment: str, arguments: Mapping[str, Any]) -> list[str]:
    with closing(environment_maker(environment, **arguments)()) as env:
        possible = {
            "random": text_spec(env).lists_actions,
            "gold": has_expert(env) and getattr(env.unwrapped, "expert", "") != "off",
        }
    return [name for name, is_possible in possible.items() if is_possible]


def run(config: BenchConfig) -> tuple[Table, EpisodeStore]:
    """Play what is missing, with progress on stderr, and write the tables; return the table in Markdown and the episodes."""
    import_extra("scipy", "bench")
    if config.shows_stages:
        _logger.info("%s", _BEFORE)
    identity = {"benchmark": "policies", "fold": config.fold or "test"}  # a later run may add rows and episodes
    with open_run(config.folder, identity, plan_of(config), config) as run:
        run.play(Progress())
        measure(run, config.orders, config.best_actions)
        return markdown(write_table(run, config)), run.store


def command(config: BenchConfig) -> str:
    """Play what is missing; return the table, the folder that keeps the episodes, and where the report is.

    Raises:
        RunError: If all episodes of the table ended in an error; the files are written.
    """
    table, store = run(config)
    check_some_played(store.folder, table.rows)
    parts = [f"\n{fitted(table.rows)}\n", f"Episodes, tables (table.md, table.json) and configuration: {store.folder}"]
    if config.shows_stages:
        film_wins(store.folder)  # one of each environment
        page = write_report([store.folder], store.folder / "report.html", episodes=_SHOWN, title="What each stage brings")
        parts.append(f"Report, with bars, pairs of policies, and episodes to step through: {page}")
    else:
        what = "a page of bars, pairs of policies, and episodes to step through"
        parts.append(f"gym-text report {shlex.quote(str(store.folder))} makes {what}.")
    return "\n".join(parts)
