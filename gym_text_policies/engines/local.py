"""`LocalEngine`: jobs are played in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gym_text_policies.engines.base import Engine, EpisodeJob, Identity, Job, R, Turns, Watch


class LocalEngine(Engine):
    """Plays in this process, one job after the other; each job's policy is made once."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, Any] = {}

    def identify(self, job: EpisodeJob) -> Identity:
        """Make the job's policy unless it is made already, and return the identity of the job's episodes."""
        return job.player(self._held)[2]

    def _check(self, job: EpisodeJob) -> None:
        """Check the job's policy."""
        job.player(self._held)[1].check()

    def play(self, work: Sequence[tuple[Job[R], Sequence[int]]], *, watch: Watch | None = None) -> Iterator[R]:
        """Play one job after the other."""
        for number, (job, seeds) in enumerate(work):
            yield from job.play(seeds, self._held, watch and (lambda count, number=number: watch(Turns(number, 0, count))))
