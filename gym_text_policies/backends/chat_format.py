"""`ChatFormat`: what a chat template says of answers: where they begin, how they end, and how thoughts are written.

A chat template is a program, so it is asked. It renders small chats whose texts are known. The differences between the renderings
show what the template writes around an answer and around a thought. Nothing is concluded from a model's name.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_text.errors import UsageError
from gym_text_policies.files.json_data import common
from gym_text_policies.records import Message

Think = bool | str | None
"""Whether a model thinks before it answers: None (as it does by itself), True, False, or an effort such as ``low``."""
THOUGHT_TOKENS = 2_048
"""Most tokens of a thought, if the user does not say."""
Render = Callable[[Sequence[Message], bool, Mapping[str, Any]], str | None]
"""Renders a chat as text, with or without the generation prompt, with template arguments; None if the template refuses the chat."""

PROBE: tuple[Message, ...] = (
    {"role": "system", "content": "Rules43"},
    {"role": "user", "content": "Question44"},
    {"role": "assistant", "content": "Answer45"},
    {"role": "user", "content": "Question46"},
)
"""A chat to try a template with. Its texts are all different."""
_RULES, _QUESTION, _, _NEXT_QUESTION = PROBE
_ANSWER, _THOUGHT = PROBE[2]["content"], "Thought47"
_SWITCHES = ("enable_thinking", "thinking", "enable_reasoning", "reasoning")
"""Template arguments that may turn thoughts on and off."""
_EFFORT = "reasoning_effort"
_KEEPING = (("preserve_thinking", True), ("truncate_history_thinking", False), ("clear_thinking", False))
"""Template arguments that may keep the thoughts of past turns."""
MARKER = re.compile(r"<[^<>\s'\"{}]{2,40}>|\[/?[A-Z_]{3,20}\]")
"""Markers in the source of a template: ``</think>``, ``<|channel>``, ``[/THINK]``."""
_MOST_MARKERS = 24


@dataclass(frozen=True)
class AnswerStart:
    """Where an answer begins: how the chat is rendered up to there."""

    arguments: tuple[tuple[str, Any], ...] = ()
    """Template arguments: the user's, and the one that turns thoughts on or off."""
    opening: str = ""
    """What the template writes between the generation prompt and an answer without a thought."""
    thinks: bool = False
    """Whether the model may write a thought first. Then `thought_open` stands behind the generation prompt, not `opening`."""
    thought_open: str = ""
    """What the model writes before its thought; empty if the generation prompt already ends inside a thought."""
    thought_close: str = ""
    """What stands between a thought and the answer."""

    def is_closed(self, text: str) -> bool:
        """Return whether a text ends with the marker that closes a thought; space may follow."""
        return text.rstrip().endswith(self.thought_close.strip())

    def closing(self, text: str) -> str:
        """Return what has to be written behind a thought, so that an answer can follow.

        Args:
            text: The thought. If it ends with the closing marker, only the space behind that is written.
        """
        marker = self.thought_close.lstrip()
        if self.is_closed(text):
            written = text[text.rindex(marker.rstrip()) :]
            return marker[len(written) :] if marker.startswith(written) else ""
        space = self.thought_close[: -len(marker)]
        there = next(size for size in range(len(space), -1, -1) if text.endswith(space[:size]))
        return self.thought_close[there:]


PLAIN = AnswerStart()
"""Directly behind the generation prompt."""


@dataclass(frozen=True)
class ChatFormat:
    """What a chat template says of answers.

    Args:
        render: Renders a chat with the template.
        source: The template's source.
        arguments: The user's template arguments.
        end_of_turn: The user's text of the token that ends an answer; empty: what the template writes.
    """

    render: Render
    source: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    end_of_turn: str = ""
    _answer_starts: dict[Think, AnswerStart] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def end(self) -> str:
        """The text behind an answer, up to the next question: it begins with the end of turn.

        If the template writes no more than white space behind the last answer, what begins the next question ends the turn.
        """
        if self.end_of_turn:
            return self.end_of_turn
        last = self._around(self.arguments, ())[1]
        return last if last.strip() else self._around(self.arguments, (_NEXT_QUESTION,))[1].partition(_NEXT_QUESTION["content"])[0]

    @property
    def end_marker(self) -> str:
        """The marker, or else the word, with which `end` begins."""
        found = MARKER.match(self.end.lstrip())
        return self.end_of_turn or (found[0] if found else "".join(self.end.split(maxsplit=1)[:1]))

    def answer_start(self, think: Think = None) -> AnswerStart:
        """Return where an answer begins, or the thought before it.

        Raises:
            UsageError: If the template has no such setting, or does not say where an answer begins.
        """
        if think not in self._answer_starts:
            self._answer_starts[think] = self._answer_start_of(think)
        return self._answer_starts[think]

    def _answer_start_of(self, think: Think) -> AnswerStart:
        arguments = dict(self.arguments)
        if think is not None and self.switch and self.switch not in arguments:
            arguments[self.switch] = think is not False
        if isinstance(think, str) and self.has_effort:
            arguments[_EFFORT] = think
        answer_start = self._answer_start(arguments)
        off = self.switch and self._prompt(arguments) == self._prompt({**arguments, self.switch: False})
        if think is False or off:
            answer_start = AnswerStart(answer_start.arguments, answer_start.opening)
        elif think and not answer_start.thinks:
            raise UsageError(
                f"think={think!r}: expected a model whose chat template has thoughts; this one has none. Leave think out, or take "
                "the strategy 'reasoning', which asks any model to think in words."
            )
        if isinstance(think, str) and not self.has_effort:
            raise UsageError(f"think: expected None, True or False; this model's template knows no effort, as in {think!r}.")
        return answer_start

    @functools.cached_property
    def switch(self) -> str | None:
        """The template argument that turns thoughts on and off; None if there is none."""
        for name in _SWITCHES:
            on, off = (self._prompt({**self.arguments, name: value}) for value in (True, False))
            if name in self.source and on != off and None not in (on, off):
                return name
        return None

    @functools.cached_property
    def has_effort(self) -> bool:
        """Whether a template argument says how much the model thinks."""
        return _EFFORT in self.source and len({self._prompt({**self.arguments, _EFFORT: value}) for value in ("low", "high")}) > 1

    @functools.cached_property
    def keeping(self) -> dict[str, Any]:
        """The template argument that keeps the thoughts of past turns; empty if none does, or none is needed."""
        for name, value in _KEEPING:
            if name in self.source and name not in self.arguments:
                both = (self.arguments, {**self.arguments, name: value})
                dropped, kept = (self._around(each, (_NEXT_QUESTION,), reasoning=_THOUGHT)[0] for each in both)
                if _THOUGHT in kept and _THOUGHT not in dropped:
                    return {name: value}
        return {}

    @functools.cached_property
    def _system(self) -> tuple[Message, ...]:
        return (_RULES,) if self.render([_RULES, _QUESTION], False, self.arguments) is not None else ()

    def _prompt(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the chat up to the end of the generation prompt."""
        return self.render([*self._system, _QUESTION], True, arguments)

    def _around(self, arguments: Mapping[str, Any], then: Sequence[Message], **thought: str) -> tuple[str, str]:
        """Return what the template writes before and behind an answer; two empty texts if it does not write the answer."""
        answer: Message = {"role": "assistant", "content": _ANSWER, **thought}
        text = self.render([*self._system, _QUESTION, answer, *then], False, arguments) or ""
        before, found, behind = text.partition(_ANSWER)
        return (before, behind) if found else ("", "")

    def _answer_start(self, arguments: Mapping[str, Any]) -> AnswerStart:
        """Return the place behind a generation prompt, with these template arguments."""
        prompt = self._prompt(arguments) or ""
        before = self._around(arguments, ())[0] or self._around(arguments, (_NEXT_QUESTION,))[0]
        given = tuple(sorted(arguments.items()))
        opened, close = self._thought(arguments, prompt, before)
        if before.startswith(prompt):
            opening = before.removeprefix(prompt)
        elif opened is not None:
            opening = close
        elif before.startswith(prompt.rstrip()):
            opening = ""
        else:
            ending = prompt[common(prompt, before) :][-80:]
            raise UsageError(
                "expected a chat template whose generation prompt ends where an answer begins, or in a thought that it shows how "
                f"to close; got one that ends with {ending!r}. Take the model's own template, or other template_kwargs."
            )
        return AnswerStart(given, opening) if opened is None else AnswerStart(given, opening, True, opened, close)

    def _thought(self, arguments: Mapping[str, Any], prompt: str, before: str) -> tuple[str | None, str]:
        """Return what stands before a thought (None if none can follow this prompt), and what stands behind it."""
        whole = self._around(arguments, (), reasoning=_THOUGHT)[0]
        head, found, close = whole.partition(_THOUGHT)
        if found:
            return (head.removeprefix(prompt) if head.startswith(prompt) else None), close
        # some templates write no thoughts, but remove one from an answer, between two markers
        shown = prompt.removeprefix(before) if before and prompt.startswith(before) else ""
        for first, last in self._marker_pairs(shown.strip()):
            if self._removes(arguments, f"{first}{_THOUGHT}{last}"):
                space = shown[len(shown.rstrip()) :]
                return ("" if shown else first), f"{space}{last}{space * 2}"
        return None, ""

    def _removes(self, arguments: Mapping[str, Any], thought: str) -> bool:
        """Return whether the template removes a thought from an answer and keeps the rest."""
        answer: Message = {"role": "assistant", "content": f"{thought}{_ANSWER}"}
        for then in ((), (_NEXT_QUESTION,)):
            text = self.render([*self._system, _QUESTION, answer, *then], False, arguments) or ""
            if _ANSWER in text and _THOUGHT not in text:
                return True
        return False

    def _marker_pairs(self, opened: str) -> Iterator[tuple[str, str]]:
        """Yield markers of the template's source that may open and close a thought; `opened` is known to open it."""
        markers = list(dict.fromkeys(MARKER.findall(self.source)))[:_MOST_MARKERS]
        yield from ((opened, last) for last in markers if opened and last != opened)
        if not opened:
            yield from itertools.permutations(markers, 2)

    def continues(self, answer_start: AnswerStart, *, thought: bool = False) -> bool:
        """Return whether later prompts contain an answered turn, with its thought if there is one, as it was generated."""
        arguments = dict(answer_start.arguments)
        answer: Message = {"role": "assistant", "content": _ANSWER}
        middle = answer_start.opening
        if thought:
            arguments = {**self.keeping, **arguments}
            answer["reasoning"], middle = _THOUGHT, f"{answer_start.thought_open}{_THOUGHT}{answer_start.thought_close}"
        later = self.render([*self._system, _QUESTION, answer, _NEXT_QUESTION], True, arguments) or ""
        generated = f"{self._prompt(arguments) or ''}{middle}{_ANSWER}"
        end = self.end_marker  # what stands behind the end of turn depends on what follows
        return later.startswith(generated) and bool(end) and later[len(generated) :].lstrip().startswith(end)
