"""Decisions learnt in a second: whole episodes packed into one row, compared with a pass for each decision.

``--part supervised``: the expert's actions, beside one full prompt for each step. ``--part reward``: GRPO's step on episodes that a
model has played, beside a forward and a backward pass for each decision with its candidates. The ways take turns, so that a machine
whose speed drifts does not favour one of them.

python benchmarks/training.py --environment CookingWorldText-v0 --episodes 8
python benchmarks/training.py --part reward --environment "BabyAIText-v0?task=putnext" --episodes 16 --name training_reward
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from helpers.harness import command, options, run, table, write

from gym_text_policies.backends.local.cached import padded
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import end_of_turn, prompt_tokens, text_tokens
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.rows import Row
from gym_text_policies.training.grpo import CLIP_HIGH, CLIP_LOW, GRPOConfig, group_advantages, make_batch
from gym_text_policies.training.loop import pass_sums
from gym_text_policies.training.model.actor_critic import Actor
from gym_text_policies.training.model.layouts import answer_losses
from gym_text_policies.training.model.lora import add_lora, compile_layers, environment_record, load_base, set_dtype
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.model.sequences import Conversation, passes
from gym_text_policies.training.ppo import clipped_objective
from gym_text_policies.training.trajectories import Trajectory, play

RECIPE = "one prompt for each step"
FIGURES = {
    "seconds": ("seconds", 1),
    "CPU seconds": ("cpu_seconds", 1),
    "decisions per second": ("per_second", 2),
    "ratio": ("ratio", 1),
}
"""Columns of the table: the figure and its digits."""


@dataclass(frozen=True)
class Config:
    """What to measure."""

    part: Literal["supervised", "reward"] = "supervised"
    """Learning the expert's actions, or by reward."""
    environment: str = "CookingWorldText-v0"
    """Where the episodes are played."""
    episodes: int = 8
    """Episodes learnt from."""
    adapter: str = "adapters/babyai-sft"
    """Who plays them, by reward."""
    rows_per_pass: int = 2
    """Of supervised: episodes that go through the model at once."""
    stride: int = 3
    """The slow way is timed on every n-th decision only."""
    name: str = "training"
    """Name of the result files."""


def _precision(model: Any) -> torch.autocast:
    """Return a context in which products have the precision of the model's weights."""
    return torch.autocast(model.device.type, torch.bfloat16, enabled=model.dtype == torch.bfloat16)


def packed(model: Any, tokenizer: Any, rows: list[Row]) -> int:
    """Do a forward and a backward pass of whole episodes; return the number of actions learnt."""
    with _precision(model):
        loss = answer_losses(model, [Conversation.of(tokenizer, row.examples()) for row in rows]).mean()
    loss.backward()
    return sum(row.decisions for row in rows)


def one_by_one(model: Any, tokenizer: Any, rows: list[Row], steps: Sequence[int]) -> int:
    """Do these passes as in the tutorial's recipe, for one prompt with its whole history at a time; return the actions learnt."""
    count = 0
    for row in rows:
        examples = list(row.examples())
        for step in steps:
            if step < len(examples):
                messages, answer, *_ = examples[step]
                prompt = prompt_tokens(tokenizer, messages, format_of(tokenizer).answer_start(False))
                tokens = [*text_tokens(tokenizer, answer), end_of_turn(tokenizer)]
                labels = torch.tensor([[-100] * len(prompt) + tokens], device=model.device)
                with _precision(model):
                    loss = model(input_ids=torch.tensor([prompt + tokens], device=model.device), labels=labels).loss
                loss.backward()
                count += 1
    return count


def _learner(precision: str) -> tuple[Any, Any]:
    """Return a model to train and its tokenizer; one in bfloat16 is compiled."""
    base, tokenizer = load_base("smollm2")
    model = add_lora(base)
    set_dtype(model, precision)
    if precision == "bfloat16":
        compile_layers(model)
    return model, tokenizer


Way = Callable[[Any], int]
"""Learns a batch, and returns how many decisions it has learnt."""


def supervised(config: Config) -> tuple[str, dict[str, Way], list[Any]]:
    """Return the name of the slow way, all ways to learn from gold episodes, and the batches."""
    with tempfile.TemporaryDirectory() as folder:
        rows = collect(CollectConfig(f"{folder}/data", (config.environment,), (str(config.episodes),)))
    learners = {precision: _learner(precision) for precision in ("float32", "bfloat16")}
    steps = range(1, max(row.decisions for row in rows), config.stride)
    batches = [rows[start : start + config.rows_per_pass] for start in range(0, len(rows), config.rows_per_pass)]
    ways: dict[str, Way] = {
        RECIPE: lambda batch: one_by_one(*learners["float32"], batch[:1], steps),
        "packed": lambda batch: packed(*learners["float32"], batch),
        "packed, bfloat16, compiled": lambda batch: packed(*learners["bfloat16"], batch),
    }
    return RECIPE, ways, batches


def reward(config: Config) -> tuple[str, dict[str, Way], list[Any]]:
    """Return the name of the slow way, all ways to learn from a model's own episodes, and the batches: the episodes of a level."""
    grpo = GRPOConfig(
        environments=(config.environment,), model=config.adapter, episodes_per_iteration=config.episodes, group_size=8
    )
    actors = {
        "packed": Actor(grpo.model),
        "packed, bfloat16": Actor(grpo.model, dtype="bfloat16"),
        "packed, bfloat16, compiled": Actor(grpo.model, dtype="bfloat16", compiled=True),
    }
    trajectories = play(grpo, actors["packed"], Progress(), grpo.group_size)
    levels = [trajectories[start : start + grpo.group_size] for start in range(0, len(trajectories), grpo.group_size)]
    made = {id(level): [own + 0.5 for own in group_advantages(level)] for level in levels}  # + 0.5: all decisions are read
    slow = "a pass for each decision"

    def way(actor: Actor) -> Way:
        def learn(level: list[Trajectory]) -> int:
            batch = make_batch(grpo, actor, level, made[id(level)])
            objective = functools.partial(clipped_objective, batch, CLIP_LOW, CLIP_HIGH)
            for group in passes(batch.conversations, grpo.tokens_per_pass):
                pass_sums(actor, batch, group, objective)["policy_loss"].backward()  # type: ignore[no-untyped-call]
            return len(batch.actions)

        return learn

    ways: dict[str, Way] = {slow: lambda level: decisions_one_by_one(actors["packed"], level, made[id(level)], config.stride)}
    return slow, ways | {name: way(actor) for name, actor in actors.items()}, levels


def decisions_one_by_one(actor: Actor, level: list[Trajectory], advantages: list[np.ndarray], stride: int) -> int:
    """Do GRPO's step for one decision at a time: one pass, in which each candidate, after the prompt, is a separate row."""
    decisions = [
        (one.prompts[place], one.candidates[place], one.actions[place], own[place])
        for one, own in zip(level, advantages, strict=True)
        for place in range(one.episode.length)
    ][::stride]
    place, end = format_of(actor.tokenizer).answer_start(False), end_of_turn(actor.tokenizer)
    for messages, candidates, action, advantage in decisions:
        prompt = prompt_tokens(actor.tokenizer, messages, place)
        answers = [[*text_tokens(actor.tokenizer, name), end] for name in candidates]
        rows = torch.tensor(padded([prompt + answer for answer in answers]))
        log_probs = actor.model(input_ids=rows).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
        scores = torch.stack([log_probs[i, range(len(own)), own].sum() for i, own in enumerate(answers)])
        ratio = (scores.log_softmax(0)[action] - float(np.log([*candidates.values()][action]))).exp()
        (-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)).backward()
    return len(decisions)


PARTS = {"supervised": supervised, "reward": reward}


def main() -> None:
    """Measure all ways on the same data and model, and write the result."""
    config = options(Config, __doc__)
    slow, ways, batches = PARTS[config.part](config)
    timed = {name: {"decisions": 0, "seconds": 0.0, "cpu_seconds": 0.0} for name in ways}
    for turn, batch in enumerate([batches[0], *batches]):
        for name, way in ways.items():
            started, cpu = time.perf_counter(), time.process_time()
            count = way(batch)
            if turn:  # the first is for warming up, and for compiling
                timed[name]["decisions"] += count
                timed[name]["seconds"] += time.perf_counter() - started
                timed[name]["cpu_seconds"] += time.process_time() - cpu
    for row in timed.values():
        row["per_second"] = row["decisions"] / row["seconds"]
        row["ratio"] = row["per_second"] / timed[slow]["per_second"]
    record = {"command": command(), "environment": config.environment, "rows": timed, "ran_on": environment_record()}
    lines = (
        (name, row["decisions"], *(f"{row[key]:.{digits}f}" for key, digits in FIGURES.values())) for name, row in timed.items()
    )
    note = f"{config.environment}; of the first way one decision in {config.stride} is timed. `{command()}`"
    write(config.name, f"{table(('way', 'decisions', *FIGURES), lines)}\n\n{note}", record)


if __name__ == "__main__":
    run(main)
