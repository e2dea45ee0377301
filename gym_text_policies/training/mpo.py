"""MPO (Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920) for a language model in ``choose``, from top to bottom.

In each iteration the model plays every level several times, and draws its actions. MPO then knows the states that the episodes of a
level reached and, from copies of the game, where almost every action leads from there (`gym_text_policies.training.state_values`).
So the values of all actions are computed, not drawn:

* The value of an action is that of the best policy near the prior, within the states that the episodes reached. One episode that
  wins gives values to the states of all episodes of its level. A way that no episode took as a whole can have the highest value.
* The objective with a KL penalty for leaving the old policy has a known maximum: the old probabilities times
  exp(value / return_temperature), normalised. These are the target probabilities. A share of the old probability mass is first
  spread evenly over the candidates (`with_floor`).
* Learning minimises KL(target probabilities || policy) in each state, over all candidates. So the model also learns what it would
  never draw, as long as one step in a copy shows what comes of it.

GRPO (`gym_text_policies.training.grpo`) learns from the same episodes only about the actions that were taken, and from their
returns, which depend on luck. MPO needs an environment that plays an episode twice in the same way. It is for states that come
again: if the observations of two episodes are never equal, the values follow single episodes.

A copy of the game knows what the player has not seen, so values are privileged, as those of a critic that sees the whole state. The
player is not: it learns and plays from its observations alone.

To follow MPO from its settings to its gradients, read this file, `gym_text_policies.training.state_values` (the values),
`gym_text_policies.training.loop` (the iteration and the gradient steps), `gym_text_policies.training.trajectories` (the episodes)
and `gym_text_policies.training.model.actor_critic` (the model).

Metrics are those of `gym_text_policies.training.grpo`, without ``clipped`` and ``old_kl``, and with:

* ``policy_loss``: mean of KL(target probabilities || policy), in nats.
* ``mixed``: share of the levels with a state in which one known action is worth more than another.
* ``states``: number of states in which an episode acted. ``learnt`` is the number of decisions that the model learns from.
* ``simulator_steps``: number of steps that were played again, and in copies of the game. No model is asked in them.

Shapes: B is the number of decisions that an iteration learns from, b the number of decisions in one forward pass, A the greatest
number of candidates of a decision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym

from gym_text_policies.old_names import old_names
from gym_text_policies.training import loop
from gym_text_policies.training.groups import GroupedConfig, play_groups
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import gather, own_share
from gym_text_policies.training.model.saving import made
from gym_text_policies.training.state_values import action_values, reached_states, state_of, target_probabilities, with_floor
from gym_text_policies.training.targets import Targets, divergence_from_targets, make_batch
from gym_text_policies.training.trajectories import Trajectory

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gym_text_policies.training.model.actor_critic import Actor

LEAST_DIVERGENCE = 0.01
"""The model does not learn from a decision whose target probabilities diverge less than this from the old ones, in nats."""


@old_names()
@dataclass(frozen=True, kw_only=True)
class MPOConfig(GroupedConfig):
    """Train a language model on its own episodes by MPO with LoRA: copies of the game show where other actions would have led."""

    algorithm: ClassVar[str] = "mpo"

    folder: str = "runs/mpo"
    group_size: int = 4
    discount: float = 0.95
    return_temperature: float = 0.01
    """In units of the return. If one action is worth this much more than another, an iteration multiplies its odds against the
    other by e."""
    learning_rate: float = 2e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("return_temperature")


def train(config: MPOConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder, the model or an environment does not fit the settings. Nothing is overwritten.
    """
    return loop.run(config, loop.make_actor, play_groups, learn)


def learn(
    config: MPOConfig, actor: Actor, optimizer: Optimizer, progress: Progress, trajectories: Sequence[Trajectory]
) -> dict[str, float]:
    """Learn from an iteration's episodes; return the metrics. If no level is mixed, the model learns nothing."""
    levels: dict[tuple[str, int], list[Trajectory]] = {}
    for trajectory in trajectories:
        levels.setdefault(trajectory.level, []).append(trajectory)
    envs = {name: config.env_maker(name)() for name in config.environments}
    found = gather([level_targets(config, envs[level[0]], levels[level]) for level in own_share(list(levels))])
    for env in envs.values():
        env.close()
    targets = [of_episode for of_level, _, _ in found for of_episode in of_level]
    learnt = sum(bool(target) for of_episode in targets for target in of_episode)
    mixed = sum(any(target for of_episode in of_level for target in of_episode) for of_level, _, _ in found)
    metrics = {
        "mixed": mixed / len(levels),
        "states": float(sum(states for _, states, _ in found)),
        "learnt": float(learnt),
        "simulator_steps": float(sum(steps for _, _, steps in found)),
    }
    if not learnt:
        return metrics
    batch = make_batch(config, actor, [one for level in levels.values() for one in level], targets)
    check_finite(progress.title, targets=batch.targets)
    objective = functools.partial(divergence_from_targets, batch.targets)
    return metrics | loop.update_policy(config, actor, optimizer, progress, batch, objective, config.levels_per_step)


def level_targets(
    config: MPOConfig, env: gym.Env[Any, Any], trajectories: Sequence[Trajectory]
) -> tuple[list[list[Targets]], int, int]:
    """Return the targets of the episodes of one level, the number of states that they reached, and of steps in the simulator.

    A prompt that comes again is learnt once. In a state that comes again, the prompts may differ in their history.
    """
    states, steps = reached_states(env, trajectories)
    values = action_values(states, config.discount, config.return_temperature)
    learnt: set[str] = set()
    targets: list[list[Targets]] = []
    for trajectory in trajectories:
        targets.append([])
        for step, candidates, prompt in zip(trajectory.episode.steps, trajectory.candidates, trajectory.prompts, strict=False):
            target = target_probabilities(candidates, values[state_of(step.observation)], config.return_temperature)
            is_new = (text := repr(prompt)) not in learnt
            targets[-1].append(target if is_new and _divergence(target, with_floor(candidates)) > LEAST_DIVERGENCE else {})
            learnt.add(text)
    return targets, len(states), steps


def _divergence(target: dict[str, float], prior: dict[str, float]) -> float:
    """Return KL(target probabilities || prior), in nats. No probability of the prior is 0."""
    return sum(value * math.log(value / prior[action]) for action, value in target.items() if value > 0)


def run(config: MPOConfig) -> str:
    """Train, and return a sentence that names the adapter's folder."""
    return made(train(config))
