"""`Question`: a turn for which a language model is asked, with its answers so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gym_text_policies.answers import Reason
from gym_text_policies.backends.base import Answer, spent
from gym_text_policies.policies.seen_pictures import SeenPicture
from gym_text_policies.prompts import LABELS
from gym_text_policies.prompts.tools import as_calls
from gym_text_policies.records import Decision, Message, Tokens, Turn


@dataclass
class Question:
    """A turn for which a language model is asked. The model may answer several times before there is a decision."""

    turn: Turn
    names: tuple[str, ...]
    messages: list[Message]
    answers: list[Answer] = field(default_factory=list)
    action: str | None = None
    reasoning: str | None = None
    """What the strategy asked for beside the action."""
    invalid: Reason | None = None
    """Why the last answer cannot be used; None if it can."""
    keeps_thoughts: bool = False
    """Whether later messages of the chat keep the thoughts of earlier ones."""
    read: tuple[int, ...] = ()
    """The tokens of the chat up to the end of the model's last message, if they are kept."""
    picture: SeenPicture | None = None
    """The picture that stands in the last message."""

    @property
    def text(self) -> str:
        """The last answer in words, or the arguments of its call."""
        return next((said for answer in reversed(self.answers) if (said := _said(answer)) is not None), "")

    @property
    def call(self) -> str | None:
        """The arguments of the last answer's call; None if it was none."""
        return self.answers[-1].arguments if self.answers else None

    @property
    def finish(self) -> str | None:
        """How the last answer in words ended, see `Answer.finish`."""
        return next((answer.finish for answer in reversed(self.answers) if answer.text is not None), None)

    @property
    def probabilities(self) -> Mapping[str, float] | None:
        """The probability of each action; None if the model has said no more than which action is the most probable one.

        If there is only one action, the model is not asked, and it has probability 1.
        """
        last = self.answers[-1] if self.answers else None
        if last and last.choice is not None:
            return None
        return (last.probabilities if last else None) or {self.names[0]: 1.0}

    @property
    def most_probable(self) -> str:
        """The most probable action."""
        probabilities = self.probabilities
        return str(self.answers[-1].choice) if probabilities is None else max(probabilities, key=probabilities.__getitem__)

    def say(self, answer: str, reply: str) -> None:
        """Add an answer of the model, and a reply to it, to the conversation."""
        last = self.answers[-1]
        tokens = (last.tokens or {}).get(answer)
        self.read = tokens.prompt + tokens.said if tokens and (self.keeps_thoughts or not _thought(last)) else ()
        kept = {"reasoning": last.reasoning} if self.keeps_thoughts and last.reasoning else {}
        said: list[Message] = [{"role": "assistant", "content": self.call or answer, **kept}, {"role": "user", "content": reply}]
        self.messages += said if self.call is None else as_calls(said)

    def decision(self) -> Decision:
        """Return the decision, with its tokens and cost."""
        assert self.action is not None
        texts = [said for answer in self.answers if (said := _said(answer)) is not None]
        chosen = not self.answers or self.answers[-1].probabilities is not None or self.answers[-1].choice is not None
        last = self.answers if chosen else self.answers[-1:]  # a choice may stand behind words of the same decision
        return Decision(
            self.action,
            self.invalid is None,
            messages=tuple(self.messages),
            completion=texts[-1] if texts else None,
            finish=self.finish if self.finish != "stop" else None,
            reasoning="\n".join(filter(None, (*(answer.reasoning for answer in last), self.reasoning))) or None,
            thought_cut=any(answer.thought_cut for answer in last),
            invalid=self.invalid,
            retries=0 if chosen else len(texts) - 1,
            probabilities=self.probabilities if chosen else None,
            probability_kind=self._kind if chosen and self.answers else None,
            confidence=self.answers[-1].confidence if self.answers else None,
            rounds=sum(answer.rounds for answer in self.answers),
            turns_dropped=max((answer.turns_dropped for answer in self.answers), default=0),
            reference=self.answers[-1].reference if self.answers else None,
            tokens=self._tokens(chosen),
            picture=self.picture.digest if self.picture and self.answers else None,
            **spent(self.answers),
        )

    @property
    def _kind(self) -> str | None:
        """What the probabilities are of, or that they were left out."""
        last = self.answers[-1]
        return last.probability_kind if last.choice is None else "not computed"

    def _tokens(self, chosen: bool) -> Tokens | None:
        """Return the tokens of the last answer; None if they were not asked for."""
        tokens = self.answers[-1].tokens if self.answers else None
        return tokens.get(str(self.action) if chosen else self.text) if tokens else None


def of_names(answer: Answer, names: Sequence[str]) -> Answer:
    """Return an answer about labels as one about the actions that they stand for."""
    named = dict(zip(LABELS, names, strict=False))
    return replace(
        answer,
        probabilities=answer.probabilities and {named[label]: share for label, share in answer.probabilities.items()},
        probability_kind="letter",
        choice=answer.choice and named[answer.choice],
        tokens=answer.tokens and {named[label]: read for label, read in answer.tokens.items()},
    )


def _said(answer: Answer) -> str | None:
    """Return an answer's words, or the arguments of its call; None for a choice."""
    return answer.text if answer.arguments is None else answer.arguments


def _thought(answer: Answer) -> bool:
    """Return whether the tokens of an answer begin with those of a thought."""
    return answer.tokens_reasoning > 0 or answer.thought_cut
