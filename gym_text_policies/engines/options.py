"""`EngineOptions` and `PlayOptions`: where and how episodes are played. No result depends on them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.engines.base import Engine
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.ray import RayEngine


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where episodes are played."""

    engine: Literal["local", "ray"] = "local"
    """In this process, or spread over a Ray cluster: the one at RAY_ADDRESS, or a new one on this machine."""
    ray_workers: int = 0
    """Ray: number of processes that play, each with the model in its memory; 0: as many as the cluster has room for."""
    ray_cpus: int = 1
    """Ray: CPU cores of each of them."""
    ray_gpus: float = 0.0
    """Ray: GPUs of each of them, or the share of one."""

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ("local", "ray"))
        check_int("ray_workers", self.ray_workers, 0, 1_000_000)
        check_int("ray_cpus", self.ray_cpus, 1, 10_000)
        if not 0 <= self.ray_gpus <= 10_000:
            raise UsageError(f"ray_gpus: expected a number from 0 to 10,000; got {self.ray_gpus!r}.")

    def make_engine(self) -> Engine:
        """Return the engine; close it in the end.

        Raises:
            MissingDependencyError: If Ray is asked for and not installed.
        """
        if self.engine == "local":
            return LocalEngine()
        return RayEngine(self.ray_workers, cpus=self.ray_cpus, gpus=self.ray_gpus)


@dataclass(frozen=True, kw_only=True)
class PlayOptions(EngineOptions):
    """How episodes are played: where, how many at once, and whether failures are tried again."""

    batch: int = 8
    """Episodes that run at once, asking a model in this process together."""
    max_concurrency: int = 50
    """Requests to a provider that wait at once."""
    retry_errors: bool = False
    """Play episodes again that ended in an error."""
    fresh: bool = False
    """Play all episodes again, also those that are stored; the last record of an episode counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("batch", self.batch, 1, 1_000_000)
        check_int("max_concurrency", self.max_concurrency, 1, 1_000_000)


ENGINE_OPTIONS = tuple(field.name for field in dataclasses.fields(EngineOptions))
"""Names of the options of the engine."""
PLAY_OPTIONS = tuple(field.name for field in dataclasses.fields(PlayOptions))
"""Names of all of them."""
