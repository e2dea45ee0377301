"""`SearchConfig`: all settings of a search, as options or as keys of a YAML file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.folds import fold_seed
from gym_text.registration import SEARCH
from gym_text_policies.backends.provider_table import names_for_help
from gym_text_policies.backends.providers.keys import without_foreign_keys
from gym_text_policies.environments import parse_environment

OPTIMISERS = ("model", "random", "cma", "gp")
_OF_MODEL = ("model", "prompt", "proposals_per_prompt", "reasons", "buffer_size", "optimum")
"""Settings of the optimiser `model` alone."""
_NOT_IN_IDENTITY = ("folder", "evaluations", "options")


@dataclass(frozen=True)
class SearchConfig:
    """Search for the parameters of a policy: a language model proposes them, or CMA-ES, a Gaussian process, or random draws.

    The policy is linear in the observed numbers, or a table where these are whole numbers. The value of a proposal is the mean
    return of rollouts on fixed seeds. The run folder keeps all evaluations; the same command continues after them.
    """

    environment: str = SEARCH
    """Id of the environment, with keyword arguments as in FrozenLake-v1?is_slippery=False&max_episode_steps=50."""
    optimiser: str = "model"
    """What proposes parameters: model, random, cma, gp, or two of them as in 'model then cma'."""
    model: str = field(default="smollm2", metadata={"more": names_for_help})
    """The language model that proposes."""
    prompt: Literal["numeric", "semantic"] = "numeric"
    """numeric: the model optimises an unnamed function. semantic: it is also told the task, the meanings, how episodes went."""
    proposals_per_prompt: int = 1
    """Proposals from one prompt, each in an answer of its own. All of them are evaluated before the next prompt."""
    reasons: bool = True
    """Whether the model gives a reason before its numbers."""
    buffer_size: int = 20
    """Most evaluations that the model is shown: one half are the best, the others the latest."""
    optimum: float | None = None
    """Greatest possible value, which the prompt names. None: the prompt names none. It is part of the run's configuration."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model's backend: dtype, device, base_url, timeout, cache, prices, max_cost …"""
    evaluations: int = 100
    """Number of evaluations, with those of the warm-up. A run folder that has fewer is continued."""
    num_rollouts: int = 20
    """Episodes that evaluate a proposal. Its value is their mean return."""
    bias: bool = True
    """Whether a linear policy has a constant term: 3 parameters on MountainCarContinuous instead of 2."""
    bounds: tuple[float, ...] = (-6.0, 6.0)
    """Least and greatest value of a linear policy's parameters."""
    warmup_evaluations: int = 0
    """Number of evaluations before the optimiser begins. Their proposals are random."""
    refine_at: int = 0
    """With two optimisers: evaluations after which the second takes over; 0: half of all evaluations."""
    seed: int = 0
    """Seed of the search and of its rollouts."""
    folder: str = "runs/search"
    """Run folder."""

    def __post_init__(self) -> None:
        parse_environment(self.environment)
        for name in self.stages:
            check_choice("optimiser", name, OPTIMISERS)
        if not 1 <= len(self.stages) <= 2:
            raise UsageError(f"optimiser: expected one, or two as in 'model then cma'; got {self.optimiser!r}.")
        if len(self.bounds) != 2 or not -math.inf < self.bounds[0] < self.bounds[1] < math.inf:
            raise UsageError(f"bounds: expected the least and the greatest value, as in -6 6; got {self.bounds}.")
        check_choice("prompt", self.prompt, ("numeric", "semantic"))
        for name in ("evaluations", "num_rollouts", "proposals_per_prompt", "buffer_size"):
            check_int(name, getattr(self, name), 1, 2**31 - 1)

    of_file = staticmethod(without_foreign_keys)
    """A file alone sends no key to a server that the key does not belong to."""

    @property
    def stages(self) -> list[str]:
        """The optimisers, in order."""
        return [part.strip() for part in self.optimiser.split(" then ")]

    @property
    def takes_over_at(self) -> int:
        """Evaluations after which the second optimiser, if any, takes over."""
        return self.refine_at or self.evaluations // 2

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the rollouts. They lie in the train fold; each search seed has its own."""
        return tuple(fold_seed("train", self.seed * self.num_rollouts + i) for i in range(self.num_rollouts))

    def identity(self) -> dict[str, Any]:
        """Return what all runs into one folder must share, without secrets."""
        settings = {name: value for name, value in dataclasses.asdict(self).items() if name not in _NOT_IN_IDENTITY}
        if len(self.stages) > 1:
            settings["refine_at"] = self.takes_over_at
        if "model" not in self.stages:
            settings = {name: value for name, value in settings.items() if name not in _OF_MODEL}
        return {"search": 1, **settings}
