"""Answers that cannot be used: why, what the model is told, and what a game does that takes no other action in their place.

Policies in this package ask again, or play something else, see `LLMPolicy`. The bridges, in which another package asks the model,
tell it which actions are possible. No step is made then: the game stands still, and the answer costs nothing. After `MOST_UNUSABLE`
such answers in a row the episode ends, as at a step limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from gym_text.spec import Observation, TextSpec
from gym_text_policies.backends.base import Answer
from gym_text_policies.policy import text_spec

Reason = Literal["cut", "empty", "several actions", "no action", "refusal", "no call"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""``cut``: the answer or its thought reached its greatest length. ``empty``: nothing, or only a thought. ``no call``: words where a
call of the tool was asked for."""
_CUT = "That was cut before its end. Answer again, in fewer words: the action alone."
_REPLY = "That cannot be used: it has to name exactly one of these actions: {}. Answer again."
_NO_CALL = "That is no call of the tool act. Call it, with one of these actions: {}."
_THOUGHT_CUT = "Your thought was cut before its end, and no answer followed it. Think in fewer words, and then name your action."
_ONLY_THOUGHT = "No answer followed your thought. Now name exactly one of these actions: {}."
_ANY_WORDS = "That cannot be used: say your action, in any words. Answer again."
_NO_CALL_OF_WORDS = "That is no call of the tool act. Call it, with your action in any words."
MOST_UNUSABLE = 5
"""Number of unusable answers in a row after which an episode ends."""
_NOTHING = "(nothing)"


def why_unusable(answer: Answer, *, names_several: bool, calls: bool = False) -> Reason:
    """Return why no action was read from an answer, whose text contains no thought.

    `names_several` says whether its words name more than one valid action, `calls` whether the model was asked to call a tool.
    """
    if answer.finish in ("refusal", "content_filter"):
        return "refusal"
    if answer.finish == "length":
        return "cut"
    if calls and answer.arguments is None:
        return "no call"
    if not (answer.arguments or answer.text or "").strip():
        return "empty"
    return "several actions" if names_several else "no action"


def reply_to(answer: Answer, reason: Reason, names: Sequence[str]) -> str:
    """Return what the model is told about an unusable answer before it is asked again; a game that takes any words has no names."""
    thought_only = answer.reasoning is not None and not (answer.text or answer.arguments or "").strip()
    if reason == "cut":
        return _THOUGHT_CUT if thought_only else _CUT
    if not names:
        return _NO_CALL_OF_WORDS if reason == "no call" else _ANY_WORDS
    text = _NO_CALL if reason == "no call" else _ONLY_THOUGHT if reason == "empty" and thought_only else _REPLY
    return text.format(", ".join(names))


def reply_in_game(spec: TextSpec, obs: Observation) -> str:
    """Return what the model is told in a game that stands still after an unusable answer."""
    name = f"Name exactly one of these actions: {spec.choices(obs)}." if spec.lists_actions else "Say your action, in any words."
    return f"That cannot be used, and nothing has happened. {name}"


class Unusable(str):
    """An answer that cannot be used, in place of an action."""

    __slots__ = ()


class UnusableCount:
    """Counts the unusable answers of an episode."""

    def __init__(self) -> None:
        self.total = 0
        """Number of unusable answers so far."""
        self.in_a_row = 0
        """Number of unusable answers since the last usable one."""

    def add(self, *, usable: bool) -> bool:
        """Count an answer; return whether the episode ends."""
        self.total += not usable
        self.in_a_row = 0 if usable else self.in_a_row + 1
        return self.in_a_row >= MOST_UNUSABLE


class TellUnusable(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes `Unusable` answers as actions: the next observation tells the model, and the game stands still."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.text_spec = _Telling(**vars(text_spec(env)))
        self._count = UnusableCount()
        self._last: tuple[Observation, dict[str, Any]] = {}, {}

    def reset(self, **arguments: Any) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode."""
        self._count = UnusableCount()
        self._last = self.env.reset(**arguments)
        return self._last

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Play an action, or tell that an answer cannot be used."""
        if isinstance(action, Unusable):
            obs, info = self._last
            ends = self._count.add(usable=False)
            return {**obs, "text": reply_in_game(self.text_spec, obs)}, 0.0, False, ends, {**info, "action_was_valid": False}
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._count.add(usable=True)
        self._last = obs, info
        return obs, reward, terminated, truncated, info


class _Telling(TextSpec):
    """A specification in which an unusable answer is an action, too."""

    def encode(self, name: str, obs: Observation) -> Any:
        """Turn an action's name into the environment's action, and let an unusable answer be."""
        return Unusable(name or _NOTHING) if isinstance(name, Unusable) else super().encode(name, obs)

    def decode(self, action: Any, obs: Observation) -> str:
        """Turn an action back into its name, or into the words that could not be used."""
        return str(action) if isinstance(action, Unusable) else super().decode(action, obs)
