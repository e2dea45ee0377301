"""`EngineOptions`, `EpisodeOptions` and `PlayOptions`: where and how episodes are played. No result depends on them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.engines.base import Engine
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.multi import ProcessEngine
from gym_text_policies.engines.ray import RayEngine


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where episodes are played."""

    engine: Literal["local", "ray"] = "local"
    """Where episodes are played: local (on this machine), or ray (on the Ray cluster at RAY_ADDRESS, else on a new one on this
    machine)."""
    workers: int = 0
    """Processes that play. Each loads the model into memory of its own. 0: this process alone, or as many as a Ray cluster has room
    for."""

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ("local", "ray"))
        check_int("workers", self.workers, 0, 1_000_000)

    def make_engine(self) -> Engine:
        """Return the engine. The caller closes it.

        Raises:
            MissingDependencyError: If Ray is asked for and not installed.
        """
        return self._engine()

    def _engine(self, **resources: Any) -> Engine:
        """Return the engine; a worker of a Ray cluster gets these resources."""
        if self.engine == "ray":
            return RayEngine(self.workers, **resources)
        return ProcessEngine(self.workers) if self.workers > 1 else LocalEngine()


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions(EngineOptions):
    """How episodes are played: where, how many at once, and which stored episodes are played again."""

    ray_cpus: int = 1
    """CPU cores that each worker of a Ray cluster gets."""
    ray_gpus: float = 0.0
    """GPUs that each worker of a Ray cluster gets. A fraction is a share of one GPU."""
    num_envs: int = 8
    """Episodes that run at once in a process. A model in that process decides for all of them in one batch."""
    max_concurrency: int = 50
    """Most requests that wait for a provider's answer at the same time."""
    retry_errors: bool = False
    """Play again the episodes that ended in an error."""
    fresh: bool = False
    """Play all episodes again, including stored ones. The last record of an episode counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("ray_cpus", self.ray_cpus, 1, 10_000)
        if not 0 <= self.ray_gpus <= 10_000:
            raise UsageError(f"ray_gpus: expected a number from 0 to 10,000; got {self.ray_gpus!r}.")
        check_int("num_envs", self.num_envs, 1, 1_000_000)
        check_int("max_concurrency", self.max_concurrency, 1, 1_000_000)

    def make_engine(self) -> Engine:
        """Return the engine; see `EngineOptions.make_engine`."""
        return self._engine(cpus=self.ray_cpus, gpus=self.ray_gpus)


@dataclass(frozen=True, kw_only=True)
class PlayOptions(EpisodeOptions):
    """How episodes are played, and from which seed on."""

    first_seed: int = 0
    """Seed of the first episode in each environment. The next episodes have the next seeds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("first_seed", self.first_seed, 0, 2**31 - 1)


ENGINE_OPTIONS = tuple(field.name for field in dataclasses.fields(EngineOptions))
"""Names of the options of `EngineOptions`."""
PLAY_OPTIONS = tuple(field.name for field in dataclasses.fields(PlayOptions))
"""Names of the options of `PlayOptions`."""
