"""From a model's words to an action's name. Unclear words give no action."""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from gym_text import TextSpec
from gym_text.errors import InvalidActionError
from gym_text_policies.backends.thoughts import split_thought

_NUMBER = re.compile(r"(?<![\w.±])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\s?%|\.\d)")
"""A number that stands by itself, decimal or in scientific notation."""
_APART = r"[-+±—―][(\[*`'\"]+|\b(?:minus|negative)\b[\s(\[*`'\"]*"
"""A sign that is not written directly before its number: ``-(1)``, ``-**1**``, ``minus 1``."""
_SIGN_APART = re.compile(rf"(?:[-+±]\s+|[—―]|(?<!\d[eE])(?<=[\w)])[-+]|{_APART})\.?\d", re.IGNORECASE)
_SIGN_BEFORE = re.compile(rf"(?:[—―]|{_APART})$", re.IGNORECASE)
_FARTHEST = 16
"""Most characters between the start of such a sign and its number."""
_TOKEN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|[^\w\s]")
"""A word, which may contain hyphens and apostrophes, or one sign. Spaces and underscores separate words."""
_SAME = str.maketrans("−–‐‑‒﹣－⁻➖＋➕‘’“”", "---------++''\"\"")
"""From characters to the usual sign that they stand for; each stays one character."""
_OBJECT = re.compile(r'\{\s*"')
_MARKUP = frozenset(",:\"'`*()[]{}<>")
"""Signs that do not count between the words of a name, unless a valid name contains them."""
_ARTICLES = frozenset(("a", "an", "the"))
_ENDS = frozenset(".!?;")
"""Signs that end a sentence."""
_SIGNED = frozenset("+-/±%^")
"""Signs that change the meaning of the word beside them: no part of ``-1``, ``B+`` or ``1/2`` is a name by itself."""


def parse_action(answer: str, spec: TextSpec, obs: Mapping[str, Any], *, finish: str | None = None) -> str | None:
    """Return the name of the one action that an answer means, or None.

    An answer that equals a name means that action. Any other answer must contain the name of exactly one action, as whole words.

    Case, spaces, markup and articles do not count, except signs and articles in the names of valid actions: ``[B-]`` is not
    ``[B+]``, and with the names ``[A B]`` and ``[B C]`` the A is not an article. If the answer is one name alone, the brackets
    around the name may be missing. A name inside a longer name in the answer ("take apple" in "take apple from shelf") does not
    count. If actions are real numbers, a single number in the answer is a name. If the game takes any words, the answer is the
    action, unless it is empty. A thought before the answer does not count, see `split_thought`; an answer whose thought does not
    end means no action.

    >>> from gym_text.babyai.env import BABYAI_SPEC
    >>> parse_action("I should Turn  left.", BABYAI_SPEC, {})
    'turn left'
    >>> parse_action("turn left or turn right", BABYAI_SPEC, {}) is None
    True

    Args:
        answer: The model's words.
        spec: The environment's spec.
        obs: The observation that the model was asked about.
        finish: How the answer ended, see `Answer.finish`. An answer that was cut counts only if it is a whole name and no longer
            name begins with it. A refusal means no action.
    """
    if finish in ("refusal", "content_filter"):
        return None
    valid = spec.names(dict(obs)) if spec.lists_actions else ()
    if finish != "length" and answer in valid and answer.strip():
        return answer  # the usual case, in which no index of the names is needed
    behind = _behind_thought(answer, valid)
    if behind is None:
        return None
    answer = behind
    if not spec.lists_actions:
        return None if finish == "length" else answer.strip() or None
    names = _names(valid)
    if finish == "length":
        return names.whole(answer)
    matches = names.matches(answer)
    if not matches and spec.encoding == "box":
        return _number(answer, spec, obs)
    return matches.pop() if len(matches) == 1 else None


def names_several(answer: str, spec: TextSpec, obs: Mapping[str, Any]) -> bool:
    """Return whether an answer names more than one valid action, or more numbers than an action has."""
    if not spec.lists_actions:
        return False
    several = len(_names(spec.names(dict(obs))).matches(answer)) > 1
    return several or (spec.encoding == "box" and len(numbers_in(answer)) > spec.size)


def read_answer(
    answer: str, spec: TextSpec, obs: Mapping[str, Any], *, finish: str | None = None
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the action in an answer of JSON or of words, see `parse_action`, and the fields of the JSON; None for what is missing.

    No action is read from a JSON object that is damaged or not complete, as its words may be thoughts.
    """
    fields = parse_fields(answer, finish=finish)
    if fields is not None:
        return parse_action(fields["action"], spec, obs), fields
    damaged = _OBJECT.search(_behind_thought(answer) or "")
    return None if damaged else parse_action(answer, spec, obs, finish=finish), None


def parse_fields(answer: str, *, finish: str | None = None) -> dict[str, Any] | None:
    """Return the JSON object with an action in an answer, or None. There may be several objects if all have the same action.

    >>> parse_fields('Sure: {"reasoning": "A wall.", "action": "turn left"} Good luck!')
    {'reasoning': 'A wall.', 'action': 'turn left'}

    Args:
        answer: The model's words.
        finish: How the answer ended, see `Answer.finish`. An answer that was cut counts only if it is a complete object.
    """
    if finish in ("refusal", "content_filter"):
        return None
    answer = _behind_thought(answer) or ""
    if finish == "length" and not (answer.lstrip().startswith("{") and answer.rstrip().endswith("}")):
        return None
    objects = [
        value | {"action": str(value["action"])}
        for value in objects_in(answer, whole=finish == "length")
        if isinstance(value.get("action"), (str, int, float))
    ]
    return objects[0] if len({value["action"] for value in objects}) == 1 else None


def objects_in(answer: str, *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the JSON objects in an answer, in their order; with `whole`, none if one of them is not complete."""
    decoder, objects, start = json.JSONDecoder(), [], answer.find("{")
    patience = 4 * len(answer) + 10_000  # most characters to read in vain, as each brace could begin an object without an end
    while start >= 0 and patience > 0:
        try:
            value, end = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError) as error:
            if whole:
                return []
            end = start + 1
            patience -= getattr(error, "pos", end) - start + len(answer) // 500 + 10  # Python counts the lines before an error
        else:
            objects += [value] if isinstance(value, dict) else []
        start = answer.find("{", end)
    return objects


def _behind_thought(answer: str, names: Collection[str] = ()) -> str | None:
    """Return what stands behind the thought in an answer; None if that is nothing. An answer that is a name has no thought."""
    if answer.strip() in names:
        return answer
    _, behind, closed = split_thought(answer)
    return behind if closed and (behind or not answer) else None


class _Token(NamedTuple):
    """A word or a sign of a text in lower case, with its place in the text."""

    text: str
    start: int
    end: int


class _Names:
    """An index of the names of valid actions, to find them in an answer."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = frozenset(names)
        keys = {name: tuple(token.text for token in _tokens(name)) for name in names}
        used = {text for key in keys.values() for text in key}
        self._ignored = (_MARKUP | _ARTICLES) - used
        self._ends = _ENDS - used
        self._signs = {text for text in used if not text[0].isalnum()}
        self._by_key: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, key in keys.items():
            self._by_key[key].append(name)
        self._lengths: dict[str, list[int]] = defaultdict(list)  # of the names that begin with a token, the longest first
        for key in sorted(filter(None, self._by_key), key=len, reverse=True):  # a name without words and signs cannot be found
            self._lengths[key[0]].append(len(key))

    def matches(self, answer: str) -> set[str]:
        """Return the names in an answer: one if the answer is clear, several if it is not."""
        if answer.strip() and (answer in self._names or answer.strip() in self._names):
            return {answer if answer in self._names else answer.strip()}
        text = answer.translate(_SAME)
        tokens = self._compared(_tokens(text))
        matches: set[str] = set()
        covered = 0
        for first in range(len(tokens)):
            last, names = self._longest(text, tokens, first)
            if last > covered:
                covered = last
                exact = answer[tokens[first].start : tokens[last - 1].end]
                matches |= {exact} if exact in names else set(names)  # of names with equal words, the one that stands there
                if len(matches) > 1:
                    return matches
        return matches or self._without_brackets(text, tokens)

    def whole(self, answer: str) -> str | None:
        """Return the name that equals the answer but for case, if no other name begins with the answer; else None."""
        said = answer.strip().casefold()
        names = [name for name in self._names if name.casefold().startswith(said)] if said else []
        return names[0] if len(names) == 1 and names[0].casefold() == said else None

    def _compared(self, tokens: list[_Token]) -> list[_Token]:
        """Return the tokens without markup and articles, except those beside a sign that names have: ``[1,]`` is not ``[1]``."""
        signs = [False, *(token.text in self._signs for token in tokens), False]
        return [token for index, token in enumerate(tokens) if token.text not in self._ignored or signs[index] or signs[index + 2]]

    def _longest(self, text: str, tokens: list[_Token], first: int) -> tuple[int, list[str]]:
        """Return the end of the longest name that begins at a token, and the names it can be; 0 and no names if there is none."""
        lengths = self._lengths.get(tokens[first].text, [])
        if lengths and _parted(text, tokens[first].start, -1):
            for last in (first + length for length in dict.fromkeys(lengths) if first + length <= len(tokens)):
                names = self._by_key.get(tuple(token.text for token in tokens[first:last]))
                if names and _parted(text, tokens[last - 1].end - 1, 1):
                    return last, names
        return 0, []

    def _without_brackets(self, text: str, tokens: list[_Token]) -> set[str]:
        """Return the names in brackets whose content is the whole answer."""
        tokens = [token for token in tokens if token.text not in self._ends]
        names = self._by_key.get(("[", *(token.text for token in tokens), "]"), [])
        if not tokens or not names or not _parted(text, tokens[0].start, -1) or not _parted(text, tokens[-1].end - 1, 1):
            return set()
        return set(names)


@functools.lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> _Names:
    return _Names(names)


def _tokens(text: str) -> list[_Token]:
    return [_Token(match[0].casefold(), *match.span()) for match in _TOKEN.finditer(text.translate(_SAME))]


def _parted(text: str, edge: int, step: int) -> bool:
    """Return whether a name that begins (`step` -1) or ends (1) at `edge` stands by itself, and is no part of a word or number."""
    beside = edge + step
    if not 0 <= beside < len(text):
        return True
    sign = text[beside]
    if sign.isalnum() or sign in _SIGNED or unicodedata.combining(sign):
        return False
    if step < 0 and text[edge].isdigit() and _SIGN_BEFORE.search(text[max(0, edge - _FARTHEST) : edge]):
        return False
    if sign not in ".,:" or not text[edge].isdigit():
        return True
    beyond = beside + step
    if sign == "." and step < 0:  # .5 is no 5
        return False
    return not (0 <= beyond < len(text) and text[beyond].isdigit())  # nor are 1.5, 1,5 and 1:5


def numbers_in(answer: str) -> list[float]:
    """Return the numbers in an answer; none if a sign stands apart from its number, as it could be the bullet of a list."""
    text = answer.translate(_SAME)
    return [] if _SIGN_APART.search(text) else [float(number) for number in _NUMBER.findall(text)]


def _number(answer: str, spec: TextSpec, obs: Mapping[str, Any]) -> str | None:
    numbers = numbers_in(answer)
    if spec.size == 1:
        numbers = list(dict.fromkeys(numbers))
    if len(numbers) != spec.size:
        return None
    try:
        return spec.decode(spec.encode(", ".join(map(repr, numbers)), dict(obs)), dict(obs))
    except InvalidActionError:
        return None
