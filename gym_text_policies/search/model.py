"""A language model as the optimiser: it is shown earlier evaluations and proposes the next parameters."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gym_text import TextSpec
from gym_text_policies.backends.base import Answer, Backend, Request, spent
from gym_text_policies.backends.thoughts import thought_apart
from gym_text_policies.policies.parametric import Form, Parameter
from gym_text_policies.policies.parsing import numbers_in, objects_in
from gym_text_policies.records import Message
from gym_text_policies.search.evaluations import Evaluation, Proposal, best
from gym_text_policies.search.optimisers import Optimiser, generator
from gym_text_policies.search.search_config import SearchConfig

_REASKS = 3
"""How often the model is asked again after an unusable answer, before a random proposal replaces it."""
_SUMMARY_LENGTH = 400
"""Most characters of a trajectory's summary in a prompt."""


class RejectedError(Exception):
    """An answer that cannot be used. The message tells the model why."""


@dataclass
class _Draft:
    """A proposal for which the model is being asked."""

    index: int
    """Index of the evaluation that will try the proposal."""
    messages: list[Message]
    """The prompt, then the rejected answers, each with the reason of its rejection."""
    answers: list[Answer] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    parameters: tuple[float, ...] | None = None
    """The parameters of a usable answer. None: there is no usable answer yet."""


class ModelOptimiser(Optimiser):
    """Asks a language model.

    An answer is rejected if it has too few or too many numbers, a number out of bounds, or parameters that were tried before. The
    model is told the reason and asked again. After three more rejections a random proposal replaces the answer; then its
    source is "random instead".

    Args:
        form, seed, start: See `Optimiser`.
        backend: The model.
        config: How the model is asked.
        spec: The task, which only the semantic prompt describes.
    """

    def __init__(self, form: Form, seed: int, start: int, backend: Backend, config: SearchConfig, spec: TextSpec) -> None:
        super().__init__(form, seed, start)
        self._backend = backend
        self._config = config
        self._spec = spec
        self._proposals: dict[int, list[Proposal]] = {}  # those of the current prompt, by the number of evaluations that it shows
        self._shown_parameters = form.parameters
        if config.prompt == "numeric":  # the model is shown neither names nor meanings
            renamed = (Parameter(f"p{i + 1}", "", p.low, p.high, p.whole) for i, p in enumerate(form.parameters))
            self._shown_parameters = tuple(renamed)

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the proposals from the current prompt that have no evaluation yet. Random proposals replace unusable answers."""
        done = (len(history) - self.start) % self._config.proposals_per_prompt
        known = history[: len(history) - done]
        if len(known) not in self._proposals:
            self._proposals = {len(known): self._ask(known, history[len(known) :])}
        return self._proposals[len(known)][done:]

    def _ask(self, history: Sequence[Evaluation], evaluated: Sequence[Evaluation]) -> list[Proposal]:
        """Return the proposals from one prompt. The model is not asked again for those that an earlier run has `evaluated`."""
        begin, messages = time.perf_counter(), self.messages(history)
        drafts = [_Draft(len(history) + i, list(messages)) for i in range(self._config.proposals_per_prompt)]
        for draft, evaluation in zip(drafts, evaluated, strict=False):
            draft.parameters = evaluation.parameters
        for attempt in range(_REASKS + 1):
            unanswered = [draft for draft in drafts if draft.parameters is None]
            if not unanswered:
                break
            answers = self._backend.answer([self._request(draft.messages, draft.index, attempt) for draft in unanswered])
            for draft, answer in zip(unanswered, answers, strict=True):
                self._read(draft, answer, history, [d.parameters for d in drafts if d.parameters is not None])
        asked = drafts[len(evaluated) :]
        seconds = (time.perf_counter() - begin) / len(asked)
        return [*(evaluation.proposal for evaluation in evaluated), *(self._proposal(draft, seconds) for draft in asked)]

    def _read(self, draft: _Draft, answer: Answer, history: Sequence[Evaluation], others: Sequence[Sequence[float]]) -> None:
        """Add an answer to a draft, with its parameters or with the reason why it is rejected."""
        answer = thought_apart(answer)
        draft.answers.append(answer)
        text = answer.text or ""
        try:
            if not text and answer.reasoning is not None:
                raise RejectedError("No answer followed the thought; think in fewer words.")
            values = parse_parameters(text, self._shown_parameters, finish=answer.finish)
            check_new(values, history, others)
            draft.parameters = values
        except RejectedError as error:
            draft.rejections.append(str(error))
            draft.messages += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"That cannot be used. {error} {self._form_of_answer()}"},
            ]

    def _proposal(self, draft: _Draft, seconds: float) -> Proposal:
        answers = draft.answers
        return Proposal(
            draft.parameters or self.draw("fallback", draft.index),
            "model" if draft.parameters else "random instead",
            reason=reason_of(answers[-1].text or "") if draft.parameters else None,
            answers=tuple(answer.text or "" for answer in answers),
            rejections=tuple(draft.rejections),
            thoughts=tuple(answer.reasoning or "" for answer in answers) if any(answer.reasoning for answer in answers) else (),
            seconds=seconds,
            **spent(answers),
        )

    def messages(self, history: Sequence[Evaluation]) -> list[Message]:
        """Return the prompt."""
        role = "You are an optimiser: you propose numbers, are told what they give, and propose better ones."
        shown = self._shown_evaluations(history)
        table = "\n".join(self._line(evaluation) for evaluation in sorted(shown, key=lambda evaluation: evaluation.value))
        tried = f"Tried so far, the best last:\n{table}\n\n" if shown else "Nothing was tried so far.\n\n"
        text = f"{self._task()}\n\n{tried}{self._latest(history)}{self._form_of_answer()}"
        return [{"role": "system", "content": role}, {"role": "user", "content": text}]

    def _shown_evaluations(self, history: Sequence[Evaluation]) -> list[Evaluation]:
        """Return the evaluations that the model is shown: the best half of the buffer, then the latest."""
        size = self._config.buffer_size
        if len(history) <= size:
            return list(history)
        good = sorted(history, key=lambda evaluation: -evaluation.value)[: size // 2]
        late = [evaluation for evaluation in reversed(history) if evaluation not in good]
        return good + late[: size - len(good)]

    def _task(self) -> str:
        meanings = [f", {shown.meaning}" if shown.meaning else "" for shown in self._shown_parameters]
        numbers = "\n".join(
            f"- {shown.name}: from {shown.low:g} to {shown.greatest:g}{meaning}"
            for shown, meaning in zip(self._shown_parameters, meanings, strict=True)
        )
        if self._config.prompt == "numeric":
            text = f"Find the greatest value of a function f of {len(self._shown_parameters)} numbers:\n{numbers}"
        else:
            text = (
                f"Find the parameters of a controller that returns most in this task.\n\nTask: {self._spec.goal}\n"
                f"Reward: {self._spec.reward}\nThe controller sees:\n{self._spec.describe_fields()}\n"
                f"Actions:\n{self._spec.describe_actions()}\n{self.form.formula()}\n\nIts parameters:\n{numbers}\n"
                "The value of parameters is the mean return of several episodes."
            )
        if self._config.optimum is not None:
            text += f"\nThe greatest possible value is {self._config.optimum:g}."
        return f"{text}\nHint: look about 1 away from good ones, or where nothing was tried yet."

    def _line(self, evaluation: Evaluation) -> str:
        pairs = zip(self._shown_parameters, evaluation.parameters, strict=True)
        return f"{', '.join(f'{parameter.name}={value:.4g}' for parameter, value in pairs)}: {evaluation.value:.2f}"

    def _latest(self, history: Sequence[Evaluation]) -> str:
        """Return summaries of the latest and the best episodes, for the semantic prompt."""
        if self._config.prompt == "numeric" or not history:
            return ""
        latest, top = history[-1], best(history)
        text = f"The latest ({self._line(latest)}): {latest.summary[:_SUMMARY_LENGTH]}.\n"
        return text + (f"The best ({self._line(top)}): {top.summary[:_SUMMARY_LENGTH]}.\n" if top is not latest else "") + "\n"

    def _form_of_answer(self) -> str:
        whole = " Whole numbers." if all(parameter.whole for parameter in self._shown_parameters) else ""
        keys = ", ".join(f'"{parameter.name}": …' for parameter in self._shown_parameters)
        reason = '"reason": "one short sentence", ' if self._config.reasons else ""
        return f"Propose new numbers, as a JSON object: {{{reason}{keys}}}.{whole}"

    def _request(self, messages: Sequence[Message], index: int, attempt: int) -> Request:
        draws = generator(self.seed, "model", index).integers(2**31, size=attempt + 1)
        return Request(
            tuple(messages),
            schema=self._schema(),
            max_tokens=20 + 14 * len(self._shown_parameters) + 70 * self._config.reasons,  # the numbers, and a short reason
            temperature=1.0,
            seed=int(draws[attempt]),
        )

    def _schema(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"reason": {"type": "string", "maxLength": 120}} if self._config.reasons else {}
        for parameter in self._shown_parameters:
            kind = "integer" if parameter.whole else "number"
            limits = (int(parameter.low), int(parameter.greatest)) if parameter.whole else (parameter.low, parameter.high)
            fields[parameter.name] = {"type": kind, "minimum": limits[0], "maximum": limits[1]}
            if not parameter.whole:  # without this a small model may write digits for ever
                fields[parameter.name]["multipleOf"] = 10.0 ** (math.floor(math.log10(limits[1] - limits[0])) - 4)
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def parse_parameters(answer: str, parameters: Sequence[Parameter], *, finish: str | None = None) -> tuple[float, ...]:
    """Return the parameters that an answer proposes.

    They are read from JSON, else they are all numbers of the answer, if there are as many as parameters.

    >>> pair = [Parameter("p1", "", -6, 6), Parameter("p2", "", -6, 6)]
    >>> parse_parameters("Go further: p1 = 1.5, p2 = -2e-1", pair)
    (1.5, -0.2)
    >>> parse_parameters("I try [3, 4].", pair)
    (3.0, 4.0)

    Args:
        answer: The model's answer.
        parameters: Names and bounds.
        finish: How the answer ended, see `Answer.finish`. If it was cut, its last word or number is not read.

    Raises:
        RejectedError: If there are too few or too many numbers, or one is out of bounds; or if the model refused.
    """
    if finish in ("refusal", "content_filter"):
        raise RejectedError("That was no answer.")
    if finish == "length":
        answer = re.sub(r"[\w.+-]+$", "", answer)
    values = _of_json(answer, [parameter.name for parameter in parameters]) or numbers_in(answer)
    if len(values) != len(parameters):
        raise RejectedError(f"There have to be {len(parameters)} numbers, one for each parameter; found {len(values)}.")
    outside = [
        f"{p.name} = {value:g} is not from {p.low:g} to {p.greatest:g}"
        for p, value in zip(parameters, values, strict=True)
        if not p.low <= value <= p.greatest
    ]
    if outside:
        raise RejectedError("; ".join(outside[:5]) + ".")
    return tuple(values)


def check_new(values: Sequence[float], history: Sequence[Evaluation], others: Sequence[Sequence[float]] = ()) -> None:
    """Raise `RejectedError` if an evaluation or another proposal has the same parameters, to five significant digits."""
    for evaluation in history:
        if _digits(evaluation.parameters) == _digits(values):
            raise RejectedError(f"These were tried before and gave {evaluation.value:.2f}; propose others.")
    if any(_digits(other) == _digits(values) for other in others):
        raise RejectedError("These are proposed already; propose others.")


def _digits(numbers: Sequence[float]) -> list[str]:
    return [f"{number:.5g}" for number in numbers]


def reason_of(answer: str) -> str | None:
    """Return the reason that an answer gives: the field ``reason`` of its JSON, otherwise the whole answer."""
    for value in objects_in(answer):
        if isinstance(value.get("reason"), str):
            return str(value["reason"]).strip() or None
    return answer.strip() or None


def _of_json(answer: str, names: Sequence[str]) -> list[float]:
    """Return the numbers in the last JSON object that has all of them; none if there is no such object."""
    for value in reversed(objects_in(answer)):
        folded = {key.lower(): part for key, part in value.items() if not isinstance(part, bool)}
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            return [float(folded[name.lower()]) for name in names]
    return []
