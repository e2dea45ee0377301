"""Why a model's answer cannot be used, and what the model is told before it is asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from gym_text import TextSpec
from gym_text_policies.backends.base import Answer
from gym_text_policies.policies.parsing import names_several

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


def why_unusable(answer: Answer, spec: TextSpec, obs: Mapping[str, Any], *, calls: bool = False) -> Reason:
    """Return why no action was read from an answer.

    Args:
        answer: The answer, whose text contains no thought; see `thought_apart`.
        spec: The environment's spec.
        obs: The observation that the model was asked about.
        calls: Whether the model was asked for a call of a tool.
    """
    text = answer.text or ""
    if answer.finish in ("refusal", "content_filter"):
        return "refusal"
    if answer.finish == "length":
        return "cut"
    if calls and answer.arguments is None:
        return "no call"
    if not (answer.arguments or text).strip():
        return "empty"
    return "several actions" if names_several(answer.arguments or text, spec, obs) else "no action"


def reply_to(answer: Answer, reason: Reason, names: Sequence[str]) -> str:
    """Return what the model is told about an unusable answer before it is asked again.

    Args:
        answer: The answer.
        reason: Why it cannot be used.
        names: Names of the valid actions; none in a game that takes any words.
    """
    thought_only = answer.reasoning is not None and not (answer.text or answer.arguments or "").strip()
    if reason == "cut":
        return _THOUGHT_CUT if thought_only else _CUT
    if not names:
        return _NO_CALL_OF_WORDS if reason == "no call" else _ANY_WORDS
    text = _NO_CALL if reason == "no call" else _ONLY_THOUGHT if reason == "empty" and thought_only else _REPLY
    return text.format(", ".join(names))
