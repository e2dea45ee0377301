"""Gymnasium's LunarLander, in the words of LunarLanderLLM-v2."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import lunar_lander as ours
from gym_text.descriptions.base import Description, Ending, fields
from gym_text.spec import Action, TextSpec

_VECTORS = {"lander_cartesian": slice(0, 4), "lander_angular": slice(4, 6), "legs_contact": slice(6, 8)}
_SPEC = ours.LUNAR_LANDER_SPEC


def lunar_lander(env: gym.Env[Any, Any]) -> Description:
    """Describe LunarLander with four actions, or with the power of its engines as two numbers."""
    spec = TextSpec(
        goal=_SPEC.goal,
        fields=fields("the state in numbers", [number for key in _VECTORS for number in _quantities(key)]),
        actions=_SPEC.actions,
        encoding="discrete",
        reward=_SPEC.reward,
    )
    if isinstance(env.action_space, gym.spaces.Box):
        engines = {"main": (1.0, 0.0), "left": (0.0, -1.0), "right": (0.0, 1.0)}
        both = {f"fire main and {side} engine": (1.0, engines[side][1]) for side in ("left", "right")}
        actions = (
            Action("do nothing", "0, 0: fire no engine", (0.0, 0.0)),
            *(
                Action(a.name, f"{value[0]:g}, {value[1]:g}: {a.meaning}", value)
                for a in _SPEC.actions[1:]
                for value in [engines[a.name.split()[1]]]
            ),
            *(Action(name, f"{value[0]:g}, {value[1]:g}", value) for name, value in both.items()),
        )
        spec = dataclasses.replace(spec, actions=actions, encoding="box", size=2, reward=f"{spec.reward} {_THROTTLE}")
    return Description(spec, _in_words, _at_rest_on_pad)


_THROTTLE = (
    "The first number is the main engine (0 and below: off, above 0: from half to full power), the second the side engines (below "
    "-0.5: left, above 0.5: right)."
)


def _quantities(key: str) -> tuple[Any, ...]:
    numbers = _SPEC.fields[key].quantities
    if key != "legs_contact":
        return numbers
    return tuple(dataclasses.replace(number, name=f"{number.name}_leg") for number in numbers)


def _in_words(obs: Any) -> str:
    return ours.describe({key: np.asarray(obs)[part] for key, part in _VECTORS.items()})


def _at_rest_on_pad(end: Ending) -> bool:
    """Return whether the lander came to rest on the pad: Gymnasium gives 100 for coming to rest anywhere."""
    return end.terminated and end.reward == 100 and abs(float(end.observation[0])) <= ours.PAD_HALF_WIDTH
