"""transformers' `Trainer` for conversations: its checkpoints, and how it stops after Ctrl-C.

A checkpoint is an adapter that can play: its record says how it is prompted. It also holds what the run needs to go on. The states
of the optimiser, the schedule and the random generators are files of torch. They are loaded as plain tensors only
(``weights_only``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gym_text.errors import StoreError, UsageError, import_extra
from gym_text_policies.backends.local.adapters import read_adapter
from gym_text_policies.data.rows import Row
from gym_text_policies.files.folders import writing_tensors
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.saving import write_adapter

_logger = logging.getLogger(__name__)
_STATE = "trainer_state.json"
"""File of a checkpoint that is written last."""
_PICKLES = ("*.pt", "*.pth")
"""Files of torch in a checkpoint."""


def last_checkpoint(folder: str | Path) -> str | None:
    """Return the newest whole checkpoint of a run, or None.

    Raises:
        UsageError: If the newest checkpoint is damaged.
    """
    for path in sorted(Path(folder).glob("checkpoint-*"), key=lambda path: -int(path.name.partition("-")[2])):
        if not (path / _STATE).exists():  # the file that is written last
            _logger.warning("%s: ignored, because this checkpoint is not complete.", path)
            continue
        try:
            json.loads((path / _STATE).read_text("utf-8"))
            read_adapter(path)
            _read_pickles(path)
        except (UsageError, ValueError) as error:
            raise UsageError(
                f"{path}: expected a whole checkpoint; {error} Remove it, and the run goes on from the one before."
            ) from None
        return str(path)
    return None


def _read_pickles(checkpoint: Path) -> None:
    """Raise `UsageError` unless torch can read each of its own files as plain tensors; any other pickle could run code."""
    torch, tools = import_extra("torch", "train"), import_extra("transformers.trainer_pt_utils", "train")
    for path in sorted(path for pattern in _PICKLES for path in checkpoint.glob(pattern)):
        try:
            with tools.safe_globals():  # NumPy's random state
                torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises errors of many classes
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(f"{path.name} is no file of plain tensors: {lines[0][:200]}") from None


def steps_done(folder: str | Path) -> int:
    """Return the steps of a run's newest checkpoint."""
    checkpoint = last_checkpoint(folder)
    return int(Path(checkpoint).name.partition("-")[2]) if checkpoint else 0


def make_trainer(
    arguments: Any,
    model: Any,
    tokenizer: Any,
    rows: Sequence[Row],
    record: Mapping[str, Any],
    play: Callable[[], list[bool]],
    *,
    tokens_per_pass: int,
) -> Any:
    """Return a `Trainer` of transformers that learns from conversations. Its `evaluate` plays episodes, and computes no loss.

    A batch is a whole step of the optimiser. The model reads it in passes.

    Args:
        arguments: `TrainingArguments`.
        model: The model, with its adapter.
        tokenizer: Its tokenizer.
        rows: The rows to learn from.
        record: How the model is prompted; each checkpoint's record says it.
        play: Plays the dev fold with the present weights, and returns for each episode whether it was won.
        tokens_per_pass: Most tokens that the model reads at once; a longer conversation is read alone.
    """
    torch, transformers = import_extra("torch", "train"), import_extra("transformers", "train")
    from gym_text_policies.training.model.layouts import answer_losses
    from gym_text_policies.training.model.sequences import conversation_passes

    class ConversationTrainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        @property
        def current_step(self) -> str:
            return f"step {self.state.global_step + 1}"

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            model.train()
            conversations = inputs["conversations"]
            groups = conversation_passes(conversations, tokens_per_pass)
            share = 1 / sum(len(decision.answers[0]) for conversation in conversations for decision in conversation.decisions)
            total = torch.zeros((), device=self.args.device)
            for group in groups:
                with self.compute_loss_context_manager():
                    losses = answer_losses(model, group)  # (tokens,)
                check_finite(self.current_step, loss=losses)
                loss = losses.sum() * share  # of a token of an answer
                self.accelerator.backward(loss)
                total += loss.detach()
            return total

        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            won = play()
            metrics = {"eval_success": sum(won) / len(won), "eval_episodes": len(won)}
            self.log(metrics)
            control: Any = self.control  # type: ignore[has-type]
            self.control = self.callback_handler.on_evaluate(self.args, self.state, control, metrics)
            return metrics

        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            if self.args.should_save:
                folder = Path(output_dir or self.args.output_dir)
                folder.mkdir(parents=True, exist_ok=True)
                write_adapter(self.model, folder, record)

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            try:
                with writing_tensors(folder):
                    super()._save_checkpoint(model, trial)
            except StoreError:
                shutil.rmtree(folder, ignore_errors=True)  # the run can go on from the checkpoint before
                raise

    class Watch(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            gradients = [value.grad for value in model.parameters() if value.grad is not None]
            check_finite(trainer.current_step, gradient=sum(gradient.detach().float().sum() for gradient in gradients))

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if trainer.asked_to_stop:
                control.should_save = control.should_training_stop = True

    data: Any = list(rows)
    trainer = ConversationTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data[:1] if arguments.eval_strategy != "no" else None,  # `evaluate` plays in place of reading it
        data_collator=_collator(tokenizer),
        callbacks=[Watch()],
    )
    trainer.asked_to_stop = False
    return trainer


@contextlib.contextmanager
def stopping_at_a_step(trainer: Any) -> Iterator[None]:
    """While the block runs, Ctrl-C ends training after the present step, with a checkpoint. A second Ctrl-C ends training at once.

    So does SIGTERM where it is handled as Ctrl-C is, as in commands.

    This holds in the main thread. In other threads Ctrl-C does what it did before.

    Raises:
        KeyboardInterrupt: When training has ended after Ctrl-C or SIGTERM.
    """
    can_handle = threading.current_thread() is threading.main_thread()
    before = signal.default_int_handler
    stops = [number for number in (signal.SIGINT, signal.SIGTERM) if can_handle and signal.getsignal(number) is before]

    def handle(handler: Any) -> None:
        for number in stops:
            signal.signal(number, handler)

    def request_stop(number: int, frame: Any) -> None:
        handle(before)
        trainer.asked_to_stop = True
        _logger.info("Stopping after this step, with a checkpoint. Another Ctrl-C or SIGTERM stops at once, without a checkpoint.")

    handle(request_stop)
    try:
        yield
    finally:
        handle(before)
    if trainer.asked_to_stop:
        raise KeyboardInterrupt


def _collator(tokenizer: Any) -> Callable[[list[Row]], dict[str, Any]]:
    """Return a data collator: a function that turns rows into conversations.

    Rows of one environment stand together, because their prompts begin alike, and a pass reads a common beginning once.
    """
    from gym_text_policies.training.model.sequences import Conversation

    def collate(batch: list[Row]) -> dict[str, Any]:
        rows = sorted(batch, key=lambda row: row.environment)
        return {"conversations": [Conversation.of(tokenizer, row.examples()) for row in rows]}

    return collate
