"""Training on groups: the model plays each level several times, and learns from what the episodes of one level have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gym_text.errors import UsageError, check_int
from gym_text_policies.training.loop import OnPolicyConfig
from gym_text_policies.training.model.checkpoints import Progress
from gym_text_policies.training.trajectories import Trajectory, play

if TYPE_CHECKING:
    from gym_text_policies.training.model.actor_critic import Actor


@dataclass(frozen=True, kw_only=True)
class GroupedConfig(OnPolicyConfig):
    """Settings of training that plays each level several times."""

    episodes_per_iteration: int = 64
    """Episodes of each iteration, a multiple of group_size; the environments take turns."""
    group_size: int = 8
    """Episodes of each level."""
    discount: float = 1.0
    """Discount factor (gamma). Below 1 a decision's return counts soon rewards more than late ones."""
    least_probability: float = 0.0
    """From 0 to 0.1. Learning leaves out candidates that had a smaller probability in play. It never leaves out the action that was
    taken, nor the four most probable candidates. With forty candidates, 0.001 nearly halves the work."""
    episodes_per_step: int = 16
    """Episodes in one step of the optimiser, a multiple of group_size: episodes of one level stay together."""
    kl_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("group_size", self.group_size, 2, 1_000_000)
        self.check_ranges(discount=(0, 1), least_probability=(0, 0.1))
        for name in ("episodes_per_iteration", "episodes_per_step"):
            if getattr(self, name) % self.group_size:
                raise UsageError(f"{name}: expected a multiple of group_size={self.group_size}; got {getattr(self, name)}.")

    @property
    def levels_per_step(self) -> int:
        """Levels in one step of the optimiser."""
        return self.episodes_per_step // self.group_size


def play_groups(config: GroupedConfig, actor: Actor, progress: Progress) -> list[Trajectory]:
    """Play an iteration's levels, each several times; the episodes of a level stand side by side. See `play`."""
    return play(config, actor, progress, config.group_size, config.least_probability)
