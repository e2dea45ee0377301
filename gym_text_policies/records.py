"""The records that travel between policies, the loop and the store: `Turn`, `Decision`, `Step`, `Episode`.

All are frozen. `Episode.to_json` and `Episode.from_json` are inverse to each other; what a step repeats of the step before
it (the goal, a prompt's beginning) is stored once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

Message = dict[str, str]
"""One message of a chat: ``role`` and ``content``."""
Outcome = Literal["won", "lost", "truncated", "error"]
_Record = TypeVar("_Record", bound="Episode | Step | Decision")


@dataclass(frozen=True)
class Turn:
    """All that a policy may know when it decides; it keeps no other state between turns."""

    obs: Mapping[str, Any]
    """The observation as the wrapped environment gives it."""
    rng: np.random.Generator
    """Seeded by (policy seed, environment, episode seed) at the episode's start, and used by this episode alone."""
    episode: str = ""
    """Identifies the episode among those that run."""
    step: int = 0
    """Steps played before this one."""
    completions: tuple[str | None, ...] = ()
    """What the model generated at each step before this one, where the loop knows it."""


@dataclass(frozen=True)
class Decision:
    """What a policy decided, and why."""

    action: str
    """Name of the action."""
    valid: bool = True
    """False where the answer could not be used and the policy's `on_invalid` chose the action."""
    messages: tuple[Message, ...] = ()
    """The prompt."""
    completion: str | None = None
    """What the model generated; None where it generated nothing."""
    reasoning: str | None = None
    """The part of it that is not the action: thoughts, reflection."""
    retries: int = 0
    """Answers before it that could not be used, and were asked for again."""
    probabilities: Mapping[str, float] | None = None
    """Probability of each action that could be said, where it is known."""
    probability_kind: str | None = None
    """What these are probabilities of; see `Answer.probability_kind`."""
    tokens_in: int = 0
    """Tokens the model was given: the prompt's, and in ``choose`` those of the candidates."""
    tokens_cached: int = 0
    """Those of `tokens_in` that were not computed again."""
    tokens_out: int = 0
    """Tokens the model generated; none in ``choose``."""
    turns_dropped: int = 0
    """Oldest turns of the prompt for which the model's window had no room."""
    seconds: float = 0.0
    """This decision's share of the time that its batch took."""
    cost: float = 0.0
    """Price in US dollars."""
    reference: str | None = None
    """The provider's own name of the episode, where it groups by episodes."""


@dataclass(frozen=True)
class Step:
    """One decision and what came of it."""

    observation: Mapping[str, Any]
    """What the decision was made on: the environment's own keys, without those that the policy's wrappers add, as plain JSON."""
    decision: Decision
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    failure: bool
    score: float
    """The environment's score after the step; the sum of rewards where it has none."""
    action_was_valid: bool
    gold_action: str | None = None
    """Name of the expert's action in the observation, where it is known."""


@dataclass(frozen=True)
class Episode:
    """One episode, whole: of which environment, policy and seed, its steps, and how it ended."""

    key: str
    """Hash of `environment`, `policy` and `seed`: the name by which a stored episode is found again."""
    environment: Mapping[str, Any]
    """The environment's id, keyword arguments, wrappers and limit."""
    policy: Mapping[str, Any]
    """The policy's configuration, as resolved."""
    seed: int
    steps: tuple[Step, ...]
    last_observation: Mapping[str, Any] = field(default_factory=dict)
    """The observation after the last step."""
    error: str | None = None
    """What ended the episode before its time, as a sentence; else None."""

    @property
    def outcome(self) -> Outcome:
        """How it ended; won at the very last step is won."""
        if self.error is not None:
            return "error"
        if self.steps and self.steps[-1].success:
            return "won"
        return "lost" if self.steps and self.steps[-1].terminated else "truncated"

    @property
    def total_reward(self) -> float:
        """The return: sum of the rewards, undiscounted."""
        return float(sum(step.reward for step in self.steps))

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.steps)

    @property
    def invalid(self) -> int:
        """Number of steps whose answer could not be used, or whose action the environment did not understand."""
        return sum(not (step.decision.valid and step.action_was_valid) for step in self.steps)

    @property
    def tokens_in(self) -> int:
        """Tokens given to the model, over all steps."""
        return sum(step.decision.tokens_in for step in self.steps)

    @property
    def tokens_out(self) -> int:
        """Tokens generated by the model, over all steps."""
        return sum(step.decision.tokens_out for step in self.steps)

    @property
    def seconds(self) -> float:
        """Seconds that the decisions took."""
        return sum(step.decision.seconds for step in self.steps)

    @property
    def cost(self) -> float:
        """Price of the decisions in US dollars."""
        return sum(step.decision.cost for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the episode as plain JSON data."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        seen: Mapping[str, Any] = {}
        said: tuple[Message, ...] = ()
        rows = []
        for step in self.steps:
            row = _without_defaults(step)
            decision = _without_defaults(step.decision)
            row["observation"] = {k: v for k, v in step.observation.items() if k not in seen or seen[k] != v}
            messages = decision.pop("messages", ())
            kept = _common(said, messages)
            if messages:
                decision["messages"] = [kept, *messages[kept:]]
            row["decision"] = decision
            rows.append(row)
            seen, said = step.observation, tuple(messages)
        data["steps"] = rows
        data["last_observation"] = {k: v for k, v in self.last_observation.items() if k not in seen or seen[k] != v}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Episode:
        """Return the episode that `to_json` made this data of.

        Raises:
            KeyError, TypeError, ValueError: If it is not such data.
        """
        seen: dict[str, Any] = {}
        said: tuple[Message, ...] = ()
        steps = []
        for row in data["steps"]:
            seen = seen | row["observation"]
            decision = dict(row["decision"])
            if "messages" in decision:
                kept, *new = decision["messages"]
                said = decision["messages"] = (*said[:kept], *map(_checked_message, new))
            else:
                said = ()
            steps.append(_checked(Step(**{**row, "observation": seen, "decision": _checked(Decision(**decision))})))
        last = seen | data["last_observation"] if data["last_observation"] or not data["error"] else {}
        return _checked(cls(**{**data, "steps": tuple(steps), "last_observation": last}))


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "tuple": (tuple,),
    "Mapping": (dict,),
    "None": (type(None),),
}
"""What a field of a declared type may hold after JSON; a type that is not here is not checked."""


@functools.cache
def _json_types(record: Any) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """Return the fields of a record and what each may hold."""
    declared = {f.name: [part.partition("[")[0] for part in str(f.type).split(" | ")] for f in dataclasses.fields(record)}
    return tuple(
        (name, tuple(kind for part in parts for kind in _JSON_TYPES[part]))
        for name, parts in declared.items()
        if all(part in _JSON_TYPES for part in parts)
    )


def _checked(record: _Record) -> _Record:
    """Return a record; raise TypeError if a field holds what it cannot."""
    kind: Any = type(record)
    for name, types in _json_types(kind):
        value = getattr(record, name)
        if not isinstance(value, types):
            raise TypeError(f"{name}: expected {' or '.join(t.__name__ for t in types)}; got {str(value)[:60]!r}")
    if isinstance(record, Decision) and not all(isinstance(p, int | float) for p in (record.probabilities or {}).values()):
        raise TypeError("probabilities: expected numbers")
    return record


def _checked_message(message: Any) -> Message:
    if not (isinstance(message, dict) and all(isinstance(message.get(part), str) for part in ("role", "content"))):
        raise TypeError(f"messages: expected role and content; got {str(message)[:60]!r}")
    return message


def _without_defaults(record: Step | Decision) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    fields = dataclasses.fields(record)
    return {f.name: getattr(record, f.name) for f in fields if getattr(record, f.name) != f.default}


def _common(first: tuple[Message, ...], second: tuple[Message, ...]) -> int:
    """Return how many messages two prompts share from the start."""
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))


def plain(value: Any) -> Any:
    """Return an observation, or a part of one, as plain JSON: arrays and tuples as lists, float32 by its shortest digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value] if value.ndim else plain(value[()])
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value
