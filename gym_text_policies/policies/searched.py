"""`SearchedPolicy`: a policy whose parameters come from a search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text.errors import UsageError
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.policies.forms import Form, form_of
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.records import Decision, Turn


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


def policy_record(form: Form, values: Sequence[float], **about: Any) -> dict[str, Any]:
    """Return the contents of a ``policy.json``, which `load_searched` reads.

    Args:
        form: The form of the policy.
        values: The values of its parameters.
        about: More keys, which say how the search found the values.
    """
    parameters = {parameter.name: value for parameter, value in zip(form.parameters, values, strict=True)}
    return {"policy": form.kind, "parameters": parameters, **about}


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
