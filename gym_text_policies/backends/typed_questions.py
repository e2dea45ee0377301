"""Typed questions, as the wire formats of decision models have them, and their answers.

``/v1/systemone`` is the format of TypeSafe's Jev, which vLLM, Ollama and `transformers serve` answer too; ``/v1/decisions`` is
OpenAI's. A question is a ``choice`` between options, a ``score`` on ordered levels, or a ``noul`` (OpenAI: ``predicate``), which is
answered by yes or no.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gym_text_policies import prompts

Decide = Literal["exact", "listed", "labels"]
"""How options are asked about, see `TypedQuestion.asked`."""
WAYS: tuple[Decide, ...] = get_args(Decide)
LABELS = {"noul": ("Yes", "No")} | dict.fromkeys(("choice", "score"), tuple(prompts.LABELS))
"""The labels of the first options of a question, by its type."""
NEXT_ACTION = "Which action comes next?"
"""Instructions of the question that a player is asked."""
MOST_OPTIONS = 255
"""Most options or levels of a question in either format."""
MOST_QUESTIONS = 64
"""Most questions of a request to ``/v1/systemone``."""


@dataclass(frozen=True)
class TypedQuestion:
    """One question about a state."""

    kind: Literal["choice", "score", "noul"]
    instructions: str
    """What is asked; it may be empty."""
    options: tuple[str | bool, ...]
    """The options' names. A score's levels are ``0``, ``1``, …, the lowest first; a noul's options are ``true`` and ``false``."""
    descriptions: tuple[str, ...]
    """What each option means; empty where its name says it."""

    @classmethod
    def of(cls, kind: Any, instructions: Any, criteria: Any) -> TypedQuestion:
        """Return a question of ``/v1/systemone``. `criteria` has the type that the question's type asks for."""
        if kind == "noul":
            criteria = {name: (criteria or {}).get(name) for name in ("true", "false")}
        elif kind == "score":
            criteria = {str(level): text for level, text in enumerate(criteria)}
        return cls(kind, as_text(instructions), tuple(criteria), tuple(map(as_text, criteria.values())))

    @property
    def texts(self) -> tuple[str, ...]:
        """What each option says: its description, or else its name. The options of a noul say Yes and No."""
        names = LABELS["noul"] if self.kind == "noul" else tuple(map(_name, self.options))
        return tuple(text or name for name, text in zip(names, self.descriptions, strict=True))

    def asked(self, decide: Decide) -> tuple[str, tuple[str, ...]]:
        """Return the words behind the state, and the text of each option whose probability is asked for.

        ``exact``: the instructions alone, and what the options say. No option's score depends on the others, nor on any name.
        ``listed``: the options are listed in their order. ``labels``: they are listed with labels, which stand for them.

        Raises:
            ValueError: If there are more options than labels.
        """
        if decide == "exact":
            return self.instructions, self.texts
        if self.kind == "noul":
            said = [f"{label}: {text}" for label, text in zip(LABELS["noul"], self.descriptions, strict=True) if text]
            return "\n".join((self.instructions, *said, "Answer with Yes or No.")).lstrip(), LABELS["noul"]
        labels = LABELS[self.kind] if decide == "labels" else ("-",) * len(self.options)
        if len(self.options) > len(labels):
            raise ValueError(f"a {self.kind} question has at most {len(labels)} options when their labels are compared")
        names = self.texts if self.kind == "score" else tuple(map(_name, self.options))
        lines = [
            f"{label}{'.' * (decide == 'labels')} {name}" + (f": {text}" if text and self.kind == "choice" else "")
            for label, name, text in zip(labels, names, self.descriptions, strict=False)
        ]
        what = "letter" if decide == "labels" else "text" if self.kind == "score" else "name"
        lines.append(f"Answer with the {what} of the {'level' if self.kind == 'score' else 'option'} that is right.")
        return "\n".join((self.instructions, *lines)).lstrip(), labels[: len(self.options)] if decide == "labels" else names

    def answer(self, texts: Sequence[str], probabilities: Mapping[str, float]) -> dict[str, Any]:
        """Return the answer, with the probability of each option in the options' order.

        Options with equal texts share the probability of that text.

        Args:
            texts: The text of each option.
            probabilities: The probability of each different text.
        """
        shares = [probabilities[text] / texts.count(text) for text in texts]
        if self.kind == "noul":
            return {"type": "noul", "noul": shares[0]}
        count, best = len(shares), max(range(len(shares)), key=shares.__getitem__)
        if self.kind == "choice":
            confidence = (shares[best] - 1 / count) / (1 - 1 / count)
            answer: dict[str, Any] = {"choice": self.options[best]}
        else:  # one minus the mean distance from the most probable level, as a share of that from the middle
            distance = sum(share * abs(level - best) for level, share in enumerate(shares))
            confidence = 1 - distance / (sum(abs(level - (count - 1) / 2) for level in range(count)) / count)
            answer = {"score": sum(level * share for level, share in enumerate(shares))}
            answer["legend"] = dict(zip(self.options, self.descriptions, strict=True))
        probable = dict(zip(self.options, shares, strict=True))
        return {"type": self.kind, **answer, "confidence": min(1.0, max(0.0, confidence)), "probabilities": probable}


def as_text(content: Any) -> str:
    """Return a text, or a JSON value as text; None is empty."""
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()  # half of a surrogate pair has no tokens


def _name(option: str | bool) -> str:
    return option if isinstance(option, str) else str(option).lower()
