"""Small policies with named, bounded parameters, for `gym-text search`: linear functions of vectors, and tables."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from gym_text import TextSpec, UsageError
from gym_text.spec import Quantity
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.records import Decision, Turn


@dataclass(frozen=True)
class Parameter:
    """One parameter of a policy."""

    name: str
    meaning: str
    low: float
    high: float
    whole: bool = False
    """Whether only the whole part of the value counts. The whole part is less than `high`."""

    @property
    def greatest(self) -> float:
        """The greatest value worth proposing."""
        return self.high - 1 if self.whole else self.high


class Form(ABC):
    """A family of policies: a function from the numbers under some keys of the observation, and parameters, to an action."""

    kind: str

    def __init__(self, parameters: Sequence[Parameter], keys: Sequence[str]) -> None:
        self.parameters = tuple(parameters)
        self.keys = tuple(keys)
        self.low = np.array([parameter.low for parameter in parameters])
        self.high = np.array([parameter.high for parameter in parameters])

    def numbers(self, obs: Mapping[str, Any]) -> np.ndarray:
        """Return the numbers of an observation, float64 of shape (k,)."""
        return np.concatenate([np.asarray(obs[key], dtype=np.float64).reshape(-1) for key in self.keys])

    @abstractmethod
    def act(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Decide for n observations at once, each with its own parameters.

        Args:
            values: Values of the parameters, float64 of shape (n, parameters).
            numbers: Observed numbers, of shape (n, k).

        Returns:
            The actions: float32 of shape (n, size) for a Box, else int of shape (n,). Row i depends on row i alone, exactly.
        """

    @abstractmethod
    def formula(self) -> str:
        """Describe in a sentence how the action is computed."""


class _LinearForm(Form):
    """Scores that are weighted sums of the observed numbers.

    If actions are numbers, they are the scores, clipped to their limits. Of two named actions the second is taken if the only score
    is above 0. Of more than two the one with the greatest score is taken.
    """

    kind = "linear"

    def __init__(self, spec: TextSpec, keys: Sequence[str], *, bias: bool, bounds: tuple[float, float]) -> None:
        self._spec = spec
        self._inputs = _quantities(spec, keys)
        self._bias = bias
        self._width = len(self._inputs) + bias  # number of parameters of a score
        if spec.encoding == "box":
            scores = [f"number {i + 1}" for i in range(spec.size)]
        else:
            scores = ["second"] if len(spec.actions) == 2 else [action.name for action in spec.actions]
        parameters = []
        for score in scores:
            end = f"_{score.replace(' ', '_')}" if len(scores) > 1 else ""
            to = f"the score of {score!r}" if len(scores) > 1 else "the score"
            parameters += [Parameter(f"w_{q.name}{end}", f"how much {q.name} adds to {to}", *bounds) for q in self._inputs]
            parameters += [Parameter(f"bias{end}", f"what is always added to {to}", *bounds)] if bias else []
        super().__init__(parameters, keys)

    def act(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        columns = []
        for start in range(0, values.shape[1], self._width):
            score = np.zeros(len(values))
            for i in range(len(self._inputs)):  # numbers are added in a fixed order, so that the sums do not depend on n
                score = score + values[:, start + i] * numbers[:, i]
            columns.append(score + values[:, start + self._width - 1] if self._bias else score)
        scores = np.stack(columns, axis=1)
        if self._spec.encoding == "box":
            return np.asarray(np.clip(scores, self._spec.low, self._spec.high), dtype=np.float32)
        return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else np.argmax(scores, axis=1), dtype=int)

    def formula(self) -> str:
        terms = " + ".join([f"w_{q.name} x {q.name}" for q in self._inputs] + ["bias"] * self._bias)
        names = [action.name for action in self._spec.actions]
        if self._spec.encoding == "box":
            subject = f"The action is {terms}" if self._spec.size == 1 else f"Each number of the action is its own {terms}"
            return f"{subject}, clipped to {self._spec.low:g} to {self._spec.high:g}."
        if len(names) == 2:
            return f"The action is '{names[1]}' where {terms} is above 0, else '{names[0]}'."
        return f"The action is the one whose own score, {terms}, is greatest."


class _TableForm(Form):
    """A table with an action for each value of one whole number, or for each combination of several."""

    kind = "table"

    def __init__(self, spec: TextSpec, keys: Sequence[str]) -> None:
        if spec.encoding != "discrete":
            raise UsageError("search: expected named actions where the observation is whole numbers; got actions that are numbers.")
        quantities = _quantities(spec, keys)
        self._sizes = tuple(int(quantity.high) + 1 for quantity in quantities)
        self._names = [action.name for action in spec.actions]
        title = "_".join(quantity.name for quantity in quantities)
        parameters = []
        for index in np.ndindex(self._sizes):
            where = ", ".join(f"{quantity.name} is {number}" for quantity, number in zip(quantities, index, strict=True))
            name, meaning = f"{title}_{'_'.join(map(str, index))}", f"number of the action where {where}"
            parameters.append(Parameter(name, meaning, 0.0, float(len(self._names)), whole=True))
        super().__init__(parameters, keys)

    def act(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        places = np.ravel_multi_index(tuple(numbers.astype(int).T), self._sizes)
        chosen = values[np.arange(len(values)), places]
        return np.asarray(np.clip(np.floor(chosen), 0, len(self._names) - 1), dtype=int)

    def formula(self) -> str:
        numbered = ", ".join(f"{i} {name}" for i, name in enumerate(self._names))
        return f"Each parameter is the number of the action that is taken there, its whole part: {numbered}."


def form_of(env: gym.Env[Any, Any], *, bias: bool = True, bounds: tuple[float, float] = (-6.0, 6.0)) -> Form:
    """Return the form of policy that fits an environment. For `bias` and `bounds` see `SearchConfig`.

    Raises:
        UsageError: If the observation contains no numbers.
    """
    spec, space = text_spec(env), env.observation_space
    keys = [key for key, field in spec.fields.items() if field.quantities]
    if not keys or spec.encoding not in ("box", "discrete") or not isinstance(space, spaces.Dict):
        raise UsageError(f"search: expected an environment whose observation has numbers; got {env}.")
    parts = [part for key in keys for part in getattr(space[key], "spaces", [space[key]])]  # of a Tuple, or of another space
    if all(isinstance(part, spaces.Discrete) for part in parts):
        return _TableForm(spec, keys)
    return _LinearForm(spec, keys, bias=bias, bounds=bounds)


def _quantities(spec: TextSpec, keys: Sequence[str]) -> list[Quantity]:
    return [quantity for key in keys for quantity in spec.fields[key].quantities]


class SearchedPolicy(Policy):
    """A form of policy with values of its parameters, as `load_searched` returns it."""

    def __init__(self, form: Form, values: Sequence[float], spec: TextSpec) -> None:
        super().__init__(spec)
        self._form = form
        self._values = np.array([values], dtype=np.float64)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Return the action of each turn."""
        actions = [self._form.act(self._values, self._form.numbers(turn.obs)[None])[0] for turn in turns]
        return [Decision(self.spec.decode(action, dict(turn.obs))) for action, turn in zip(actions, turns, strict=True)]

    @property
    def config(self) -> dict[str, Any]:
        """Its form and its parameters."""
        names = [parameter.name for parameter in self._form.parameters]
        return {"kind": "search", "form": self._form.kind, "parameters": dict(zip(names, self._values[0].tolist(), strict=True))}


def load_searched(path: str | Path, env: gym.Env[Any, Any]) -> SearchedPolicy:
    """Return the policy of a ``policy.json`` that a search wrote.

    Raises:
        UsageError: If the file cannot be read, or its parameters do not fit the environment.
    """
    try:
        record = json.loads(check_regular(Path(path)).read_text("utf-8"))
        kind, parameters = record["policy"], {str(name): float(value) for name, value in record["parameters"].items()}
        if not all(map(math.isfinite, parameters.values())):
            raise ValueError("a parameter is no finite number")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path}: expected the policy.json of a search; {type(error).__name__}: {error}.") from error
    for bias in (True, False):
        form = form_of(env, bias=bias)
        names = [parameter.name for parameter in form.parameters]
        if form.kind == kind and set(names) == parameters.keys():
            return SearchedPolicy(form, [parameters[name] for name in names], text_spec(env))
    raise UsageError(
        f"{path}: expected a policy for {env.spec.id if env.spec else env}, with {len(names)} parameters such as {names[0]}; "
        f"got {len(parameters)} parameters, found on {record.get('environment')!r}."
    )
