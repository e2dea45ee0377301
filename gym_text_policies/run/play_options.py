"""`EpisodeOptions` and `PlayOptions`: where and how episodes are played. No result depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gym_text.errors import check_choice, check_int
from gym_text_policies.run.cluster import RayEngine
from gym_text_policies.run.engine import Engine, LocalEngine
from gym_text_policies.run.processes import ProcessEngine


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions:
    """How episodes are played: where, how many at once, and which stored episodes are played again."""

    engine: Literal["local", "ray"] = "local"
    """Where episodes are played: local (on this machine), or ray (on the Ray cluster at RAY_ADDRESS, else on a new one on this
    machine)."""
    workers: int = 0
    """Processes that play. Each loads the model into memory of its own. 0: this process alone, or as many as a Ray cluster has
    cores."""
    num_envs: int = 8
    """Episodes that run at once in a process. A model in that process decides for all of them in one batch."""
    max_concurrency: int = 50
    """Most requests that wait for a provider's answer at the same time."""
    retry_errors: bool = False
    """Play again the episodes that ended in an error."""
    fresh: bool = False
    """Play all episodes again, including stored ones. The last record of an episode counts."""

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ("local", "ray"))
        for name, least in (("workers", 0), ("num_envs", 1), ("max_concurrency", 1)):
            check_int(name, getattr(self, name), least, 1_000_000)

    def make_engine(self) -> Engine:
        """Return the engine. The caller closes it.

        Raises:
            MissingDependencyError: If Ray is asked for and not installed.
        """
        limits = self.num_envs, self.max_concurrency
        if self.engine == "ray":
            return RayEngine(self.workers, *limits)
        return ProcessEngine(self.workers, *limits) if self.workers > 1 else LocalEngine(*limits)


@dataclass(frozen=True, kw_only=True)
class PlayOptions(EpisodeOptions):
    """How episodes are played, and from which seed on."""

    first_seed: int = 0
    """Seed of the first episode in each environment. The next episodes have the next seeds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("first_seed", self.first_seed, 0, 2**31 - 1)
