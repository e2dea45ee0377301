"""Split a model's text into its thought and its answer, where no chat template says how the model writes thoughts.

Some servers and models return a thought as a part of the text. The usual markers of thoughts are known here, whatever the model's
name is. No answer is taken out of a thought:

* The answer is what stands behind the last thought. A closing marker without an opening one ends a thought that began with the
  text.
* A thought that does not end is no answer, nor is what stands before it.
* The end of a thought inside a thought ends only the inner one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from gym_text_policies.backends.base import Answer

_PAIRS = (
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
    (" to=self<|message|>", " to=user<|message|>"),
)
"""Markers that open and close a thought, beside tags (``<think>``) and channels (``<|channel|>analysis<|message|>``)."""
_OPENS = {opening: closing for opening, closing in _PAIRS}
_TAG = (
    r"(?i:<\s?(?P<slash>/?)\s?(?P<tag>(?:\w{1,16}:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis))"
    r"(?:\s[^<>]{0,80})?>)"
)
_CHANNEL = (
    r"(?:<\|start\|>assistant to=[^<]{1,80})?<\|channel\|>\s?(?P<channel>\w{1,16})(?:[^<]|<\|constrain\|>){0,80}<\|message\|>"
)
_MARKER = re.compile("|".join([_TAG, _CHANNEL, *(re.escape(marker) for pair in _PAIRS for marker in pair)]))
_BARE_CHANNELS = re.compile(r"\s*analysis(?:[^\W\d_a-z]|[\"'“(]|(?=.*assistantfinal))", re.DOTALL)
"""The beginning of channels whose markers a server has removed: ``analysisWe need to …assistantfinalgo forward``."""
_ENDS = ("<|return|>", "<|end|>", "<|call|>", "<|eom|>", "<|im_end|>", "<|start|>assistant", "<|start|>")
"""Ends of turns that a server has left behind an answer or a thought in channels."""


class ThoughtAndAnswer(NamedTuple):
    """A text in its two parts."""

    thought: str | None
    """None if the text contains no thought, or only empty ones."""
    answer: str
    """What stands behind the thought; empty if the thought does not end. A text without a thought is its own answer, unchanged."""
    closed: bool = True
    """Whether the thought ended, or there was none."""


def split_thought(text: str) -> ThoughtAndAnswer:
    r"""Split a text into its thought and its answer.

    >>> split_thought("<think>Left is a wall.</think>\n\ngo forward")
    ThoughtAndAnswer(thought='Left is a wall.', answer='go forward', closed=True)
    >>> split_thought("<think>I need to go forward until").answer
    ''
    """
    if _BARE_CHANNELS.match(text):
        thought, closed, answer = text.partition("analysis")[2].rpartition("assistantfinal")
        return ThoughtAndAnswer(_joined([thought if closed else answer]), _stripped(answer) if closed else "", bool(closed))
    markers = list(_markers(text))
    if not markers or _is_object(text):
        return ThoughtAndAnswer(None, text)
    thoughts: list[str] = []
    families: list[str] = []
    start = 0
    for first, last, family, opens in markers:
        if opens and family == "channel":
            families = [family]  # a channel ends the channel before it
        elif opens:
            families.append(family)
        elif family in families:
            while families.pop() != family:
                pass
        elif families:
            continue  # the end of another kind of thought, quoted in a thought
        thoughts.append(text[start:first])
        start = last
    if families:
        return ThoughtAndAnswer(_joined([*thoughts, text[start:]]), "", False)
    return ThoughtAndAnswer(_joined(thoughts), _stripped(text[start:]), True)


def thought_apart(answer: Answer, names: Collection[str] = ()) -> Answer:
    """Return an answer whose `text` contains no thought; what was one is in `reasoning`.

    If the thought did not end, the text is empty and `finish` is ``length``. If the backend has not counted the thought's tokens,
    they are the thought's share of the characters. One of the `names` (of valid actions) is an answer as a whole.
    """
    text = answer.text
    if text is None or text in names:
        return answer
    thought, rest, closed = split_thought(text)
    if rest == text and closed:
        return answer
    call = len(answer.arguments or "")
    counted = answer.tokens_reasoning or round(answer.tokens_out * (1 - (len(rest) + call) / (len(text) + call)))
    tokens = answer.tokens and {rest if key == text else key: value for key, value in answer.tokens.items()}
    finish = answer.finish if closed or answer.finish in ("refusal", "content_filter") else "length"
    reasoning = _joined([answer.reasoning or "", thought or ""])
    return replace(answer, text=rest, reasoning=reasoning, tokens_reasoning=counted, tokens=tokens, finish=finish)


def _markers(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield the markers of a text: start, end, the kind of thought, and whether the marker opens a thought."""
    for match in _MARKER.finditer(text):
        if match["tag"]:
            yield *match.span(), match["tag"].casefold(), not match["slash"]
        elif match["channel"]:
            yield *match.span(), "channel", match["channel"] != "final" and " to=functions." not in match[0]  # a call answers
        else:
            yield *match.span(), _OPENS.get(match[0], match[0]), match[0] in _OPENS


def _is_object(text: str) -> bool:
    """Return whether the whole text is a JSON object. Markers in it are words of the answer."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _joined(thoughts: list[str]) -> str | None:
    """Return the parts of a thought as one text; None if all are empty."""
    return "\n".join(filter(None, map(_stripped, thoughts))) or None


def _stripped(text: str) -> str:
    """Return a part of a text without space around it and without ends of turns behind it."""
    text = text.strip()
    while text.endswith(_ENDS):
        text = next(text.removesuffix(end) for end in _ENDS if text.endswith(end)).rstrip()
    return text
