"""Expert iteration (Anthony et al. 2017, https://arxiv.org/abs/1705.08439): a language model learns what its own search finds.

In each iteration the model plays new levels of the train fold, and looks ahead in copies of the game before each decision
(`gym_text_policies.policies.lookahead`). Its own probabilities lead the search, and the search finds better actions than the model
would take. The model learns these actions, so that it takes them without a search. In the next iteration the better model leads a
search that reaches further. The search needs nothing but the game's score: neither an expert nor a label.

What a search has found are the target probabilities of a decision:

* The search knows a plan that wins: its first action has probability 1.
* The actions that were tried are worth differently: the shares of their visits (Silver et al. 2017,
  https://doi.org/10.1038/nature24270). An action with a single visit has a share of 0 beside actions with more: it was tried once,
  and was not worth a second look. So is every action that loses.
* All of them are worth the same, or none was tried more than once: the search has found nothing, and the model does not read the
  decision.

Learning minimises KL(target probabilities || policy). The searched action is played with the probability `expert_share`, and else
the model's own most probable action, as it will play alone. At 1 this is expert iteration as it was published. At 0 it is DAgger
(`gym_text_policies.training.dagger`) with the search as the expert: the targets are those of the states that the model reaches
alone. By default the share begins with 1 and is halved in each iteration.

To follow expert iteration from its settings to its gradients, read this file, `gym_text_policies.training.loop` (the iteration and
the gradient steps), `gym_text_policies.training.trajectories` (the episodes), `gym_text_policies.policies.tree_search` (the search)
and `gym_text_policies.training.model.actor_critic` (the model).

The documentation's page Training says what the metrics mean. ``rollout_gap`` and ``rollout_kl`` compare the priors that lead the
search: the model's probabilities mixed with `uniform_share`. They are missing if no search has found anything.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym

from gym_text.errors import check_choice
from gym_text_policies.backends.base import Backend
from gym_text_policies.data.targets import targets_of
from gym_text_policies.load import load_policy
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policy import Policy, PolicyWrapper
from gym_text_policies.records import Decision, Turn
from gym_text_policies.training import loop
from gym_text_policies.training.model.saving import Progress
from gym_text_policies.training.options import OnPolicyConfig, Schedule
from gym_text_policies.training.rollout_gap import first_pass_gap
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor


@dataclass(frozen=True, kw_only=True)
class ExpertIterationConfig(OnPolicyConfig):
    """Teach a language model what its own search in copies of the game finds (expert iteration)."""

    algorithm: ClassVar[str] = "expert_iteration"

    folder: str = "runs/expert_iteration"
    iterations: int = 3
    episodes_per_iteration: int = 80
    simulations: int = 16
    """Most states in which the search asks for the model's probabilities in one decision."""
    exploration: float | None = None
    """How much the policy's own probabilities count in puct beside the values that simulations give."""
    uniform_share: float = 0.0
    """Share, from 0 to 1, of the prior probability that is spread evenly over the valid actions. So the search also tries actions
    that the model would never take."""
    expert_share: float = 1.0
    """Probability that the search's action is played instead of the one that the model would take alone, in the first iteration.
    Each later iteration halves this probability."""
    epochs: int = 1
    episodes_per_step: int = 4
    learning_rate: float = 3e-4
    schedule: Schedule = "linear"
    """How the learning rate changes from iteration to iteration: linear (to 0) or constant."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ranges(expert_share=(0, 1))
        check_choice("schedule", self.schedule, ("linear", "constant"))
        PolicyConfig(self.model, **self.searching)  # raises where a setting of the search is wrong

    @property
    def searching(self) -> dict[str, Any]:
        """The settings of the search. It is PUCT: best of n tries all actions equally often, so its visits would teach nothing."""
        names = ("simulations", "exploration", "uniform_share")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {"lookahead": "puct", **given}


def run(config: ExpertIterationConfig) -> Path:
    """Train, and return the folder of the adapter. For the errors see `gym_text_policies.training.loop.run`."""
    return loop.run(config, play_ahead, learn)


# ---------------------------------------------------------------- playing


def play_ahead(config: ExpertIterationConfig, actor: Actor, progress: Progress) -> list[Trajectory]:
    """Play an iteration's episodes with a search before each decision."""
    share = config.expert_share / 2**progress.iteration

    def load(player: Backend, env: gym.Env[Any, Any], **settings: Any) -> Policy:
        policy = load_policy(player, env, **settings, **config.searching)
        return policy if share == 1 else PartlyAlone(policy, share)

    return play(config, actor, progress, load=load)


class PartlyAlone(PolicyWrapper):
    """Looks ahead in each state, and plays the searched action with a probability, `share`, else the model's most probable one.

    The decisions keep what was found in either case.
    """

    def __init__(self, searching: Policy, share: float) -> None:
        super().__init__(searching)
        self._share = share

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Search in all turns, and draw in which of them the model plays alone."""
        decisions = []
        for turn, found in zip(turns, self.player.decide(turns), strict=True):
            alone = turn.rng.random() >= self._share and found.probabilities
            action = max(alone, key=alone.__getitem__) if alone else found.action
            decisions.append(dataclasses.replace(found, action=action))
        return decisions


# ---------------------------------------------------------------- learning


def divergence_from_targets(targets: Tensor, decisions: list[int], log_probs: Tensor) -> dict[str, Tensor]:
    """Return the policy's loss, KL(target probabilities || policy), summed over some decisions.

    Args:
        targets: Target probability of each candidate of all decisions that the model learns from, of shape (B, A).
        decisions: Indices of the decisions in the batch, b numbers.
        log_probs: Log-probabilities of the decisions' candidates by the present policy, with gradients; shape (b, A of this pass).
    """
    import torch

    is_candidate = log_probs > -math.inf
    mb_targets = targets[decisions, : log_probs.shape[1]].masked_fill(~is_candidate, 0.0)
    divergence = torch.special.xlogy(mb_targets, mb_targets) - mb_targets * log_probs.masked_fill(~is_candidate, 0.0)
    return {"policy_loss": divergence.sum()}


def learn(
    config: ExpertIterationConfig, actor: Actor, optimizer: Optimizer, progress: Progress, trajectories: Sequence[Trajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics. If no search has found anything, the model learns nothing."""
    import torch

    from gym_text_policies.training.model.sequences import stack_padded

    decisions = [step.decision for trajectory in trajectories for step in trajectory.episode.steps]
    targets = [[targets_of(step.decision) for step in trajectory.episode.steps] for trajectory in trajectories]
    metrics = {
        "learnt": float(sum(bool(target) for of_steps in targets for target in of_steps)),
        "planned": sum(bool(decision.plan) for decision in decisions) / len(decisions),
        "model_calls": float(sum(decision.model_calls for decision in decisions)),
        "simulator_steps": float(sum(decision.simulator_steps for decision in decisions)),
    }
    if not metrics["learnt"]:
        return metrics
    batch = loop.make_batch(config, actor, trajectories, [[*map(bool, of_steps)] for of_steps in targets])
    learnt = [
        (step.decision, candidates, target)
        for trajectory, of_steps in zip(trajectories, targets, strict=True)
        for step, candidates, target in zip(trajectory.episode.steps, trajectory.candidates, of_steps, strict=True)
        if target
    ]
    b_targets = stack_padded([torch.tensor([[target.get(name, 0.0) for name in names]]) for _, names, target in learnt], 0.0)
    even = [[share_of_each(config, decision, candidates)] for decision, candidates, _ in learnt]
    as_played = functools.partial(mixed, torch.tensor(even))
    metrics |= first_pass_gap(config, actor, batch.conversations, batch.played, batch.actions, as_played)
    objective = functools.partial(divergence_from_targets, b_targets)
    return metrics | loop.update_policy(config, actor, optimizer, progress, batch, objective)


def share_of_each(config: ExpertIterationConfig, decision: Decision, candidates: Collection[str]) -> float:
    """Return what each candidate's prior has of `uniform_share`. The priors of the candidates sum to 1."""
    prior = decision.probabilities or dict.fromkeys(candidates, 1 / len(candidates))
    return config.uniform_share / len(prior) / sum(prior[name] for name in candidates)


def mixed(even: Tensor, decisions: list[int], log_probs: Tensor) -> Tensor:
    """Return the logarithms of the priors that the search would make of learning's log-probabilities, of shape (b, A).

    Args:
        even: What each candidate of a decision has of the uniform share; shape (B, 1).
        decisions: Indices of the decisions in the batch, b numbers.
        log_probs: Log-probabilities of the candidates, of shape (b, A).
    """
    even = even[decisions]
    return ((1 - even * (log_probs > -math.inf).sum(1, keepdim=True)) * log_probs.exp() + even).log()
