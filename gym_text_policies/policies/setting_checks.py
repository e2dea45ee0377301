"""`check_settings`: errors for settings of a policy whose values are of a wrong type, or out of bounds."""

from __future__ import annotations

from typing import Any

from gym_text.errors import UsageError, check_choice, check_int
from gym_text_policies.files.safe_files import check_characters
from gym_text_policies.policies.tree_search import METHODS

_CHOICES = {
    "mode": ("text", "json", "choose", "tool"),
    "history_thoughts": ("none", "last", "all"),
    "lookahead": METHODS,
}
_WHOLE = {
    "max_tokens": (1, 100_000),
    "think_tokens": (0, 1_000_000),
    "top_k": (1, 1_000_000),
    "picture_size": (16, 10_000),
    "shots": (1, 1000),
    "action_rate": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
    "history": (0, 1_000_000),
    "simulations": (1, 1_000_000),
    "worlds": (1, 10_000),
}
"""Least and greatest value of settings that are whole numbers."""
_GREATEST = {
    "temperature": 100,
    "exploration": 1000,
    "prior_temperature": 100,
    "uniform_share": 1,
    "top_p": 1,
    "min_p": 1,
    "noise": 1,
    "expert_share": 1,
}
"""Greatest value of settings that are numbers from 0 on."""


def check_settings(config: Any) -> None:
    """Raise an error if a setting is wrong by itself, whatever the others are. None means that it was not given.

    Args:
        config: A `PolicyConfig`.

    Raises:
        UsageError: The message names the setting, what was expected and what was given.
    """
    if not config.model or not isinstance(config.model, str):
        raise UsageError(f"model: expected a model's name; got {config.model!r}.")
    check_characters("model", config.model)
    given = {name: value for name, value in vars(config).items() if value is not None}
    for name, choices in _CHOICES.items():
        if name in given:
            check_choice(name, given[name], choices)
    for name, (least, most) in _WHOLE.items():
        if name in given and not (name == "history" and given[name] == "all"):
            check_int(name, given[name], least, most)
    for name, greatest in _GREATEST.items():
        value = given.get(name, 0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= greatest:
            raise UsageError(f"{name}: expected a number from 0 to {greatest}; got {value!r}.")
    if given.get("prior_temperature") == 0:
        raise UsageError("prior_temperature: expected a number above 0; got 0.")
    if given.get("top_p") == 0:
        raise UsageError("top_p: expected a number above 0, up to 1; got 0. For the most probable answer set temperature=0.")
    if not isinstance(config.think, bool | str | None) or config.think == "":
        raise UsageError(f"think: expected True, False, or an effort such as 'low'; got {config.think!r}.")
