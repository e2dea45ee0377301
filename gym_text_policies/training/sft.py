"""Supervised fine-tuning: a language model learns the labels of a dataset, with an adapter of peft.

Several conversations are packed into one row of the model without padding. The model reads their common prefix once, and computes
logits only for the tokens of answers; see `gym_text_policies.training.model.layouts`. The loss is the mean of -log P over the
tokens of the answers, the end of turn included. The mode ``choose`` plays by the same probabilities.

Data of a model that thinks have a thought before each answer. The thought counts in the loss as well, with what opens and closes it
in the model's chat template. The adapter's record says whether the model thinks. An answer without a thought is learnt where the
template puts one.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text_policies.data.dataset import read_rows
from gym_text_policies.data.exchange import exchange_names
from gym_text_policies.data.rows import Row, learner_of, policy_of, prompt_record
from gym_text_policies.environments import check_no_fold, environment_name
from gym_text_policies.training.loop import MAX_GRAD_NORM
from gym_text_policies.training.model.saving import check_finite, load_checkpoint
from gym_text_policies.training.options import Schedule, TrainingOptions
from gym_text_policies.training.run_folder import add_metrics, claim, save_progress, save_result, tracking
from gym_text_policies.training.trajectories import dev_success

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SFTConfig(TrainingOptions):
    """Teach a language model the answers of a dataset, by supervised fine-tuning with LoRA."""

    algorithm: ClassVar[str] = "sft"

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
    """Steps before the learning rate has risen to the given one; with 1, the first step has half of it."""
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
    """Train, from the last checkpoint on, and return the folder of the adapter.

    Args:
        config: The settings.
        rows: The rows to learn from; None: those of ``config.data``.

    Raises:
        UsageError: If the data or the run folder does not fit the settings. Nothing is overwritten.
        RunError: If a loss or a gradient is not finite; the last checkpoint is kept.
        StoreError: If the disk is full; the last checkpoint is kept.
    """
    torch, tqdm = import_extra("torch", "train"), import_extra("tqdm.auto", "bench").tqdm
    import_extra("peft", "train")
    from gym_text_policies.training.model.actor_critic import Actor

    rows = list(rows) if rows is not None else [row for source in config.data for row in read_rows(source)]
    asked = policy_of(rows)
    if config.interchangeable:
        rows = exchange_names(rows, config.interchangeable, config.seed)
    with claim(config):
        torch.manual_seed(config.seed)
        names = ("rank", "chat_template", "dtype", "compiled", "gradient_checkpointing")
        actor = Actor(config.model, **{name: getattr(config, name) for name in names})
        policy = learner_of(asked, actor.tokenizer, {row.tool for row in rows})
        record = prompt_record(policy)  # before training: somebody may edit the template during the run
        rows = within_window(rows, actor)
        optimizer = torch.optim.AdamW(actor.parameters, weight_decay=0.0, fused=True)
        progress = load_checkpoint(Path(config.folder), actor, optimizer)
        steps = config.max_steps or math.ceil(config.epochs * math.ceil(len(rows) / config.rows_per_step))
        with tracking(config) as log:
            for step in tqdm(range(progress.iteration, steps), initial=progress.iteration, total=steps, desc="Steps"):
                torch.manual_seed(config.seed + step)  # for dropout, so that a run goes on as if it had not been stopped
                optimizer.param_groups[0]["lr"] = learning_rate(config, step, steps)
                metrics = learn(config, actor, optimizer, batch_of(config, rows, step), f"step {step + 1}")
                metrics = {"step": step + 1, **metrics, "learning_rate": optimizer.param_groups[0]["lr"]}
                progress.iteration = step + 1
                saves = progress.iteration % config.save_steps == 0 or progress.iteration == steps
                if saves and config.dev_environments:
                    metrics |= dev_success(actor.player(), config.dev_environments, config.dev_episodes, policy)
                add_metrics(progress, metrics)
                if saves:
                    save_progress(config, actor, optimizer, progress, record)
                log(metrics, progress.iteration)
        every = -(-len(progress.curve) // 200)
        progress.curve = [line for number, line in enumerate(progress.curve) if number % every == 0 or "dev_success" in line]
        return save_result(config, actor, progress, record, data=_origin(rows))


def batch_of(config: SFTConfig, rows: Sequence[Row], step: int) -> list[Row]:
    """Return the rows of a step. Those of one environment stand together: they begin alike, and a pass reads that once."""
    import torch

    epoch, number = divmod(step, math.ceil(len(rows) / config.rows_per_step))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(config.seed + epoch)).tolist()
    batch = order[number * config.rows_per_step : (number + 1) * config.rows_per_step]
    return sorted((rows[index] for index in batch), key=lambda row: row.environment)


def learning_rate(config: SFTConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step: it rises, and then stays or falls to 0. The first step learns, too."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / (config.warmup + 1)
    steps_after = max(1, steps - config.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * ((step - config.warmup) / steps_after)))
    return config.learning_rate * {"constant": 1.0, "linear": (steps - step) / steps_after, "cosine": cosine}[config.schedule]


def learn(config: SFTConfig, actor: Actor, optimizer: Optimizer, batch: Sequence[Row], where: str) -> dict[str, float]:
    """Do one step of the optimiser; return the loss and the norm of its gradient."""
    import torch

    from gym_text_policies.training.model.layouts import answer_losses
    from gym_text_policies.training.model.sequences import Conversation, passes

    conversations = [Conversation.of(actor.tokenizer, row.examples()) for row in batch]
    tokens = sum(len(decision.answers[0]) for conversation in conversations for decision in conversation.decisions)
    total = torch.zeros(())
    actor.model.train()
    for group in passes(conversations, config.tokens_per_pass):
        with actor.autocast():
            losses = answer_losses(actor.model, group)  # (tokens,)
        loss = losses.sum() * (1 / tokens)
        check_finite(where, loss=loss)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach().cpu()
    norm = torch.nn.utils.clip_grad_norm_(actor.parameters, MAX_GRAD_NORM)
    check_finite(where, gradient=norm)
    optimizer.step()
    optimizer.zero_grad()
    return {"loss": float(total), "grad_norm": float(norm)}


def within_window(rows: Sequence[Row], actor: Actor) -> list[Row]:
    """Return the rows that are not longer than the model's window, and tell how many are.

    Raises:
        UsageError: If none is left.
    """
    from gym_text_policies.training.model.sequences import Conversation

    kept = [row for row in rows if Conversation.of(actor.tokenizer, row.examples()).length <= actor.window]
    if not kept:
        raise UsageError(
            f"data: expected rows of at most {actor.window} tokens, the model's window; all are longer. Show less history."
        )
    if left_out := len(rows) - len(kept):
        window = actor.window
        _logger.warning("%d of %d rows are longer than the model's window of %d tokens: left out.", left_out, len(rows), window)
    return kept


def _origin(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the data's part of an adapter's record: the numbers of rows and decisions, and of rows of each environment."""
    environments = Counter(environment_name(json.loads(row.environment)) for row in rows)
    return {"rows": len(rows), "decisions": sum(row.decisions for row in rows), "environments": dict(sorted(environments.items()))}
