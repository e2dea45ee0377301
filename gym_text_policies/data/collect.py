"""`collect`: let a policy play the train fold, and make training data of its episodes.

Four kinds of data:

* Gold data: the environment's expert plays. Training uses episodes that are won and in which each action was valid.
* A policy's own data: any policy plays, and its answers are the labels. Training uses episodes at or above a threshold.
* A policy's own wins, trimmed (`gym_text_policies.data.trimming`): played again without the actions that they did not take. So a
  random action (`noise`) is no label, unless the win needs it.
* DAgger's data: any policy plays, and the expert (``expert="replan"``) labels every state with the action that the expert would
  take there. Training uses all episodes.

With `noise` or `expert_share` the data are DAgger's data: with that probability a random action, or the expert's action, is played
instead of the policy's. A model that has seen nothing but the expert's path does not know what to do in other states (Ross et al.
2011, https://arxiv.org/abs/1011.0686). An episode may end in an error, for instance if the expert has no plan any more. Training
uses the steps before the error.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gym_text.episode_state import Expert
from gym_text.errors import PolicyError, UsageError, check_choice
from gym_text.experts import check_expert, replanning
from gym_text.registration import TRAINING
from gym_text_policies.backends.base import THINKING
from gym_text_policies.data.calls import said_in
from gym_text_policies.data.dataset import write_rows
from gym_text_policies.data.rows import LABELS, Labels, Row, rows_of, trained_as, training_prompt
from gym_text_policies.data.trimming import trimmed
from gym_text_policies.environments import check_no_fold, environment_maker, fold_arguments
from gym_text_policies.policies.config import OF_SEARCH, PolicyConfig, PromptOptions
from gym_text_policies.policy import check_lists_actions, text_spec
from gym_text_policies.records import Episode
from gym_text_policies.report.replay import best_actions_in
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import PlayOptions, Run, RunRow, check_some_played, open_run
from gym_text_policies.run.progress import Progress

_logger = logging.getLogger(__name__)
_BELOW = "below the threshold"
_DEFAULTS = {"temperature": 0.0, "noise": 0.0, "expert_share": 0.0, "seed": 0}
"""Defaults for settings of the player that every stored episode records, also if the user gives none."""
_RECORDED_IF_GIVEN = (*THINKING, "history_thoughts", *OF_SEARCH)
"""Settings of the player that are recorded only where they were given."""


@dataclass(frozen=True)
class CollectConfig(PlayOptions, PromptOptions):
    """Play episodes of the train fold, and turn the good ones into training data."""

    folder: str = "runs/data"
    """Run folder, which keeps the episodes, and the dataset in ``rows``. A run that was stopped goes on from its stored
    episodes."""
    environments: tuple[str, ...] = (TRAINING,)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto. Only their train fold is played."""
    episodes: tuple[str, ...] = ("200",)
    """Episodes of each environment: one number for all, or one for each."""
    model: str = "gold"
    """Who plays: gold (the expert), random, or a language model, such as smollm2 or adapters/NAME."""
    noise: float | None = None
    """Probability that an action drawn at random is played instead of the policy's."""
    expert_share: float | None = None
    """Probability that the expert's action is played instead of the policy's."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More settings of who plays, such as mode, temperature, seed, think, lookahead, simulations; and options of a language model's
    backend: dtype, device, base_url, timeout, retries, cache, prices, max_cost …"""
    labels: Literal["", "own", "expert"] = ""
    """Answers in the training data: expert (the expert's answer in every state), or own (the player's answers). By default expert
    if noise or expert_share is given, else own."""
    threshold: float = 0.7
    """Least progression (1 if won, else the last score) of an episode whose own answers become data. Episodes that the expert plays
    have to be won."""
    trim: bool = False
    """Learn from each win what it took: it is played again without each action that it did not need, so long as the player still
    reads every word on the way."""
    best_actions: bool = False
    """With the expert's labels: note in each row all actions after which the expert, in copies of the game, needs the fewest steps.
    gym-text export --format systemone then gives them equal probabilities."""

    def __post_init__(self) -> None:
        check_no_fold("environments", self.environments, "train")
        self.counts()
        check_choice("labels", self.labels, ("", *LABELS))
        if self.trim and self.labels == "expert":
            raise UsageError("trim: expected labels='own', which are trimmed; got 'expert'. Leave out one of the two.")
        if self.best_actions and self.learnt != "expert":
            raise UsageError(f"best_actions: expected labels='expert'; got {self.learnt!r}. Add --labels expert.")
        if (self.asked.noise or self.asked.expert_share) and self.labels == "own" and not self.trim:
            raise UsageError("labels='own': expected noise=0 and expert_share=0, or trim; a random action must not become a label.")

    @property
    def asked(self) -> PolicyConfig:
        """The player's settings that the user gives, and defaults for settings that every stored episode records."""
        mixed: dict[str, Any] = {"noise": self.noise, "expert_share": self.expert_share}
        return PolicyConfig(self.model, strategy=self.strategy, history=self.history, options=self.options, **mixed).with_defaults(
            _DEFAULTS
        )

    @property
    def prompting(self) -> PolicyConfig:
        """Prompt settings of the player and of the model that will learn: the user's, else those of the adapter's training."""
        return trained_as(self.asked, self.model)

    @property
    def player(self) -> PolicyConfig:
        """Who plays."""
        return self.prompting.for_any()

    @property
    def learnt(self) -> Labels:
        """Whose answers are learnt."""
        noisy = (self.asked.noise or self.asked.expert_share) and not self.trim
        return self.labels or ("expert" if noisy else "own")

    def check_answers(self) -> None:
        """Raise `UsageError` if the rows would not be what the settings ask for.

        That is so if a strategy asks for thoughts in the answers, and these would have none; or for prompts in the player's words.
        """
        if self.asked.own_words:
            raise UsageError(
                "own_words: expected False, because the rows' prompts have the names of earlier actions; got True. Leave it out. "
                "gym-text export --format openai writes a player's answers (--labels own) in its own words."
            )
        writes = self.player.asks_model and self.prompting.mode != "choose" and self.learnt == "own"
        if training_prompt(self.prompting).thinks and not writes:
            raise UsageError(
                f"strategy {self.prompting.strategy!r}: expected the own answers of a language model in mode 'text' or 'json' "
                f"(--options mode=text --labels own), which have the thoughts that this strategy asks for; "
                f"got model={self.model!r}, mode={self.prompting.mode!r}, labels={self.learnt!r}."
            )

    def counts(self) -> tuple[int, ...]:
        """Return the number of episodes of each environment."""
        if len(self.episodes) not in (1, len(self.environments)) or not all(str(n).isdecimal() for n in self.episodes):
            raise UsageError(
                f"episodes: expected one number, or one for each of {len(self.environments)} environments; got {self.episodes}."
            )
        counts = tuple(int(number) for number in self.episodes)
        return counts * len(self.environments) if len(counts) == 1 else counts

    def identity(self) -> dict[str, Any]:
        """Return the settings that all runs into one folder must share, by their keys in ``config.json``: who plays, and how."""
        names = ("mode", "strategy", "with_reward", "temperature", "noise", "expert_share", "seed")
        prompting = self.prompting
        return {
            "collected": "episodes",
            "policy": self.model,
            "labels": self.labels,
            "history": str(prompting.history),
            **{name: getattr(prompting, name) for name in names},
            **({"tokens": True} if prompting.tokens else {}),
            **{name: value for name in _RECORDED_IF_GIVEN if (value := getattr(prompting, name)) is not None},
        }


def collect(config: CollectConfig) -> list[Row]:
    """Play what is missing, write the dataset and return its rows.

    Raises:
        UsageError: If the episodes give no row to learn from.
        RunError: If all episodes ended in an error.
    """
    config.check_answers()
    distinct: dict[tuple[Any, ...], Row] = {}  # rows by their texts and labels: of duplicates the first one stays
    fates: Counter[str] = Counter()
    with open_run(config.folder, config.identity(), plan_of(config), config) as run:
        run.play(Progress())
        for row in run.rows:
            fates += _add_rows(distinct, config, row, run)
    summary = ", ".join(f"{number} {fate}" for fate, number in fates.items())
    _logger.info("Episodes: %s. Rows: %d.", summary, len(distinct))
    if not distinct:
        check_some_played(config.folder, [{"error": fates["ended in an error"], "episodes": fates.total()}])
        advice = " Lower the threshold." if fates[_BELOW] else ""
        raise UsageError(f"{config.folder}: expected episodes to learn from; none is left ({summary}).{advice}")
    rows = list(distinct.values())
    folder = Path(config.folder) / "rows"
    write_rows(rows, folder)  # each call makes the dataset anew from the stored episodes
    return rows


def plan_of(config: CollectConfig) -> Iterator[PlanRow]:
    """Yield a row for each environment."""
    is_gold, asked = config.model == "gold", config.asked
    plays_anew = config.learnt == "expert" or asked.expert_share or (is_gold and asked.noise)
    expert: Expert = "replan" if plays_anew else "path" if is_gold else "off"
    for environment, count in zip(config.environments, config.counts(), strict=True):
        arguments = fold_arguments(environment, "train", expert=expert)
        if expert != "off" or config.trim:
            with closing(environment_maker(environment, **arguments)()) as env:
                if expert != "off":
                    check_expert(env, "model 'gold'" if is_gold else "expert_share" if config.trim else "labels='expert'")
                if config.trim:
                    check_lists_actions(text_spec(env), "trim")
                if config.best_actions:
                    replanning(env)
        seeds = range(config.first_seed, config.first_seed + count)
        yield PlanRow(config.player.label, environment, config.player, seeds, arguments)


def _add_rows(distinct: dict[tuple[Any, ...], Row], config: CollectConfig, row: RunRow, run: Run) -> Counter[str]:
    """Add the rows of an environment's episodes; return how many episodes were kept, and how many dropped for which reason."""
    make_env = environment_maker(row.plan.environment, **row.plan.arguments)
    with closing(make_env()) as env:
        spec = text_spec(env)
    bare = environment_maker(row.plan.environment, **fold_arguments(row.plan.environment, "train"))
    prompt = training_prompt(config.prompting)
    fates: Counter[str] = Counter()
    for episode in run.episodes(row):
        fate = _why_dropped(episode, config)
        if not fate:
            before = len(distinct)
            learnt = trimmed(episode, bare, spec) if config.trim else episode
            try:
                best = best_actions_in(episode, make_env, range(episode.length)) if config.best_actions else None
                for made in rows_of(learnt, spec, config.prompting, config.learnt, prompt, best=best):
                    distinct.setdefault((tuple(map(said_in, made.messages)), made.labels, made.thoughts), made)
                kept = "kept" if episode.error is None else "kept up to an error"
                fate = kept if len(distinct) > before else "duplicates or unlabelled"
            except PolicyError:
                fate = "with more actions than labels"
        fates[fate] += 1
    return fates


def _why_dropped(episode: Episode, config: CollectConfig) -> str:
    """Return why nothing is learnt from an episode, or an empty string."""
    if config.learnt == "expert":  # also episodes with an error: noise may have destroyed a box that the mission needs
        return ""
    if episode.error is not None:
        return "ended in an error"
    if config.trim:
        return "" if episode.outcome == "won" else "not won"
    if config.model == "gold":
        return "" if episode.outcome == "won" and not episode.invalid else "not won, or with an invalid action"
    progression = 1.0 if episode.outcome == "won" else episode.steps[-1].score if episode.steps else 0.0
    return "" if progression >= config.threshold else _BELOW


def run(config: CollectConfig) -> str:
    """Collect, and return a summary in one line."""
    rows = collect(config)
    return f"{len(rows)} rows with {sum(row.decisions for row in rows)} answers to learn: {Path(config.folder) / 'rows'}"
