"""`Series`: the episodes of one row of a run: a policy in an environment, with their seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from gym_text.errors import GymTextError, UsageError
from gym_text_policies.engines.base import Engine, EpisodeJob, Identity


@dataclass(frozen=True)
class Series:
    """The episodes of one policy in one environment that belong to a run."""

    label: str
    """Name of the row, which progress and errors show."""
    job: EpisodeJob
    """The environment, the policy and the limits, for an engine."""
    identity: Identity
    """Identifies the episodes in a store."""
    seeds: Sequence[int]
    """The seeds of the episodes."""

    @classmethod
    def of(cls, label: str, job: EpisodeJob, engine: Engine, seeds: Sequence[int]) -> Self:
        """Return the series of a job. The engine that will play the job returns the identity of its episodes.

        Raises:
            UsageError: If the job names an environment, a model or settings that do not exist.
        """
        with naming(label):
            return cls(label, job, engine.identify(job), seeds)

    @cached_property
    def keys(self) -> dict[int, str]:
        """Key of the episode of each seed."""
        return {seed: self.identity.key(seed) for seed in self.seeds}

    @property
    def limit(self) -> int | None:
        """Most steps of an episode; None if the environment names no limit."""
        limit: int | None = self.identity.environment["max_episode_steps"]
        return limit

    @property
    def model(self) -> str:
        """A text that is equal for two series that ask the same model."""
        return repr((self.job.policy.model, sorted(self.job.policy.options.items(), key=str)))


Work = tuple[Series, Sequence[int]]
"""A series, and its seeds that are missing."""


@contextmanager
def naming(label: str) -> Iterator[None]:
    """Add the name of a row to errors that the block raises: to a `UsageError`, and as a note to errors of a user's code."""
    try:
        yield
    except UsageError as error:
        raise type(error)(f"{label}: {error}") from error
    except GymTextError:
        raise
    except Exception as error:
        error.add_note(f"This was in the row {label!r}.")
        raise
