"""From a model's words to an action's name: leniently, but never wrongly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gym_text import TextSpec
from gym_text.errors import InvalidActionError

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w])")
"""A number by itself, decimal or in scientific notation."""
_LONGEST = 1_000_000
"""Most characters of an answer; longer ones are not read. Reading takes time in proportion to the length."""


def parse_action(answer: str, spec: TextSpec, obs: Mapping[str, Any]) -> str | None:
    """Return the name of the one action that an answer means, or None.

    First the whole answer is compared, then the same without case, punctuation, extra spaces and articles. Otherwise the answer
    must name exactly one action within it. A name inside a longer one that also fits ("take apple" in "take apple from shelf")
    does not count. Where actions are real numbers, the one number in the answer counts as a name. Where the game takes any words,
    the answer is the action.

    >>> from gym_text.babyai.env import BABYAI_SPEC
    >>> parse_action("I should Turn  left.", BABYAI_SPEC, {})
    'turn left'
    >>> parse_action("turn left or turn right", BABYAI_SPEC, {}) is None
    True
    """
    if not spec.lists_actions:
        return answer.strip()
    names = spec.names(dict(obs))
    if answer in names:
        return answer
    if len(answer) > _LONGEST:
        return None
    words = _normal(answer)
    by_words = {_normal(name): name for name in names}
    if len(by_words) < len(names):  # names that differ only by punctuation cannot be told apart here
        by_words = {words: name for words, name in by_words.items() if sum(_normal(other) == words for other in names) == 1}
    if words in by_words:
        return by_words[words]
    named = _named(words, by_words)
    if not named and spec.encoding == "box":
        return _number(answer, spec, obs)
    return by_words[named.pop()] if len(named) == 1 else None


def parse_fields(answer: str) -> dict[str, Any] | None:
    """Return the one JSON object with an action in an answer, or None. Several are allowed if their actions are equal.

    >>> parse_fields('Sure: {"reasoning": "A wall.", "action": "turn left"} Good luck!')
    {'reasoning': 'A wall.', 'action': 'turn left'}
    """
    if len(answer) > _LONGEST:
        return None
    decoder, found, place = json.JSONDecoder(), [], answer.find("{")
    patience = 4 * len(answer) + 10_000  # characters that may be read in vain: each brace could begin an endless object
    while place >= 0 and patience > 0:
        try:
            value, end = decoder.raw_decode(answer, place)
        except (ValueError, RecursionError) as error:
            end = place + 1
            patience -= getattr(error, "pos", end) - place + len(answer) // 500 + 10  # Python counts the lines before an error
        else:
            if isinstance(value, dict) and isinstance(value.get("action"), (str, int, float)):
                found.append(value | {"action": str(value["action"])})
        place = answer.find("{", end)
    return found[0] if len({value["action"] for value in found}) == 1 else None


def _normal(text: str) -> str:
    """Return the words in lower case with single spaces, without articles. Hyphens and apostrophes inside words stay."""
    words = re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def _named(words: str, by_words: Mapping[str, str]) -> set[str]:
    """Return the names that occur in `words` as whole words, without those inside a longer name that occurs there."""
    spans, text = [], f" {words} "
    for name in by_words:
        place = text.find(f" {name} ") if name else -1
        while place >= 0:
            spans.append((place, -(place + len(name)), name))
            place = text.find(f" {name} ", place + len(name) + 1)
    named, covered = set(), 0
    for _, minus_end, name in sorted(spans):  # of several that begin at one place, the longest first
        if -minus_end > covered:
            named.add(name)
            covered = -minus_end
    return named


def _number(answer: str, spec: TextSpec, obs: Mapping[str, Any]) -> str | None:
    numbers = [float(number) for number in NUMBER.findall(answer)]
    if spec.size == 1:
        numbers = list(dict.fromkeys(numbers))
    if len(numbers) != spec.size:
        return None
    try:
        return spec.decode(spec.encode(", ".join(map(repr, numbers)), dict(obs)), dict(obs))
    except InvalidActionError:
        return None
