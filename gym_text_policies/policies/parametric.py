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
    """A family of policies: a function from observed numbers and parameters to an action.

    Args:
        parameters: Names and bounds of the parameters.
        keys: Keys of the observation that the policy reads.
    """

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


class LinearForm(Form):
    """Scores that are weighted sums of the observed numbers.

    If actions are numbers, they are the scores, clipped to their limits. Of two named actions the second is taken if the only score
    is above 0. Of more than two the one with the greatest score is taken.

    Args:
        spec: The environment's spec.
        keys: Keys of the observation's vectors.
        bias: Whether each score has a constant term.
        bounds: Least and greatest value of each parameter.
    """

    kind = "linear"

    def __init__(self, spec: TextSpec, keys: Sequence[str], *, bias: bool, bounds: tuple[float, float]) -> None:
        self._spec = spec
        self._inputs = _quantities(spec, keys)
        self._bias = bias
        outputs = _outputs(spec)
        self._width = len(self._inputs) + bias  # number of parameters of a score
        parameters = []
        for output in outputs:
            end = f"_{output.replace(' ', '_')}" if len(outputs) > 1 else ""
            to = f"the score of {output!r}" if len(outputs) > 1 else "the score"
            parameters += [Parameter(f"w_{q.name}{end}", f"how much {q.name} adds to {to}", *bounds) for q in self._inputs]
            parameters += [Parameter(f"bias{end}", f"what is always added to {to}", *bounds)] if bias else []
        super().__init__(parameters, keys)

    def act(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Decide for n observations at once. Numbers are added in a fixed order, so that the sums do not depend on n."""
        columns = []
        for start in range(0, values.shape[1], self._width):
            score = np.zeros(len(values))
            for i in range(len(self._inputs)):
                score = score + values[:, start + i] * numbers[:, i]
            columns.append(score + values[:, start + self._width - 1] if self._bias else score)
        scores = np.stack(columns, axis=1)
        if self._spec.encoding == "box":
            return np.asarray(np.clip(scores, self._spec.low, self._spec.high), dtype=np.float32)
        return np.asarray(scores[:, 0] > 0 if scores.shape[1] == 1 else np.argmax(scores, axis=1), dtype=int)

    def formula(self) -> str:
        """Describe in a sentence how the action is computed."""
        terms = " + ".join([f"w_{q.name} x {q.name}" for q in self._inputs] + ["bias"] * self._bias)
        names = [action.name for action in self._spec.actions]
        if self._spec.encoding == "box" and self._spec.size == 1:
            return f"The action is {terms}, clipped to {self._spec.low:g} to {self._spec.high:g}."
        if self._spec.encoding == "box":
            return f"Each number of the action is its own {terms}, clipped to {self._spec.low:g} to {self._spec.high:g}."
        if len(names) == 2:
            return f"The action is '{names[1]}' where {terms} is above 0, else '{names[0]}'."
        return f"The action is the one whose own score, {terms}, is greatest."


class TableForm(Form):
    """A table with an action for each value of one whole number, or for each combination of several.

    Args:
        spec: The environment's spec.
        keys: Keys of the observation's numbers.
    """

    kind = "table"

    def __init__(self, spec: TextSpec, keys: Sequence[str]) -> None:
        if spec.encoding != "discrete":
            raise UsageError("search: expected named actions where the observation is whole numbers; got actions that are numbers.")
        quantities = _quantities(spec, keys)
        self._sizes = tuple(int(quantity.high) + 1 for quantity in quantities)
        self._actions = len(spec.actions)
        self._names = [action.name for action in spec.actions]
        title = "_".join(quantity.name for quantity in quantities)
        where = (np.unravel_index(i, self._sizes) for i in range(math.prod(self._sizes)))
        super().__init__(
            [
                Parameter(
                    f"{title}_{'_'.join(str(int(n)) for n in index)}",
                    f"number of the action where {', '.join(f'{q.name} is {n}' for q, n in zip(quantities, index, strict=True))}",
                    0.0,
                    float(self._actions),
                    whole=True,
                )
                for index in where
            ],
            keys,
        )

    def act(self, values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Look up the action of each of n observations."""
        places = np.ravel_multi_index(tuple(numbers.astype(int).T), self._sizes)
        chosen = values[np.arange(len(values)), places]
        return np.asarray(np.clip(np.floor(chosen), 0, self._actions - 1), dtype=int)

    def formula(self) -> str:
        """Describe in a sentence how the action is computed."""
        numbered = ", ".join(f"{i} {name}" for i, name in enumerate(self._names))
        return f"Each parameter is the number of the action that is taken there, its whole part: {numbered}."


def form_of(env: gym.Env[Any, Any], *, bias: bool = True, bounds: tuple[float, float] = (-6.0, 6.0)) -> Form:
    """Return the form of policy that fits an environment.

    Args:
        env: An environment with a `TextSpec`.
        bias: Whether linear scores have a constant term.
        bounds: Least and greatest value of linear parameters.

    Raises:
        UsageError: If the observation contains no numbers.
    """
    spec, space = text_spec(env), env.observation_space
    keys = [key for key, field in spec.fields.items() if field.quantities]
    if not keys or spec.encoding not in ("box", "discrete") or not isinstance(space, spaces.Dict):
        raise UsageError(f"search: expected an environment whose observation has numbers; got {env}.")
    if all(_is_whole(space[key]) for key in keys):
        return TableForm(spec, keys)
    return LinearForm(spec, keys, bias=bias, bounds=bounds)


def _is_whole(space: gym.Space[Any]) -> bool:
    parts = space.spaces if isinstance(space, spaces.Tuple) else [space]
    return all(isinstance(part, spaces.Discrete) for part in parts)


def _quantities(spec: TextSpec, keys: Sequence[str]) -> list[Quantity]:
    return [quantity for key in keys for quantity in spec.fields[key].quantities]


def _outputs(spec: TextSpec) -> list[str]:
    """Return the names of the scores of a linear policy."""
    if spec.encoding == "box":
        return [f"number {i + 1}" for i in range(spec.size)]
    return ["second"] if len(spec.actions) == 2 else [action.name for action in spec.actions]


class SearchedPolicy(Policy):
    """A form of policy with values of its parameters.

    Args:
        form: The form of the policy.
        values: The values of its parameters.
        env: The environment to play.
    """

    def __init__(self, form: Form, values: Sequence[float], env: gym.Env[Any, Any]) -> None:
        super().__init__(text_spec(env))
        self._form = form
        self._values = np.array([values], dtype=np.float64)

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Return the action of each turn."""
        decisions = []
        for turn in turns:
            action = self._form.act(self._values, self._form.numbers(turn.obs)[None])[0]
            decisions.append(Decision(self.spec.decode(action, dict(turn.obs))))
        return decisions

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
            return SearchedPolicy(form, [parameters[name] for name in names], env)
    raise UsageError(
        f"{path}: expected a policy for {env.spec.id if env.spec else env}, of the parameters {_few(names)}; "
        f"got {_few(parameters)}, found on {record.get('environment')!r}."
    )


def _few(names: Sequence[str] | Mapping[str, float]) -> str:
    names = list(names)
    return ", ".join(names[:6]) + (f", … ({len(names)} in all)" if len(names) > 6 else "")
