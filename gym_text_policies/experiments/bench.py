"""`gym-text bench`: play policies in environments, and make one table of the stored episodes."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gym_text.errors import MissingDependencyError, check_choice, check_int, import_extra
from gym_text.experts import has_expert
from gym_text.registration import BENCHMARK, LONG
from gym_text_policies.backends.local.adapters import ADAPTERS
from gym_text_policies.engines.base import Engine, EpisodeJob
from gym_text_policies.engines.options import PlayOptions
from gym_text_policies.environments import environment_maker, names_environment, parse_environment
from gym_text_policies.experiments.bench_table import Row, tabulate
from gym_text_policies.experiments.play_missing import check_some_played, play_missing
from gym_text_policies.experiments.players import EXPERT, Players, at_temperature, label_of
from gym_text_policies.experiments.progress import ProgressBar
from gym_text_policies.experiments.series import Series, naming
from gym_text_policies.experiments.variants import Variant, read_variants
from gym_text_policies.policies.baselines import controller_of
from gym_text_policies.policies.config import WITHOUT_MODEL, PolicyConfig
from gym_text_policies.policy import text_spec
from gym_text_policies.remake import owner_of
from gym_text_policies.report import write_report
from gym_text_policies.report.films import film_wins
from gym_text_policies.report.fitted import fitted
from gym_text_policies.report.table import markdown
from gym_text_policies.store import EpisodeStore

_BEFORE = (
    "First table: what each stage of training brings, in three environments. It takes five to ten minutes on two cores. "
    "Ctrl-C stops it, and the same command goes on."
)
_SHOWN = 16
"""Episodes to step through in the report."""
STAGES = ADAPTERS / "stages.yaml"
"""The rows of the first table, as a file of variants."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchConfig(PlayOptions, Players):
    """Play policies in environments, and make one table of the results. A second run plays only what is missing in the folder.

    A command that names no environments, models or modes, and does not say how a model is asked, also plays the adapters that ship:
    its rows show what each stage of training brings. With several temperatures the command says where they differ much.
    """

    folder: str = "runs/policies"
    """Run folder, which keeps episodes, tables and configuration. Episodes that it has are not played again."""
    environments: tuple[str, ...] = BENCHMARK
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto&num_dists=2. Gymnasium's own environments may be
    among them."""
    baselines: tuple[Literal["random", "gold", "controller", "none"], ...] = ("random", "gold", "controller")
    """Baselines that get a row in each environment that has them: random, gold (the environment's expert), controller. With none
    there are no such rows."""
    fold: Literal["train", "dev", "test", "none"] = "test"
    """Fold whose levels are played: train, dev or test. With none the environment takes its default."""
    episodes: int = 100
    """Episodes of each environment in a row without a language model."""
    llm_episodes: int | None = None
    """Episodes of each environment in a row with a language model. By default 3; the rows of the adapters that ship have numbers of
    their own."""
    wide: bool = False
    """Show all columns of the table. By default those are shown that fit into 120 characters; table.md and table.json have all."""
    report: bool | None = None
    """Whether a report is made, report.html in the folder, with a film of an episode that a language model has won. By default one
    is made of a run that shows what each stage of training brings."""
    skip_llm: tuple[str, ...] = LONG
    """Environments that language models do not play. An episode of 999 steps takes a small model over five minutes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for environment in (*self.environments, *self.skip_llm):
            parse_environment(environment)
        check_choice("fold", self.fold, ("train", "dev", "test", "none"))
        for name in ("episodes", "llm_episodes"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0, 1_000_000)
        for name in self.baselines:
            check_choice("baselines", name, (*WITHOUT_MODEL, "none"))
        Players.__post_init__(self)

    def identity(self) -> dict[str, Any]:
        """Return the settings that all runs into one folder share; a later run may add rows and episodes."""
        return {"benchmark": "policies", "fold": self.fold}

    @property
    def shows_stages(self) -> bool:
        """Whether the rows are those of `STAGES`: nobody has said what is played, who plays, or how a model is asked."""
        asked = (self.models, self.strategy, self.history, self.think, self.think_tokens)
        given = self.modes or self.temperatures or self.variants or self.options
        return self.environments == BENCHMARK and asked == (None,) * 5 and not given

    def rows(self) -> dict[str, Variant]:
        """Return the rows that the user asks for: name -> policy, number of episodes and environments."""
        if self.shows_stages:
            rows = read_variants(STAGES, self.trust)
            return rows if self.llm_episodes is None else {name: replace(row, episodes=None) for name, row in rows.items()}
        return super().rows()


def differing(rows: Sequence[Mapping[str, Any]], temperatures: Sequence[float]) -> Iterator[str]:
    """Yield in words where greedy play and drawn play differ so much in success that their 95 % intervals lie apart.

    Args:
        rows: The figures of a table's rows.
        temperatures: Those of the rows. Greedy play has 0.
    """
    found = {(row["environment"], row["policy"]): row for row in rows if row["success"] is not None}
    for (environment, policy), greedy in found.items():
        for number in filter(None, temperatures):
            name = policy.removesuffix(at_temperature(0))
            drawn = found.get((environment, name + at_temperature(number)))
            if name == policy or drawn is None:
                continue
            (low, high), (least, most) = greedy["success_interval"], drawn["success_interval"]
            if high < least or most < low:
                circles = "Greedy play probably goes in circles: it repeats actions that change nothing. " if high < least else ""
                yield (
                    f"{environment}, {name}: greedy play wins {greedy['success']:.2f}, play at temperature {number:g} "
                    f"{drawn['success']:.2f}. {circles}Name the temperature beside a result of this model."
                )


def run(config: BenchConfig) -> tuple[str, EpisodeStore]:
    """Play what is missing, show progress on stderr, and write the tables.

    Returns:
        The table in Markdown, with what `differing` says below it, and the store of the episodes. An interrupted run keeps every
        finished episode.
    """
    played = _run(config)
    return markdown(played.figures, differing(played.figures, config.temperatures)), played.store


@dataclass(frozen=True)
class _Played:
    """What a run has played."""

    rows: Sequence[Row]
    figures: Sequence[dict[str, Any]]
    """The figures of the table's rows."""
    store: EpisodeStore
    stored_before: int
    """How many episodes were stored before."""


def _run(config: BenchConfig) -> _Played:
    """Play what is missing, show progress on stderr, and write the tables."""
    import_extra("scipy", "bench")
    if config.shows_stages:
        _logger.info("%s", _BEFORE)
    for label, variant in config.rows().items():
        variant.check_environments(label, config.environments)
    with EpisodeStore(config.folder, config.identity()) as store, config.make_engine() as engine:
        rows = [row for environment in _installed(config) for row in _rows(config, environment, engine)]
        series, bar = [row.series for row in rows], ProgressBar()
        stored_before = play_missing(store, series, engine, bar, retry_errors=config.retry_errors, fresh=config.fresh)
        return _Played(rows, tabulate(config, rows, store), store, stored_before)


def command(config: BenchConfig) -> str:
    """Play what is missing; return the table, the folder that keeps the episodes, and where the report is.

    Raises:
        RunError: If all episodes of the table ended in an error; the files are written.
    """
    played = _run(config)
    folder = played.store.folder
    check_some_played(folder, played.figures)
    parts = [f"\n{markdown(played.figures) if config.wide else fitted(played.figures)}\n"]
    parts += [*differing(played.figures, config.temperatures)]
    parts += [f"Episodes, tables (table.md, table.json) and configuration: {folder}"]
    if played.stored_before:
        all_episodes = sum(len(row.series.seeds) for row in played.rows)
        parts.append(f"{played.stored_before} of {all_episodes} episodes were stored there before; --fresh plays them again.")
    if config.report or (config.report is None and config.shows_stages):
        imports = sorted({owner_of(parse_environment(row.environment)[0]) for row in played.rows})
        film_wins(folder, imports=imports)
        title = "What each stage brings" if config.shows_stages else folder.name
        report = write_report([folder], folder / "report.html", episodes=_SHOWN, title=title, imports=imports)
        parts.append(f"Report, with bars, pairs of policies, and episodes to step through: {report}")
    else:
        page = "a page of bars, pairs of policies, and episodes to step through"
        parts.append(f"gym-text report {shlex.quote(str(folder))} makes {page}.")
    return "\n".join(parts)


def _installed(config: BenchConfig) -> tuple[str, ...]:
    """Return the environments that are played: those that the user names, or those of the default that are installed."""
    if config.environments != BenchConfig.environments:
        return config.environments
    installed = []
    for environment in config.environments:
        try:
            environment_maker(environment)().close()
            installed.append(environment)
        except MissingDependencyError as error:
            _logger.warning("%s is left out. %s", environment, error)
    return tuple(installed)


def _rows(config: BenchConfig, environment: str, engine: Engine) -> list[Row]:
    """Return the rows of one environment: the baselines, the policies that the user asks for, the expert, and who looks ahead."""
    arguments = {} if config.fold == "none" else {"fold": config.fold}
    with naming(environment):
        env = environment_maker(environment, **arguments)()
    possible = {
        "random": text_spec(env).lists_actions,
        "controller": controller_of(env) is not None,
        "gold": has_expert(env) and getattr(env.unwrapped, "expert", "") != "off",
    }
    env.close()
    skipped = any(names_environment(name, environment) for name in config.skip_llm)
    playing = {label: row.playing(environment) for label, row in config.rows().items()}
    wanted = {label: variant for label, variant in playing.items() if variant and not (skipped and variant.policy.asks_model)}
    added = {label_of(name): Variant(PolicyConfig(name)) for name in possible if possible[name] and name in config.baselines}
    last = {label: added.pop(label) for label in (EXPERT,) if label in added}
    rows = []
    labelled = {**added, **wanted, **last}
    for label, variant in sorted(labelled.items(), key=lambda item: item[1].policy.lookahead is not None):
        default = config.episodes if not variant.policy.asks_model else 3 if config.llm_episodes is None else config.llm_episodes
        count = default if variant.episodes is None else variant.episodes
        if variant.policy.asks_model and not count:
            continue  # its model need not be loaded
        job = EpisodeJob(environment, arguments, variant.policy, num_envs=config.num_envs, max_concurrency=config.max_concurrency)
        seeds = range(config.first_seed, config.first_seed + count)
        rows.append(Row(environment, label, Series.of(f"{environment} {label}", job, engine, seeds)))
    return rows
