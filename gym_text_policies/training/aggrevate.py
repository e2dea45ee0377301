"""AggreVaTe (Ross and Bagnell 2014, https://arxiv.org/abs/1406.5979): a language model learns from an expert's costs to go.

DAgger teaches a model which action the expert would take. AggreVaTe teaches it the cost of every candidate action: the number of
steps to a win if this action is taken and the expert plays on from there (`plan_steps` of TextWorldExpress's games). So the model
learns to tell small mistakes from grave ones, also for candidates that nobody has played. AggreVaTe needs no rewards and no values.

In each iteration the model plays episodes of the train fold, and draws its actions. The costs are exact. So the objective with a
KL penalty for leaving the old policy (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, section 4) has a known maximum: the
old probabilities times exp(-steps / cost_temperature), normalised (Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920).
These are the target probabilities. Learning minimises KL(target probabilities || policy).

The expert knows where things are. The player does not, and has to search. So while the player still needs a thing that it has not
seen, each candidate that looks in a new place (`looks_further`) gets the cost of the best candidate.

To follow AggreVaTe from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and the
gradient steps), `gym_text_policies.training.trajectories` (the episodes) and `gym_text_policies.training.model.actor_critic` (the
model).

Metrics are those of `gym_text_policies.training.ppo`, without ``value_loss``, ``explained_variance``, ``clipped`` and ``old_kl``.
``policy_loss`` is the mean of KL(target probabilities || policy), in nats.

Shapes: B is the number of decisions of an iteration, b the number of decisions in one forward pass, A the greatest number of
candidates of a decision.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym

from gym_text.errors import EpisodeError, UsageError
from gym_text_policies.old_names import gone
from gym_text_policies.policy import text_spec
from gym_text_policies.training import loop
from gym_text_policies.training.loop import PlayedBatch, PrunedConfig
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import gather, own_share
from gym_text_policies.training.model.saving import made
from gym_text_policies.training.targets import TargetBatch, divergence_from_targets
from gym_text_policies.training.trajectories import Trajectory, log_failures, play

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

UNIFORM_SHARE = 0.02
"""Share of the old probability mass that is spread evenly over the candidates. So the model also learns candidates that it would
never draw."""


@gone(uniform_share=UNIFORM_SHARE)
@dataclass(frozen=True, kw_only=True)
class AggreVaTeConfig(PrunedConfig):
    """Teach a language model what each action costs, by an expert that counts its steps: in TextWorldExpress's games."""

    algorithm: ClassVar[str] = "aggrevate"

    folder: str = "runs/aggrevate"
    cost_temperature: float = 0.25
    """In steps. If one candidate needs this many steps more than another, an iteration divides its odds against the other by e."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("cost_temperature")


def train(config: AggreVaTeConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder, the model or an environment does not fit the settings. Nothing is overwritten.
    """
    with experts_of(config) as experts:
        return loop.run(config, loop.make_actor, functools.partial(play_with_costs, experts), learn)


# ---------------------------------------------------------------- the expert's costs

Experts = Mapping[str, gym.Env[Any, Any]]
"""Environments with an expert, by their names in the settings."""
Costs = list[list[float]]
"""For each decision of an episode, the number of steps to a win after each candidate; infinite if no win is possible after it."""


@dataclass(frozen=True)
class CostedTrajectory(Trajectory):
    """An episode with the expert's costs to go."""

    costs: Costs


@contextlib.contextmanager
def experts_of(config: AggreVaTeConfig) -> Iterator[Experts]:
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


def play_with_costs(experts: Experts, config: AggreVaTeConfig, actor: Actor, progress: Progress) -> list[CostedTrajectory]:
    """Play an iteration's episodes, and return those for which the expert states the costs. Log those in which the expert fails.

    Raises:
        RunError: If the expert fails in all episodes.
    """
    trajectories = play(config, actor, progress, least_probability=config.least_probability)
    results = gather([costs_or_error(experts[trajectory.environment], trajectory) for trajectory in own_share(trajectories)])
    costed: list[CostedTrajectory] = []
    episodes = []
    for trajectory, result in zip(trajectories, results, strict=True):
        error = result if isinstance(result, str) else None
        episodes.append(dataclasses.replace(trajectory.episode, error=error))
        if not isinstance(result, str):
            costed.append(CostedTrajectory(**vars(trajectory), costs=result))
    log_failures(progress.title, episodes)
    return costed


def costs_or_error(env: gym.Env[Any, Any], trajectory: Trajectory) -> Costs | str:
    """Return the costs of an episode's candidates, or the error message if the expert fails in this episode."""
    try:
        return costs_to_go(env, trajectory)
    except EpisodeError as error:
        return f"{type(error).__name__}: {error}"


def costs_to_go(env: gym.Env[Any, Any], trajectory: Trajectory) -> Costs:
    """Return the costs of an episode's candidates.

    Args:
        env: An environment with an expert; the function plays the episode again in it.
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


# ---------------------------------------------------------------- learning


@dataclass(frozen=True)
class AggreVaTeBatch(TargetBatch, PlayedBatch):
    """The decisions of an iteration with their target probabilities. Tensors are on the CPU."""


def learn(
    config: AggreVaTeConfig, actor: Actor, optimizer: Optimizer, progress: Progress, trajectories: Sequence[CostedTrajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics."""
    batch = make_batch(config, actor, trajectories)
    check_finite(progress.title, targets=batch.targets)
    objective = functools.partial(divergence_from_targets, batch.targets)
    return batch.rollout | loop.update_policy(config, actor, optimizer, progress, batch, objective)


def make_batch(config: AggreVaTeConfig, actor: Actor, trajectories: Sequence[CostedTrajectory]) -> AggreVaTeBatch:
    """Evaluate the played decisions with the model, and return them with their target probabilities."""
    import torch

    from gym_text_policies.training.model.sequences import stack_padded

    played = loop.evaluate_play(config, actor, trajectories)
    costs = [torch.tensor([of_decision]) for trajectory in trajectories for of_decision in trajectory.costs]
    steps = stack_padded(costs, math.inf)  # (B, A)
    targets = target_probabilities(played.old_log_probs, steps, config.cost_temperature, UNIFORM_SHARE)
    return AggreVaTeBatch(**vars(played), targets=targets)


def target_probabilities(old_log_probs: Tensor, steps: Tensor, cost_temperature: float, uniform_share: float) -> Tensor:
    """Return the old probabilities times exp(-steps / cost_temperature), normalised, of shape (B, A).

    Args:
        old_log_probs: Shape (B, A); -inf where a decision has fewer candidates.
        steps: Number of steps to a win after each candidate, of shape (B, A); infinite if no win is possible after it. If
            this holds for all candidates of a decision, its targets are the old probabilities: the model learns nothing from it.
        cost_temperature: In steps.
        uniform_share: Share of the old probability mass that is first spread evenly over the candidates.
    """
    is_candidate = old_log_probs > -math.inf
    best = steps.min(1, keepdim=True).values  # (B, 1)
    uniform = is_candidate / is_candidate.sum(1, keepdim=True)
    old = (1 - uniform_share) * old_log_probs.exp() + uniform_share * uniform
    targets = (old.log() - (steps - best) / cost_temperature).softmax(1)
    return targets.where(best < math.inf, old_log_probs.exp())


def run(config: AggreVaTeConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return made(train(config))
