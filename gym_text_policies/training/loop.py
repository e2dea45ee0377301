"""The loop of on-policy training: in each iteration the model plays episodes, and then learns from them.

`run` does an iteration, from play to checkpoint. An algorithm (`gym_text_policies.training.ppo`, `.grpo`, `.expert_iteration`)
provides the functions that play the episodes and learn from them. `update_policy` does the gradient steps of all.

Shapes: B is the number of decisions that an iteration learns from, b the number of decisions in one forward pass, A the greatest
number of candidates of a decision.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gym_text.errors import import_extra
from gym_text_policies.data.rows import prompt_record
from gym_text_policies.records import Episode
from gym_text_policies.training.model.saving import Progress, check_finite, load_checkpoint
from gym_text_policies.training.options import OnPolicyConfig
from gym_text_policies.training.rollout_gap import check_gap
from gym_text_policies.training.run_folder import add_metrics, claim, save_progress, save_result, tracking
from gym_text_policies.training.trajectories import Trajectory, dev_success, part_of_iteration, success_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Conversation

MAX_GRAD_NORM = 1.0
"""A longer gradient is scaled down to this norm."""
REPAIR = (
    "Begin with a model that wins sometimes (gym-text sft), play easier levels or more episodes, or try more: a higher temperature "
    "in ppo and grpo, more simulations or a uniform_share in expert-iteration."
)
"""What to do if nothing is learnt."""
_logger = logging.getLogger(__name__)

C = TypeVar("C", bound=OnPolicyConfig)


# ---------------------------------------------------------------- the iteration


def run(
    config: C,
    play: Callable[[C, Any, Progress], list[Trajectory]],
    learn: Callable[[C, Any, Optimizer, Progress, list[Trajectory]], dict[str, float]],
    critic: bool = False,
) -> Path:
    """Play and learn, from the last checkpoint on, until all iterations are done; return the folder of the adapter.

    Args:
        config: Settings of the run.
        play: Plays the episodes of an iteration, and returns those to learn from.
        learn: Learns from these episodes, and returns metrics.
        critic: Whether the model has a critic.

    Raises:
        UsageError: If the run folder, the model or an environment does not fit the settings. Nothing is overwritten.
        RunError: If a number is not finite, or the model does not learn on what was played; the last checkpoint is kept.
    """
    torch, tqdm = import_extra("torch", "train"), import_extra("tqdm.auto", "bench").tqdm
    import_extra("peft", "train")
    config.check_prompting()
    with claim(config):
        torch.manual_seed(config.seed)
        actor, optimizer = make_learner(config, critic)
        learner = config.learner(actor)
        record = prompt_record(learner)
        progress = load_checkpoint(Path(config.folder), actor, optimizer)
        dev_fold = (config.environments, config.dev_episodes, learner)
        if config.dev_every and not progress.iteration:
            won = dev_success(actor.player(), *dev_fold)
            add_metrics(progress, {"iteration": 0, "episodes": 0, "minutes": 0.0, **won})
        gap_is_checked = False
        missing, bar = range(progress.iteration, config.iterations), {"initial": progress.iteration, "total": config.iterations}
        with tracking(config) as log:
            for _ in tqdm(missing, **bar, desc="Iterations"):
                left = 1 - progress.iteration / config.iterations if config.schedule == "linear" else 1.0
                risen = min(1.0, (progress.iteration + 1) / config.warmup_iterations)
                optimizer.param_groups[0]["lr"] = config.learning_rate * left * risen
                start = time.perf_counter()
                trajectories = play(config, actor, progress)
                played = time.perf_counter()
                metrics = {"kl_weight": config.kl_weight, "learning_rate": optimizer.param_groups[0]["lr"]}
                metrics |= learn(config, actor, optimizer, progress, trajectories)
                if not gap_is_checked and "rollout_gap" in metrics:
                    gap_is_checked = True
                    check_gap(config.dtype, progress.title, metrics)
                if metrics.get("learnt") == 0:
                    _logger.warning(
                        "%s: nothing is learnt, as no action turned out better than another. %s", progress.title, REPAIR
                    )
                learnt = time.perf_counter()
                metrics |= {"seconds_play": round(played - start, 2), "seconds_learn": round(learnt - played, 2)}
                check_finite(progress.title, **metrics)
                episodes = [trajectory.episode for trajectory in trajectories]
                progress.iteration += 1
                progress.episodes += len(episodes)
                progress.minutes += (learnt - start) / 60
                metrics = metrics_of_play(config, progress, episodes) | metrics
                if config.dev_every and progress.iteration % config.dev_every == 0:
                    metrics |= dev_success(actor.player(), *dev_fold)
                add_metrics(progress, metrics)
                save_progress(config, actor, optimizer, progress, record)
                log(metrics, progress.iteration)
        _logger.info("%s", summary(config, progress.curve))
        return save_result(config, actor, progress, record)


def summary(config: OnPolicyConfig, curve: Sequence[Mapping[str, float]]) -> str:
    """Return what a run has learnt from, success in the dev fold before and after, and the command that draws the curve."""
    learnt, played = (sum(line.get(name, 0) for line in curve) for name in ("learnt", "steps"))
    told = f"The policy learnt from {learnt:.0f} of {played:.0f} decisions"
    told += "." if learnt else f", so the adapter plays as {config.model} does. {REPAIR}"
    dev = [line["dev_success"] for line in curve if "dev_success" in line]
    if len(dev) > 1:
        told += f" Success in the dev fold: {dev[0]:.2f} before, {max(dev[1:]):.2f} in the iteration that is kept."
    return f"{told} The curve: gym-text report {config.folder}"


def make_learner(config: OnPolicyConfig, critic: bool) -> tuple[Any, Optimizer]:
    """Return the model that a run begins with, maybe with a critic, and the optimiser of the adapter."""
    import torch

    from gym_text_policies.training.model.actor_critic import Actor, ActorCritic

    options = {name: getattr(config, name) for name in ("temperature", "dtype", "gradient_checkpointing")}
    actor = (ActorCritic if critic else Actor)(config.model, **options)
    return actor, torch.optim.AdamW(actor.parameters, lr=config.learning_rate, weight_decay=0.0)


def metrics_of_play(config: OnPolicyConfig, progress: Progress, episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the metrics of an iteration's episodes."""
    return {
        "iteration": progress.iteration,
        "episodes": progress.episodes,
        "minutes": round(progress.minutes, 3),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        **success_of(episodes),
        "length": sum(episode.length for episode in episodes) / len(episodes),
        "steps": sum(episode.length for episode in episodes),
        "failed": config.episodes_per_iteration - len(episodes),
    }


# ---------------------------------------------------------------- learning


@dataclass(frozen=True)
class DecisionBatch:
    """Decisions to learn from. Tensors are on the CPU."""

    parts: list[list[Conversation]]
    """The decisions of each level. A minibatch has whole parts."""
    played: Tensor  # (B, A)
    """Probability of each candidate in play, padded with 0."""
    actions: Tensor  # (B,)
    """Index, among the candidates, of the action that was taken."""
    reference: Tensor | None  # (B, A)
    """Log-probability of each candidate by the model that training began with; -inf where a decision has fewer candidates. None if
    kl_weight is 0."""

    @property
    def conversations(self) -> list[Conversation]:
        """The conversations of all parts."""
        return [conversation for part in self.parts for conversation in part]


def parts_of(
    config: OnPolicyConfig, actor: Actor, trajectories: Sequence[Trajectory], is_learnt: Sequence[Sequence[bool]] = ()
) -> list[list[Conversation]]:
    """Return the conversations of each level, with the decisions that are learnt, or with all of them and the last observations.

    Episodes of one level stand side by side, as `play` returns them. They share much of their text, which the model reads once in
    a pass.
    """
    from gym_text_policies.training.model.sequences import number_decisions

    is_learnt = is_learnt or [[True] * len(trajectory.prompts) for trajectory in trajectories]
    episodes = [(trajectory, of_steps) for trajectory, of_steps in zip(trajectories, is_learnt, strict=True) if any(of_steps)]
    return number_decisions(
        [conversation for episode, of_steps in level for conversation in episode.conversations(config, actor, of_steps)]
        for _, level in itertools.groupby(episodes, lambda pair: pair[0].level)
    )


def make_batch(
    config: OnPolicyConfig, actor: Actor, trajectories: Sequence[Trajectory], is_learnt: Sequence[Sequence[bool]]
) -> DecisionBatch:
    """Return the decisions that are learnt of an iteration's episodes; see `parts_of`."""
    import torch

    from gym_text_policies.training.model.sequences import passes, stack_padded

    parts = parts_of(config, actor, trajectories, is_learnt)
    learnt = [
        (candidates, action)
        for trajectory, of_steps in zip(trajectories, is_learnt, strict=True)
        for candidates, action, included in zip(trajectory.candidates, trajectory.actions, of_steps, strict=True)
        if included
    ]
    reference = None
    if config.kl_weight:
        with torch.no_grad(), actor.reference():
            groups = passes((conversation for part in parts for conversation in part), config.tokens_per_pass)
            reference = stack_padded([actor.evaluate(group).log_probs for group in groups])
    played = stack_padded([torch.tensor([list(candidates.values())]) for candidates, _ in learnt], fill=0.0)
    return DecisionBatch(parts, played, torch.tensor([action for _, action in learnt]), reference)


def decisions_of(conversations: Iterable[Conversation]) -> list[int]:
    """Return the indices, in the batch, of the decisions of some conversations."""
    return [index for conversation in conversations for index in conversation.indices]


Objective = Callable[[list[int], "Tensor"], dict[str, "Tensor"]]
"""A function of some decisions. Its arguments are their indices in a batch, of shape (b,), and the log-probabilities of their
candidates, of shape (b, A of this pass). It returns sums over the decisions: ``policy_loss``, which training minimises, and
metrics."""


def pass_sums(actor: Actor, batch: DecisionBatch, group: Sequence[Conversation], objective: Objective) -> dict[str, Tensor]:
    """Read some conversations in one pass; return the objective's sums over the decisions, and the sum of their entropies, in nats.

    If the batch has reference log-probabilities, the sum of the KL divergences from these is returned as ``kl``, in nats.
    """
    decisions = decisions_of(group)
    log_probs = actor.evaluate(group).log_probs  # (b, A of this pass)
    sums = objective(decisions, log_probs)
    is_candidate = log_probs > float("-inf")
    probabilities, finite = log_probs.exp(), log_probs.masked_fill(~is_candidate, 0.0)
    sums["entropy"] = -(probabilities * finite).sum()
    if batch.reference is not None:
        reference = batch.reference[decisions, : log_probs.shape[1]].masked_fill(~is_candidate, 0.0)
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

    A minibatch has `parts_per_step` parts of the batch, by default ``config.episodes_per_step``. Its loss is the mean over its
    decisions of policy_loss + kl_weight * kl - entropy_weight * entropy.
    """
    import torch

    from gym_text_policies.training.model.sequences import passes

    parts_per_step = parts_per_step or config.episodes_per_step
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + progress.iteration)
    number = len(decisions_of(batch.conversations))
    bar = part_of_iteration("Learning", config.epochs * number)
    for _ in range(config.epochs):
        sums: list[dict[str, float]] = []
        norms: list[float] = []
        order = torch.randperm(len(batch.parts), generator=generator).tolist()
        for start in range(0, len(order), parts_per_step):
            minibatch = [conversation for part in order[start : start + parts_per_step] for conversation in batch.parts[part]]
            for group in passes(minibatch, config.tokens_per_pass):
                of_pass = pass_sums(actor, batch, group, objective)
                loss = (
                    of_pass["policy_loss"] + config.kl_weight * of_pass.get("kl", 0.0) - config.entropy_weight * of_pass["entropy"]
                )
                check_finite(progress.title, loss=loss, **of_pass)
                (loss / len(decisions_of(minibatch))).backward()  # type: ignore[no-untyped-call]
                bar.update(len(decisions_of(group)))
                sums.append({name: float(value.detach()) for name, value in of_pass.items()})
            norms.append(float(torch.nn.utils.clip_grad_norm_(actor.parameters, MAX_GRAD_NORM)))
            check_finite(progress.title, grad_norm=norms[-1])
            optimizer.step()
            optimizer.zero_grad()
    bar.close()
    means = {name: sum(of_pass[name] for of_pass in sums) / number for name in sums[0]}
    return means | {"grad_norm": sum(norms) / len(norms)}
