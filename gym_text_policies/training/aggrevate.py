"""AggreVaTe (Ross and Bagnell 2014, https://arxiv.org/abs/1406.5979): a language model learns from an expert's costs to go.

DAgger learns which action the expert would take. AggreVaTe learns what every candidate would cost: the steps that a win would take
after it, if the expert played on. So it tells small mistakes from grave ones, also for candidates that nobody has played, and needs
neither values nor a sum of rewards. `plan_steps` of TextWorldExpress's games counts these steps.

Each iteration plays episodes of the train fold by drawing. As the costs are exact, the objective with a penalty for leaving the old
policy (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, section 4) has its best answer in closed form: the old probabilities
times exp(-steps / cost_temperature) (Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920). These are the target
probabilities, and learning minimises the divergence from them.

The expert knows where things are, and the player does not. So where a thing has to be searched for, a candidate that looks where
nobody has looked (`looks_further`) counts as the best one.

Metrics are those of `gym_text_policies.training.ppo`, without ``value_loss``, ``explained_variance``, ``clipped`` and ``old_kl``.
``policy_loss`` is the mean divergence of the policy from the target probabilities, in nats.

Shapes: B decisions of an iteration, b of them in one pass, A the most candidates of a decision.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from gym_text.errors import EpisodeError, UsageError, import_extra
from gym_text_policies.policy import text_spec
from gym_text_policies.training.dev_fold import tell_failures
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import claim, gather, join, own_share
from gym_text_policies.training.on_policy import (
    FREE,
    OnPolicyConfig,
    Stopwatch,
    conversations_of,
    end_iteration,
    entropy_and_kl,
    finish,
    iterations,
    reference_log_probs,
    update_policy,
)
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    import torch

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Segment


@dataclass(frozen=True)
class AggreVaTeConfig(OnPolicyConfig):
    """Teach a language model what each action costs, by an expert that counts its steps: in TextWorldExpress's games."""

    folder: str = "runs/aggrevate"
    """Run folder: checkpoints, metrics.jsonl, and at the end the adapter. A run that was stopped goes on."""
    cost_temperature: float = 0.25
    """In steps: a candidate that needs this many more than another has its odds divided by e in an iteration."""
    uniform_share: float = 0.02
    """Share of the old probabilities that is spread evenly over the candidates, so that one that is never drawn can be learnt. 0 to
    0.5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("cost_temperature")
        self.check_ranges(uniform_share=(0, 0.5))


def train(config: AggreVaTeConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder, the adapter or an environment do not fit; nothing is overwritten.
    """
    torch = import_extra("torch", "train")
    import_extra("peft", "train")
    from gym_text_policies.training.model.actor_critic import Actor

    with experts_of(config) as experts, claim("aggrevate", config, FREE):
        join(config.device)
        torch.manual_seed(config.seed)
        actor = Actor(config.model, config.adapter, **config.actor_options)
        optimizer = torch.optim.AdamW(actor.parameters, lr=config.learning_rate, weight_decay=0.0)
        for state in iterations(config, actor, optimizer):
            watch = Stopwatch()
            trajectories = play(config, actor, state)
            found = gather([costs_or_error(experts[one.environment], one) for one in own_share(trajectories)])
            trajectories, costs = without_failures(state.place, trajectories, found)
            watch.played()
            batch = make_batch(config, actor, trajectories, costs)
            check_finite(state.place, targets=batch.targets)
            metrics = {"kl_weight": state.kl_weight, "rollout_gap": batch.rollout_gap}
            losses = functools.partial(policy_losses, actor, batch)
            metrics |= update_policy(config, actor, optimizer, state, batch.segments, config.episodes_per_step, losses)
            episodes = [trajectory.episode for trajectory in trajectories]
            end_iteration(config, actor, optimizer, state, episodes, metrics | watch.seconds())
        return finish("aggrevate", config, actor)


@contextlib.contextmanager
def experts_of(config: AggreVaTeConfig) -> Iterator[dict[str, gym.Env[Any, Any]]]:
    """Open an environment with an expert for each name in the settings, and close them after the block.

    Raises:
        UsageError: If an environment's expert does not count its steps.
    """
    with contextlib.ExitStack() as stack:
        experts = {name: config.env_maker(name, "replan")() for name in config.environments}
        for name, env in experts.items():
            stack.callback(env.close)
            if not hasattr(env.unwrapped, "plan_steps"):
                raise UsageError(f"environments: expected TextWorldExpress's games, whose expert counts its steps; got {name!r}.")
        yield experts


def costs_to_go(env: gym.Env[Any, Any], trajectory: Trajectory) -> list[list[float]]:
    """Return for each decision of an episode the steps to a win after each candidate; infinite where none is left.

    Args:
        env: An environment with an expert, in which the episode is played again.
        trajectory: The episode.
    """
    plan_steps, looks_further = env.get_wrapper_attr("plan_steps"), env.get_wrapper_attr("looks_further")
    spec = text_spec(env)
    obs, _ = env.reset(seed=trajectory.episode.seed)
    costs = []
    for step, candidates in zip(trajectory.episode.steps, trajectory.candidates, strict=True):
        actions = [spec.encode(action, obs) for action in candidates]
        steps = [plan_steps(action) for action in actions]
        best = min(steps)
        costs.append([best if n > best and looks_further(action) else n for action, n in zip(actions, steps, strict=True)])
        obs = env.step(spec.encode(step.decision.action, obs))[0]
    return costs


def costs_or_error(env: gym.Env[Any, Any], trajectory: Trajectory) -> list[list[float]] | str:
    """Return what `costs_to_go` does, or why the expert has failed in this episode."""
    try:
        return costs_to_go(env, trajectory)
    except EpisodeError as error:
        return f"{type(error).__name__}: {error}"


def without_failures(
    where: str, trajectories: Sequence[Trajectory], costs: Sequence[list[list[float]] | str]
) -> tuple[list[Trajectory], list[list[list[float]]]]:
    """Return the episodes in which the expert has not failed, with their costs; log the others.

    Raises:
        RunError: If it has failed in all.
    """
    pairs = list(zip(trajectories, costs, strict=True))
    tell_failures(where, [dataclasses.replace(one.episode, error=own if isinstance(own, str) else None) for one, own in pairs])
    whole = [(one, own) for one, own in pairs if not isinstance(own, str)]
    return [one for one, _ in whole], [own for _, own in whole]


@dataclass(frozen=True)
class Batch:
    """The decisions of an iteration; tensors on the CPU."""

    segments: list[list[Segment]]
    """Of each episode."""
    targets: torch.Tensor  # (B, A)
    """Probability that each candidate is to have."""
    reference: torch.Tensor | None  # (B, A)
    """Log-probabilities by the model that training began with, -inf where a decision has fewer candidates; None where kl has no
    weight."""
    rollout_gap: float


def make_batch(
    config: AggreVaTeConfig, actor: Actor, trajectories: Sequence[Trajectory], costs: Sequence[Sequence[Sequence[float]]]
) -> Batch:
    """Evaluate what was played, and return the target probabilities.

    Args:
        config: Of the run.
        actor: The model that played.
        trajectories: What it played.
        costs: What `costs_to_go` returns for each of them.
    """
    import torch

    from gym_text_policies.training.model.sequences import passes, segments_of, stack_padded

    segments = segments_of(trajectory.conversations(config, actor) for trajectory in trajectories)
    groups = passes((segment for episode in segments for segment in episode), config.tokens_per_pass)
    with torch.no_grad():
        found = gather([actor.evaluate(conversations_of(group)).log_probs.cpu() for group in own_share(groups)])
        reference = reference_log_probs(config, actor, groups)  # (B, A)
    old_log_probs = stack_padded(found)  # (B, A)
    steps = stack_padded([torch.tensor([decision]) for episode in costs for decision in episode], math.inf)  # (B, A)
    targets = target_probabilities(old_log_probs, steps, config.cost_temperature, config.uniform_share)
    actions = torch.tensor([action for trajectory in trajectories for action in trajectory.actions])  # (B,)
    played = torch.tensor([probability for trajectory in trajectories for probability in trajectory.probabilities])  # (B,)
    rollout_gap = float((old_log_probs.gather(1, actions[:, None])[:, 0] - played.log()).abs().max())
    return Batch(segments, targets, reference, rollout_gap)


def target_probabilities(
    old_log_probs: torch.Tensor, steps: torch.Tensor, cost_temperature: float, uniform_share: float
) -> torch.Tensor:
    """Return the old probabilities times exp(-steps / cost_temperature), normalised, of shape (B, A).

    Args:
        old_log_probs: Shape (B, A); -inf where a decision has fewer candidates.
        steps: To a win after each candidate, of shape (B, A); infinite where none is left. Where no candidate of a decision can
            win, the old probabilities are returned and nothing is learnt.
        cost_temperature: In steps.
        uniform_share: Share of the old probabilities that is first spread evenly over the candidates.
    """
    is_candidate = old_log_probs > -math.inf
    best = steps.min(1, keepdim=True).values  # (B, 1)
    uniform = is_candidate / is_candidate.sum(1, keepdim=True)
    old = (1 - uniform_share) * old_log_probs.exp() + uniform_share * uniform
    targets = (old.log() - (steps - best) / cost_temperature).softmax(1)
    return targets.where(best < math.inf, old_log_probs.exp())


def policy_losses(actor: Actor, batch: Batch, group: Sequence[Segment]) -> dict[str, torch.Tensor]:
    """Return the sums of the losses and metrics over the decisions of one pass, with gradients."""
    import torch

    mb = [row for segment in group for row in segment.rows]
    log_probs = actor.evaluate(conversations_of(group)).log_probs  # (b, A of this pass)
    width = log_probs.shape[1]
    is_candidate = log_probs > -math.inf
    mb_targets = batch.targets[mb, :width].to(log_probs.device).masked_fill(~is_candidate, 0.0)  # (b, A of this pass)
    mb_reference = None if batch.reference is None else batch.reference[mb, :width].to(log_probs.device)
    divergence = torch.special.xlogy(mb_targets, mb_targets) - mb_targets * log_probs.masked_fill(~is_candidate, 0.0)
    return entropy_and_kl(log_probs, mb_reference) | {"policy_loss": divergence.sum()}


def run(config: AggreVaTeConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return f"The adapter: {train(config)}; load_policy takes this folder as a model."
