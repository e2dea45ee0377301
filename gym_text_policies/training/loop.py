"""The loop of on-policy training: in each iteration the model plays episodes, and then learns from them.

`run` does an iteration, from play to checkpoint. An algorithm (`gym_text_policies.training.ppo`, `.grpo`, `.expert_iteration`)
provides the functions that make the model, play the episodes and learn from them. `update_policy` does the gradient steps of all.

Shapes: B is the number of decisions of an iteration, b the number of decisions in one forward pass, A the greatest number of
candidates of a decision, H the width of the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gym_text.errors import import_extra
from gym_text_policies.terminal.bars import bar_class
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.options import MAY_CHANGE, OnPolicyConfig
from gym_text_policies.training.rollout_gap import check_gap, gap_metrics, probabilities_of
from gym_text_policies.training.run_folder import claim, end_iteration, resume, save_result, tracking
from gym_text_policies.training.trajectories import Trajectory, part_of_iteration, tell_without_thoughts

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Segment

MAX_GRAD_NORM = 1.0
"""A longer gradient is scaled down to this norm."""

C = TypeVar("C", bound=OnPolicyConfig)
A = TypeVar("A", bound="Actor")


# ---------------------------------------------------------------- the iteration


def run(
    config: C,
    make_actor: Callable[[C], tuple[A, Optimizer]],
    play: Callable[[C, A, Progress], list[Trajectory]],
    learn: Callable[[C, A, Optimizer, Progress, list[Trajectory]], dict[str, float]],
) -> Path:
    """Play and learn, from the last checkpoint on, until all iterations are done; return the folder of the adapter.

    Args:
        config: Settings of the run.
        make_actor: Returns the model and its optimiser.
        play: Plays the episodes of an iteration, and returns those to learn from.
        learn: Learns from these episodes, and returns metrics.

    Raises:
        UsageError: If the run folder, the model or an environment does not fit the settings. Nothing is overwritten.
        RunError: If a number is not finite, or the model does not learn on what was played; the last checkpoint is kept.
    """
    torch, tqdm = import_extra("torch", "train"), bar_class()
    import_extra("peft", "train")
    config.check_prompting()
    with claim(config.algorithm, config, (*MAY_CHANGE, "iterations")):
        torch.manual_seed(config.seed)
        actor, optimizer = make_actor(config)
        rates = [group["lr"] for group in optimizer.param_groups]
        tell_without_thoughts(config.learner(actor))
        progress = resume(config, actor, optimizer)
        gap_is_checked = False
        missing, bar = range(progress.iteration, config.iterations), {"initial": progress.iteration, "total": config.iterations}
        with tracking(config) as log:
            for _ in tqdm(missing, **bar, desc="Iterations"):
                left = 1 - progress.iteration / config.iterations if config.schedule == "linear" else 1.0
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * left
                start = time.perf_counter()
                trajectories = play(config, actor, progress)
                played = time.perf_counter()
                metrics = {"kl_weight": config.kl_weight, "learning_rate": optimizer.param_groups[0]["lr"]}
                metrics |= learn(config, actor, optimizer, progress, trajectories)
                if not gap_is_checked and "rollout_gap" in metrics:
                    gap_is_checked = True
                    check_gap(config.dtype, progress.title, metrics)
                learnt = time.perf_counter()
                metrics |= {"seconds_play": round(played - start, 2), "seconds_learn": round(learnt - played, 2)}
                check_finite(progress.title, **metrics)
                episodes = [trajectory.episode for trajectory in trajectories]
                log(end_iteration(config, actor, optimizer, progress, episodes, metrics), progress.iteration)
        return save_result(config, actor)


def make_actor(config: OnPolicyConfig) -> tuple[Actor, Optimizer]:
    """Return the model that a run begins with, and the optimiser of its adapter."""
    import torch

    from gym_text_policies.training.model.actor_critic import Actor

    actor = Actor(config.model, **actor_options(config))
    return actor, torch.optim.AdamW(actor.parameters, lr=config.learning_rate, weight_decay=0.0)


def actor_options(config: OnPolicyConfig) -> dict[str, Any]:
    """Return the settings that `Actor` takes."""
    return {name: getattr(config, name) for name in ("temperature", "dtype", "gradient_checkpointing")}


# ---------------------------------------------------------------- learning


@dataclass(frozen=True)
class DecisionBatch:
    """Decisions to learn from. Tensors are on the CPU."""

    segments: list[list[Segment]]
    """Parts of the batch: the segments of one episode, or of one level. A minibatch has whole parts."""
    reference: Tensor | None  # (B, A)
    """Log-probability of each candidate by the model that training began with; -inf where a decision has fewer candidates. None if
    kl_weight is 0."""


@dataclass(frozen=True)
class PlayedBatch(DecisionBatch):
    """All decisions of an iteration, evaluated by the model before it learns."""

    old_log_probs: Tensor  # (B, A)
    """Log-probability of each candidate; -inf where a decision has fewer candidates."""
    actions: Tensor  # (B,)
    """Index, among the candidates, of the action that was taken."""
    hidden: Tensor  # (B, H)
    """Hidden state of each prompt's last token, from which a critic computes the value."""
    last_hidden: Tensor  # (truncated episodes, H)
    """The hidden state for the last observation of each truncated episode."""
    rollout: dict[str, float]
    """How far the probabilities are from those of play: see `gap_metrics`."""


def evaluate_play(config: OnPolicyConfig, actor: Actor, trajectories: Sequence[Trajectory]) -> PlayedBatch:
    """Return the decisions of an iteration's episodes as the model evaluates them now."""
    import torch

    from gym_text_policies.training.model.sequences import segments_of, stack_padded

    segments = segments_of(trajectory.conversations(config, actor) for trajectory in trajectories)
    with torch.no_grad():
        evaluations = [actor.evaluate(conversations_of(group)).cpu() for group in passes_of(config, segments)]
    old_log_probs = stack_padded([evaluation.log_probs for evaluation in evaluations])  # (B, A)
    actions = torch.tensor([action for trajectory in trajectories for action in trajectory.actions])  # (B,)
    played = probabilities_of(candidates for trajectory in trajectories for candidates in trajectory.candidates)  # (B, A)
    return PlayedBatch(
        segments=segments,
        reference=reference_log_probs(config, actor, segments),
        old_log_probs=old_log_probs,
        actions=actions,
        hidden=torch.cat([evaluation.hidden for evaluation in evaluations]),
        last_hidden=torch.cat([evaluation.last_hidden for evaluation in evaluations]),
        rollout=gap_metrics(played, actions, old_log_probs),
    )


def reference_log_probs(config: OnPolicyConfig, actor: Actor, segments: Sequence[Sequence[Segment]]) -> Tensor | None:
    """Return the candidates' log-probabilities by the model that training began with; see `DecisionBatch.reference`."""
    import torch

    from gym_text_policies.training.model.sequences import stack_padded

    if not config.kl_weight:
        return None
    with torch.no_grad(), actor.reference():
        groups = passes_of(config, segments)
        return stack_padded([actor.evaluate(conversations_of(group)).log_probs.cpu() for group in groups])


def passes_of(config: OnPolicyConfig, segments: Sequence[Sequence[Segment]]) -> list[list[Segment]]:
    """Return the segments of all parts of a batch in groups, each for one pass of the model."""
    from gym_text_policies.training.model.sequences import passes

    return passes((segment for part in segments for segment in part), config.tokens_per_pass)


def rows_of(group: Sequence[Segment]) -> list[int]:
    """Return the indices, in the batch, of the decisions of a pass."""
    return [row for segment in group for row in segment.rows]


def conversations_of(group: Sequence[Segment]) -> list[Any]:
    """Return the conversations of the segments that go through the model in one pass."""
    return [segment.conversation for segment in group]


Objective = Callable[[list[int], "Tensor"], dict[str, "Tensor"]]
"""A function of some decisions. Its arguments are their indices in a batch, of shape (b,), and the log-probabilities of their
candidates, of shape (b, A of this pass). It returns sums over the decisions: ``policy_loss``, which training minimises, and
metrics."""


def pass_sums(actor: Actor, batch: DecisionBatch, group: Sequence[Segment], objective: Objective) -> dict[str, Tensor]:
    """Read some segments in one pass; return the objective's sums over the decisions, and the sum of their entropies, in nats.

    If the batch has reference log-probabilities, the sum of the KL divergences from these is returned as ``kl``, in nats.
    """
    rows = rows_of(group)
    log_probs = actor.evaluate(conversations_of(group)).log_probs  # (b, A of this pass)
    sums = objective(rows, log_probs)
    is_candidate = log_probs > float("-inf")
    probabilities, finite = log_probs.exp(), log_probs.masked_fill(~is_candidate, 0.0)
    sums["entropy"] = -(probabilities * finite).sum()
    if batch.reference is not None:
        reference = batch.reference[rows, : log_probs.shape[1]].to(log_probs.device).masked_fill(~is_candidate, 0.0)
        sums["kl"] = (probabilities * (finite - reference)).sum()
    return sums


def update_policy(
    config: OnPolicyConfig,
    actor: Actor,
    optimizer: Optimizer,
    progress: Progress,
    batch: DecisionBatch,
    objective: Objective,
    parts_per_step: int | None = None,
) -> dict[str, float]:
    """Learn for all epochs in minibatches; return the last epoch's metrics, as means over its decisions.

    Args:
        config: Settings of the run.
        actor: The model.
        optimizer: The optimiser of the model's parameters.
        progress: How far the run is.
        batch: The decisions to learn from.
        objective: See `Objective`.
        parts_per_step: Elements of ``batch.segments`` in one step of the optimiser; by default ``config.episodes_per_step``.
    """
    import torch

    parts_per_step = parts_per_step or config.episodes_per_step
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + progress.iteration)
    decisions = sum(len(segment.rows) for part in batch.segments for segment in part)
    bar = part_of_iteration("Learning", config.epochs * decisions)
    for _ in range(config.epochs):
        sums: list[dict[str, float]] = []
        norms: list[float] = []
        order = torch.randperm(len(batch.segments), generator=generator).tolist()
        for start in range(0, len(order), parts_per_step):
            minibatch = [segment for part in order[start : start + parts_per_step] for segment in batch.segments[part]]
            sums += _add_gradients_of(config, actor, progress, batch, minibatch, objective, bar)
            norms.append(float(torch.nn.utils.clip_grad_norm_(actor.parameters, MAX_GRAD_NORM)))
            check_finite(progress.title, grad_norm=norms[-1])
            optimizer.step()
            optimizer.zero_grad()
    bar.close()
    means = {name: sum(of_pass[name] for of_pass in sums) / decisions for name in sums[0]}
    return means | {"grad_norm": sum(norms) / len(norms)}


def _add_gradients_of(
    config: OnPolicyConfig,
    actor: Actor,
    progress: Progress,
    batch: DecisionBatch,
    minibatch: Sequence[Segment],
    objective: Objective,
    bar: Any,
) -> list[dict[str, float]]:
    """Add the gradients of a minibatch's mean loss, policy_loss + kl_weight * kl; return the objective's sums for each pass."""
    from gym_text_policies.training.model.sequences import passes

    decisions = sum(len(segment.rows) for segment in minibatch)
    sums = []
    for group in passes(minibatch, config.tokens_per_pass):
        of_pass = pass_sums(actor, batch, group, objective)
        loss = of_pass["policy_loss"] + config.kl_weight * of_pass.get("kl", 0.0)
        check_finite(progress.title, loss=loss, **of_pass)
        (loss / decisions).backward()  # type: ignore[no-untyped-call]
        bar.update(sum(len(segment.rows) for segment in group))
        sums.append({name: float(value.detach()) for name, value in of_pass.items()})
    return sums
