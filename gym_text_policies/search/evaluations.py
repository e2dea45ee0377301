"""The records of a search: `Evaluation`, and its store in the run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gym_text_policies.files.json_data import check_json
from gym_text_policies.files.run_folders import RunFolder
from gym_text_policies.store import RecordStore


@dataclass(frozen=True)
class Proposal:
    """Parameters to try, and their source."""

    parameters: tuple[float, ...]
    """The values to try, in the order of the policy's names."""
    source: str
    """What proposed them: ``model``, ``random``, ``cma`` … ``random instead`` is a random proposal in place of unusable
    answers."""
    reason: str | None = None
    """The reason that the model gave."""
    answers: tuple[str, ...] = ()
    """All answers of the model, including the unusable ones."""
    rejections: tuple[str, ...] = ()
    """Why each unusable answer was rejected."""
    tokens_in: int = 0
    """Tokens that the model read, over all answers."""
    tokens_cached: int = 0
    """Those of `tokens_in` that an earlier call had cached. Tokens that proposals from one prompt share do not count as cached."""
    tokens_out: int = 0
    """Tokens that the model wrote."""
    tokens_reasoning: int = 0
    """The part of `tokens_out` that belongs to thoughts."""
    thoughts: tuple[str, ...] = ()
    """What the model thought before each answer; empty if it never thought."""
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0
    """Time that the proposal took. Several proposals from one prompt have equal shares of its time."""


@dataclass(frozen=True)
class Evaluation:
    """One proposal and its value."""

    index: int
    """Its number in the search, from 0."""
    proposal: Proposal
    """What was tried."""
    returns: tuple[float, ...]
    """Return of each rollout, in the order of the seeds."""
    lengths: tuple[int, ...]
    """Number of steps of each rollout."""
    successes: int
    """Number of rollouts that succeeded."""
    summary: str = ""
    """A description of the rollouts in words."""

    @property
    def error(self) -> None:
        """Always None: a rollout that fails ends the search."""
        return None

    @property
    def key(self) -> str:
        """Its key in the store."""
        return str(self.index)

    @property
    def value(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def parameters(self) -> tuple[float, ...]:
        """The parameters that were tried."""
        return self.proposal.parameters

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        data = dataclasses.asdict(self)
        fields = {f.name: f.default for f in dataclasses.fields(Proposal)}
        data["proposal"] = {name: value for name, value in data["proposal"].items() if value != fields[name]}
        return {"key": self.key, "error": None, "value": self.value, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that was written as this data by `to_json`.

        Raises:
            KeyError, TypeError, ValueError: If the data is no evaluation.
        """
        check_json("evaluation", data)
        proposal: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data["proposal"].items()
        }
        returns, lengths = tuple(map(float, data["returns"])), tuple(map(int, data["lengths"]))
        return cls(data["index"], Proposal(**proposal), returns, lengths, data["successes"], data["summary"])


class EvaluationStore(RecordStore[Evaluation]):
    """The evaluations of a search, in ``FOLDER/evaluations.jsonl``. For the arguments see `RunFolder`."""

    file_name: ClassVar[str] = "evaluations.jsonl"

    def __init__(self, folder: str | Path, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(RunFolder(folder, config), self.file_name, Evaluation.from_json)


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    evaluations: tuple[Evaluation, ...]
    """All evaluations, in their order."""
    policy: dict[str, Any]
    """The best policy, in the form of ``policy.json``."""

    @property
    def best(self) -> Evaluation:
        """The evaluation of greatest value."""
        return best(self.evaluations)


def best(history: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation of greatest value. If several have this value, return the first of them."""
    return max(history, key=lambda evaluation: evaluation.value)
