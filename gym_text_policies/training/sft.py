"""Supervised fine-tuning: a language model learns the labels of a dataset, by transformers' `Trainer` and an adapter of peft.

Several conversations are packed into one row of the model without padding. The model reads their common prefix once, and computes
logits only for the tokens of answers; see `gym_text_policies.training.model.layouts`. The loss is the mean of -log P over the
tokens of the answers, the end of turn included. The mode ``choose`` plays by the same probabilities.

Data of a model that thinks have a thought before each answer. The thought counts in the loss as well, with what opens and closes it
in the model's chat template. The adapter's record says whether the model thinks. An answer without a thought is learnt where the
template puts one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text_policies.backends.local.adapters import base_and_adapter, read_template, template_of
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.rows import Row, exchange_names, learner_of, policy_of, prompt_record
from gym_text_policies.environments import check_no_fold
from gym_text_policies.training.model.lora import (
    add_lora,
    checkpoint_layers,
    compile_layers,
    environment_record,
    load_base,
    set_dtype,
)
from gym_text_policies.training.model.player import player_of
from gym_text_policies.training.model.saving import save_adapter, where_it_is
from gym_text_policies.training.options import MAY_CHANGE, Schedule, TrainingOptions
from gym_text_policies.training.run_folder import claim
from gym_text_policies.training.trainer import last_checkpoint, make_trainer, steps_done, stopping_at_a_step
from gym_text_policies.training.trajectories import play_dev_fold, tell_without_thoughts

MAX_GRAD_NORM = 1.0
"""Longer gradients are scaled down to this norm."""
MOST_MARKERS = 64
"""More bytes than a chat template adds to a message."""
_logger = logging.getLogger(__name__)
_MAY_CHANGE = (*MAY_CHANGE, "compiled", "max_steps", "save_steps")
"""Settings that may change when a run is continued."""


@dataclass(frozen=True, kw_only=True)
class SFTConfig(TrainingOptions):
    """Teach a language model the answers of a dataset, by supervised fine-tuning with LoRA."""

    data: tuple[str, ...] = ("runs/data/rows",)
    """Datasets of gym-text collect: folders, or hf:OWNER/NAME of the hub."""
    folder: str = "runs/sft"
    rank: int | None = None
    """Rank of a new adapter; by default 16. An adapter that is trained further keeps its rank: another one is refused."""
    chat_template: str = ""
    """File of a chat template that replaces the model's, for instance one with thoughts. The adapter keeps it. tools is the one
    that ships, with which models whose turns begin with <|im_start|>, such as SmolLM2, learn to call tools."""
    learning_rate: float = 5e-4
    schedule: Schedule = "cosine"
    """How the learning rate changes in the course of training, after the warm-up: cosine (to 0), linear (to 0) or constant."""
    warmup: int = 5
    """Steps in which the learning rate rises from 0."""
    epochs: float = 1.0
    """How often the model learns from each row."""
    max_steps: int = 0
    """Number of optimiser steps after which training ends; 0: it ends after all epochs. A finished run goes on if this number is
    raised."""
    rows_per_step: int = 8
    """Conversations in one step of the optimiser."""
    tokens_per_pass: int = 2048
    """Number of tokens in one forward and backward pass: those of as many conversations as fit, or of one that is longer. In a
    packed row what they have in common counts once. The result does not depend on it; 1,000 tokens of SmolLM2-135M take 2.5 GB."""
    save_steps: int = 20
    """Steps of the optimiser from one checkpoint to the next."""
    dev_environments: tuple[str, ...] = ()
    """Environments whose dev fold is played at every checkpoint; the checkpoint with the highest success is kept. Without any, the
    last checkpoint is kept."""
    compiled: bool = False
    """Compile the model's layers (torch.compile): steps get faster after some minutes. It needs a C++ compiler."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_no_fold("dev_environments", self.dev_environments, "dev")
        for name in ("rows_per_step", "tokens_per_pass", "save_steps"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        for name in ("max_steps", "warmup"):
            check_int(name, getattr(self, name), 0, 2**31 - 1)
        if self.rank is not None:
            check_int("rank", self.rank, 1, 1_000_000)
        self.check_positive("epochs")


def sft(config: SFTConfig, rows: Sequence[Row] | None = None) -> Path:
    """Train, and return the folder of the adapter.

    Args:
        config: The settings.
        rows: The rows to learn from; None: those of ``config.data``.

    Raises:
        UsageError: If the data or the run folder does not fit the settings. Nothing is overwritten.
        RunError: If a loss or a gradient is not finite; the last checkpoint is kept.
        StoreError: If the disk is full; the last checkpoint is kept.
    """
    result = Path(config.folder) / "adapter"
    if result.exists() and config.max_steps <= (done := steps_done(config.folder)):
        raise UsageError(
            f"{config.folder}: expected a run that is not done; {result} exists already, after {done} steps. "
            f"Name another folder, or set max_steps above {done} to continue."
        )
    rows = list(rows) if rows is not None else [row for source in config.data for row in read_rows(source)]
    asked = policy_of(rows)
    if config.interchangeable:
        rows = exchange_names(rows, config.interchangeable, config.seed)
    with claim("sft", config, _MAY_CHANGE):
        model, tokenizer = _load(config)
        policy = learner_of(asked, tokenizer, {row.tool for row in rows})
        tell_without_thoughts(policy)
        rows = within_window(rows, model, tokenizer)
        record = prompt_record(policy)  # before training: somebody may edit the template during the run

        def play() -> list[bool]:
            return play_dev_fold(player_of(model, tokenizer, config.dtype), config.dev_environments, config.dev_episodes, policy)

        trainer = make_trainer(
            _arguments(config, model), model, tokenizer, rows, record, play, tokens_per_pass=config.tokens_per_pass
        )
        with stopping_at_a_step(trainer):
            trainer.train(resume_from_checkpoint=last_checkpoint(config.folder))
        made_by = {"sft": dataclasses.asdict(config), "data": _origin(rows), "ran_on": environment_record()}
        record |= {"made_by": made_by, "curve": _curve(trainer.state.log_history)}
        save_adapter(model, result, record)  # this run may have saved one after fewer steps
        return result


def run(config: SFTConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return where_it_is(sft(config))


def _load(config: SFTConfig) -> tuple[Any, Any]:
    """Return the model to train, with its adapter, and its tokenizer."""
    import_extra("torch", "train").manual_seed(config.seed)
    base, adapter = base_and_adapter(config.model)
    template = read_template(config.chat_template) if config.chat_template else template_of(adapter)
    model, tokenizer = load_base(base, dtype=config.dtype, chat_template=template)
    model = add_lora(model, adapter=adapter, rank=config.rank)
    set_dtype(model, config.dtype)
    if config.compiled:
        compile_layers(model)
    if config.gradient_checkpointing:
        checkpoint_layers(model)
    return model, tokenizer


def within_window(rows: Sequence[Row], model: Any, tokenizer: Any) -> list[Row]:
    """Return the rows that are not longer than the model's window, and tell how many are.

    Raises:
        UsageError: If none is left.
    """
    from gym_text_policies.backends.local.exactness import window_of
    from gym_text_policies.training.model.sequences import Conversation

    window = window_of(model.config)

    def fits(row: Row) -> bool:
        # A token has at least one byte; only of a row with more bytes, or with calls, are the tokens counted.
        texts = [*(message["content"] for message in row.messages), *row.thoughts]
        most = sum(len(text.encode()) + MOST_MARKERS for text in texts)
        short = most <= window and not row.tool
        return short or Conversation.of(tokenizer, row.examples()).length <= window

    kept = [row for row in rows if fits(row)]
    if not kept:
        raise UsageError(f"data: expected rows of at most {window} tokens, the model's window; all are longer. Show less history.")
    if left_out := len(rows) - len(kept):
        _logger.warning("%d of %d rows are longer than the model's window of %d tokens: left out.", left_out, len(rows), window)
    return kept


def _arguments(config: SFTConfig, model: Any) -> Any:
    """Return the settings as transformers' `TrainingArguments`."""
    transformers = import_extra("transformers", "train")
    plays_dev_fold = bool(config.dev_environments)
    arguments = transformers.TrainingArguments(
        output_dir=config.folder,
        per_device_train_batch_size=config.rows_per_step,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule if config.schedule != "constant" else "constant_with_warmup",
        warmup_steps=config.warmup,
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        max_grad_norm=MAX_GRAD_NORM,
        bf16=config.dtype == "bfloat16",
        logging_steps=1,
        save_steps=config.save_steps,
        save_total_limit=2,
        eval_strategy="steps" if plays_dev_fold else "no",
        eval_steps=config.save_steps,
        load_best_model_at_end=plays_dev_fold,
        metric_for_best_model="success" if plays_dev_fold else None,
        greater_is_better=True if plays_dev_fold else None,
        report_to=config.report_to,
        remove_unused_columns=False,
        seed=config.seed,
        data_seed=config.seed,
        dataloader_pin_memory=False,
        use_cpu=model.device.type == "cpu",
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else Trainer copies the model to all GPUs
    return arguments


def _origin(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the data's part of an adapter's record: the numbers of rows and decisions, and of rows of each environment."""
    environments = Counter(_environment_name(row.environment) for row in rows)
    return {"rows": len(rows), "decisions": sum(row.decisions for row in rows), "environments": dict(sorted(environments.items()))}


def _environment_name(environment: str) -> str:
    data = json.loads(environment)
    arguments = "&".join(f"{key}={value}" for key, value in sorted(data["kwargs"].items()) if key != "expert")
    return f"{data['id']}?{arguments}" if arguments else str(data["id"])


def _curve(log: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return the learning curve in the log of a `Trainer`: at most 200 lines of losses, then all lines of the dev fold."""
    losses = [line for line in log if "loss" in line]
    every = -(-len(losses) // 200) or 1
    curve = [{key: line[key] for key in ("step", "loss", "learning_rate")} for line in losses[::every]]
    keys = ("step", "eval_success", "eval_episodes")
    return curve + [{key: line[key] for key in keys if key in line} for line in log if "eval_success" in line]
