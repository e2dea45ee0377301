"""For TRL's `GRPOTrainer` (TRL 1.16): a class for its `environment_factory`, and a dataset whose rows are levels.

TRL makes one instance for each completion of a batch and calls its ``reset(**row)``. The public methods are the model's tools; here
`act` is the only one. Rows of equal seed and fold play equal levels, so the completions of a group differ only by what the
model says.

A model whose chat template has no tools plays by `gym_text_policies.bridges.trl_rollout.trl_rollout`, with the same dataset.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.folds import MAX_SEED, Fold
from gym_text.spec import TextSpec
from gym_text_policies.backends.local.adapters import CONFIG, RECORD, TEMPLATE
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import level_maker, level_row
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import learner_of, policy_of, prompt_record
from gym_text_policies.environments import levels_of
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.game import is_of_episode
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import TOOL_STRATEGIES, TOOL_STRATEGY
from gym_text_policies.prompts.tools import tool_docstring

_logger = logging.getLogger(__name__)


def trl_environment(environment: str, *, strategy: str = TOOL_STRATEGY) -> type[TRLEnvironment]:
    """Return a class for TRL's `environment_factory`. TRL makes its instances without arguments.

    Args:
        environment: A registered environment with texts, or one of Gymnasium's that `DescribeObservation` knows, with arguments
            as in ``BabyAIText-v0?task=goto&max_episode_steps=24``. The fold comes from the row.
        strategy: The messages' template, the same as in `trl_dataset`: ``tool``, or ``tool_short``, which tells after the first
            observation only what has changed.

    Raises:
        UsageError: If there is no such environment or strategy, or its name has a fold.
    """
    check_choice("strategy", strategy, TOOL_STRATEGIES)
    with level_maker(environment, "train")() as env:
        spec: TextSpec = text_spec(env)

    class Environment(TRLEnvironment):
        _id = environment
        asked = dataclasses.replace(TRLEnvironment.asked, strategy=strategy)

        def act(self, action: str) -> str:
            if self.game.end is not None:
                return "The game is over. Do not act any more."
            return self._reply(self.game.play, "" if action is None else str(action))

    Environment.act.__doc__ = tool_docstring(spec)
    env_id, _, task = levels_of(environment).partition("?")
    name = "_".join(filter(None, re.split(r"\W+", f"{env_id.partition('-')[0]} {task}")))  # as in BabyAIText_task_goto
    Environment.__name__ = Environment.__qualname__ = name  # TRL names the reward after the class
    return Environment


def trl_dataset(environment: str, fold: Fold, seeds: Iterable[int], *, strategy: str = TOOL_STRATEGY) -> Any:
    """Return a `datasets.Dataset` with a row for each level: ``prompt``, ``id``, ``environment``, ``fold``, ``seed``, ``strategy``.

    The prompt describes the game; `TRLEnvironment.reset` adds the level's goal and first observation. Each message also has the
    keys ``environment``, ``fold`` and ``seed``, because TRL passes only the prompts to a `rollout_func`. The column ``environment``
    is without arguments that do not change the level, such as ``max_episode_steps``.

    Args:
        environment: See `trl_environment`.
        fold: ``train``, ``dev`` or ``test``.
        seeds: Seeds of the levels.
        strategy: See `trl_environment`.

    Raises:
        UsageError: If there is no such environment, fold or strategy, or a seed is not a whole number from 0 on.
        MissingDependencyError: If `datasets` is not installed.
    """
    datasets = import_extra("datasets", "trl")
    check_choice("strategy", strategy, TOOL_STRATEGIES)
    with contextlib.closing(Conversation(level_maker(environment, fold), strategy, calls=True)) as game:
        game.begin(0)
        system, _ = game.messages()
    rows, name = [], levels_of(environment)
    for seed in seeds:
        row = level_row(name, fold, check_int("seed", seed, 0, MAX_SEED))
        level = {key: row[key] for key in ("environment", "fold", "seed")}
        messages = [{"role": "system", "content": system, **level}, {"role": "user", "content": "", **level}]
        rows.append({"prompt": messages, **row, "strategy": strategy})
    return datasets.Dataset.from_list(rows)


def check_row(row: Mapping[str, Any], **expected: str) -> None:
    """Raise `UsageError` if a row is of another environment or strategy than expected. What the row lacks is not compared."""
    for name, value in expected.items():
        if (got := row.get(name)) not in (None, value):
            raise UsageError(f"{name}: expected rows of trl_dataset for {value!r}, which is played; got one for {got!r}.")


def trl_record(folder: str | Path, played: Any, trainer: Any) -> None:
    """Write beside a model that TRL has saved how it was asked in training.

    After that `load_policy` and ``gym-text bench --models FOLDER`` ask the model in the same way: by calls of the tool or in words,
    with the chat template of the training, which TRL does not save if it has replaced the tokenizer's.

    Args:
        folder: The model's or the adapter's folder, after ``trainer.save_model(folder)``; or a checkpoint.
        played: What played in training: what `trl_environment` or `trl_rollout` has returned. Or the folder of the rows of
            ``gym-text collect`` from which `SFTTrainer` or `DPOTrainer` has learnt, by ``gym-text export``.
        trainer: The trainer.

    Raises:
        UsageError: If there is no model in the folder, or `played` is something else.
    """
    folder = Path(folder)
    if not any((folder / name).is_file() for name in (CONFIG, "config.json")):
        raise UsageError(f"trl_record: expected the folder of a model or an adapter, saved before; got {folder}.")
    tokenizer = trainer.processing_class
    if isinstance(played, str | Path):
        rows = read_rows(played)
        asked: Any = learner_of(policy_of(rows), tokenizer, [row.tool for row in rows])
    else:
        asked = getattr(played, "asked", None)
    if not isinstance(asked, PolicyConfig):
        expected = "what trl_environment or trl_rollout has returned, or a folder of rows"
        raise UsageError(f"trl_record: expected {expected}; got {played!r}.")
    switch, given = format_of(tokenizer).switch, getattr(trainer.args, "chat_template_kwargs", None) or {}
    if asked.think is None and switch and isinstance(think := given.get(switch), bool):
        asked = dataclasses.replace(asked, think=think)
    write_atomically(folder / TEMPLATE, getattr(trainer, "chat_template", None) or tokenizer.chat_template)
    record = {**prompt_record(asked), "made_by": {"trl": version("trl")}}
    if asked.own_words:
        record["asked"]["own_words"] = True
    write_atomically(folder / RECORD, json.dumps(record, indent=2) + "\n")


class TRLEnvironment:
    """An environment with the methods that TRL calls. `trl_environment` makes subclasses, which have the tool `act`."""

    _id: str
    _has_warned_of_cuts = False
    asked = PolicyConfig("trl", mode="tool", strategy=TOOL_STRATEGY, history="all", with_reward=False, own_words=True)
    """How the model is asked, for `trl_record`."""

    def __init__(self) -> None:
        self._fold: Fold = "train"
        self.game = Conversation(lambda: level_maker(self._id, self._fold)(), str(self.asked.strategy), calls=True)
        """The episode: its success, steps and unusable answers."""

    def reset(self, *, seed: int | None = None, fold: Fold = "train", **row: Any) -> str:
        """Begin the level of a row, and return its task, the observation and the possible actions as a text for the model.

        Args:
            seed: Seed of the level.
            fold: Fold of the level.
            row: Other columns of the dataset: ``environment`` and ``strategy`` have to be this one's; others are not used.

        Raises:
            UsageError: If there is no seed: without it the completions of a group would play different levels. Or if the row is of
                another environment or strategy.
        """
        if seed is None:
            raise UsageError("reset: expected a row with the column 'seed', as trl_dataset makes it; got none.")
        check_row(row, environment=levels_of(self._id), strategy=str(self.asked.strategy))
        if fold != self._fold:
            self.game.close()
            self._fold = fold
        return self._reply(self.game.begin, int(seed))

    def get_reward(self) -> float | None:
        """Return the sum of the episode's rewards, or None after an error of the environment. TRL learns nothing from None.

        If the episode has begun and is not over, this is logged, once.
        """
        if self.game.steps and self.game.end is None and not type(self)._has_warned_of_cuts:
            type(self)._has_warned_of_cuts = True
            _logger.warning(
                "%s: an episode was not over when its reward was asked for, after %d steps. If the model went on calling the tool, "
                "raise GRPOConfig's max_completion_length, which counts what the tool returns too, or max_tool_calling_iterations.",
                *(self._id, self.game.steps),
            )
        return None if self.game.end == "error" else self.game.score

    def _reply(self, play: Callable[[Any], str], what: Any) -> str:
        """Return the text that the model reads next. An error of the environment ends only this episode."""
        try:
            return play(what)
        except Exception as error:
            if not is_of_episode(error):
                raise
            _logger.warning("%s: an episode has failed and is not learnt from: %s", self._id, error)
            return f"The game is over: {error}"
