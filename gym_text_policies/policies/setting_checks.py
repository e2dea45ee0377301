"""`check_settings`: errors for settings of a policy whose values are of a wrong type, or out of bounds."""

from __future__ import annotations

from typing import Any

from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.policies.tree_search import METHODS

_CHOICES = {
    "mode": ("text", "json", "choose", "tool"),
    "history_thoughts": ("none", "last", "all"),
    "lookahead": METHODS,
}
_LEAST = {"think_tokens": 0, "seed": 0, "history": 0} | dict.fromkeys(
    ("max_tokens", "top_k", "shots", "action_rate", "simulations"), 1
)
"""Least value of settings that are whole numbers."""
_GREATEST = {"temperature": 100, "exploration": 1000, "prior_temperature": 100} | dict.fromkeys(
    ("uniform_share", "top_p", "min_p", "noise", "expert_share"), 1
)
"""Greatest value of settings that are numbers from 0 on."""
_ABOVE_0 = ("prior_temperature", "top_p")


def check_settings(config: Any) -> None:
    """Raise `UsageError` if a setting of a `PolicyConfig` is wrong by itself, whatever the others are."""
    if not config.model or not isinstance(config.model, str):
        raise UsageError(f"model: expected a model's name; got {config.model!r}.")
    given = {name: value for name, value in vars(config).items() if value is not None}
    for name in _CHOICES.keys() & given.keys():
        check_choice(name, given[name], _CHOICES[name])
    for name in _LEAST.keys() & given.keys():
        if (name, given[name]) != ("history", "all"):
            check_int(name, given[name], _LEAST[name], 2**31 - 1)
    for name in _GREATEST.keys() & given.keys():
        value, greatest = given[name], _GREATEST[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= greatest or (value == 0 and name in _ABOVE_0):
            least = "above 0, up to" if name in _ABOVE_0 else "from 0 to"
            raise UsageError(f"{name}: expected a number {least} {greatest}; got {value!r}.")
    if not isinstance(config.think, bool | str | None) or config.think == "":
        raise UsageError(f"think: expected True, False, or an effort such as 'low'; got {config.think!r}.")
