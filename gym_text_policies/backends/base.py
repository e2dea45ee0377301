"""`Backend`: a language model behind one method. It answers requests, and knows nothing of games, history or parsing."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gym_text_policies.backends.chat_format import THOUGHT_TOKENS, Think
from gym_text_policies.records import Message, Tokens

THINKING = ("think", "think_tokens")
"""The settings of a request, and of a policy, that say how the model thinks before it answers."""


@dataclass(frozen=True)
class Request:
    """One question to a model."""

    messages: tuple[Message, ...]
    """The prompt, as a chat."""
    choices: tuple[str, ...] | None = None
    """If given, the answer is a probability for each of these texts, in place of a text."""
    meanings: Mapping[str, str] | None = None
    """What choices mean, for typed decisions: where the prompt does not say it. A choice may have none."""
    probabilities: bool = True
    """False: the most probable choice suffices, and a model may leave out the probabilities."""
    end_of_turn: bool = True
    """Whether a choice's probability is that of its text and the end of turn; False: of its text alone, as for a label of one
    token. Models behind a server take True alone."""
    schema: Mapping[str, Any] | None = None
    """If given, the answer is JSON that follows this JSON schema. With a `tool`, the arguments of its call follow it."""
    max_tokens: int = 16
    """Most tokens to generate."""
    temperature: float = 0.0
    """0 takes the most probable token. Else a token is drawn, from the probabilities to the power of 1 / temperature. With choices
    only a thought is drawn."""
    seed: int | None = None
    """Seed of the draws; None: a new one each time."""
    episode: str = ""
    """Name of the request's episode, unique in this process, for providers that group requests. No answer depends on it."""
    tokens: bool = False
    """Whether the answer must contain its tokens."""
    read: tuple[int, ...] = ()
    """The tokens of the chat up to the end of the model's last message, as the model has read and generated them. Only later
    messages are tokenised. If this is empty, all messages are."""
    think: Think = None
    """Whether the model thinks before it answers: None (as it does by itself), True, False, or an effort such as ``low``."""
    think_tokens: int | None = None
    """Most tokens of a thought, apart from `max_tokens`; None: 2,048, or in this process half of the model's window if that is
    less. A thought that reaches it is closed, and the answer is asked for."""
    top_p: float | None = None
    """Tokens are drawn among the most probable ones, whose probabilities sum to at least this."""
    top_k: int | None = None
    """Tokens are drawn among this many most probable ones."""
    min_p: float | None = None
    """Tokens are drawn among those with at least this share of the most probable token's probability."""
    tool: Mapping[str, Any] | None = None
    """If given, the answer is a call of one function. This is the function as in ``tools`` of OpenAI's protocol, with ``name``,
    ``description`` and ``parameters`` (a JSON schema). It is equal at each step; `schema` says what can be given now."""
    picture: bytes | None = None
    """A PNG that is a part of the last message."""

    @property
    def thought_tokens(self) -> int:
        """Most tokens of a thought: `think_tokens`, or the default of models behind a server."""
        return THOUGHT_TOKENS if self.think_tokens is None else self.think_tokens

    @property
    def most_tokens(self) -> int:
        """Most tokens of a thought and an answer together, if `think_tokens` is given; else of the answer."""
        return self.max_tokens + (self.think_tokens or 0)


@dataclass(frozen=True)
class Answer:
    """A model's answer to one request."""

    text: str | None = None
    """The generated text, without the thought before it; None for a request with choices."""
    reasoning: str | None = None
    """The model's thought before its answer, if it thinks. An answer whose thought did not end has an empty text."""
    arguments: str | None = None
    """For a request with a tool: the arguments of the call, as JSON; None if the model did not call the tool."""
    finish: str | None = None
    """How the text ended. ``stop``: by the model. ``length``: cut at `max_tokens`. ``refusal`` or ``content_filter``: the text is
    not an answer. None for a request with choices, and if a provider does not say."""
    probabilities: Mapping[str, float] | None = None
    """Probability of each choice; they sum to 1."""
    choice: str | None = None
    """The most probable choice, in an answer that leaves out the probabilities."""
    probability_kind: str | None = None
    """What the probabilities are of. ``likelihood``: the choice and the end of turn as a text, relative to the other choices.
    ``decision``: the choice in a typed decision, whatever the server compares for it."""
    confidence: float | None = None
    """The server's own measure of how sure a typed decision is, from 0 to 1; None if it tells none, and in rounds."""
    rounds: int = 0
    """Number of requests of a typed decision: 1, or more if the choices were too many for one question; see `in_rounds`."""
    tokens_in: int = 0
    """Tokens of the prompt and of the choices; if only the most probable choice was looked for, those that were read for it."""
    tokens_cached: int = 0
    """The part of `tokens_in` that was not computed again."""
    tokens_out: int = 0
    """Tokens generated, those of the thought included."""
    tokens_reasoning: int = 0
    """The part of `tokens_out` that belongs to the thought."""
    thought_cut: bool = False
    """Whether the thought was closed in the model's place: where it reached `think_tokens`, or where the model ended its turn."""
    turns_dropped: int = 0
    """Number of oldest turns left out, because the chat was longer than the model's window."""
    cost: float = 0.0
    """Price in US dollars."""
    reference: str | None = None
    """The provider's own name of the episode, if it groups by episodes."""
    tokens: Mapping[str, Tokens] | None = None
    """The tokens of the prompt and of the text, or of the prompt and each choice, if the request asks for them."""


def softmax(choices: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return the probability of each choice: the softmax of the scores, which are in nats."""
    highest = max(scores)
    weights = [math.exp(value - highest) for value in scores]
    total = sum(weights)
    return {choice: weight / total for choice, weight in zip(choices, weights, strict=True)}


class Backend(ABC):
    """A language model, wherever it runs. Several threads may call it."""

    remote: bool = False
    """Whether a call waits for a server. If so, many threads send one request each; else one thread sends many requests at once."""
    takes_pictures: bool = False
    """Whether a request may have a picture."""

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the names of the constructor's options: all parameters but ``model``."""
        return [name for name in inspect.signature(cls).parameters if name != "model"]

    @abstractmethod
    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request. An answer does not depend on the other requests.

        Raises:
            PolicyError: If the model or its provider fails.
        """

    def count(self, text: str) -> int:
        """Return the number of tokens of a short text such as an action's name, or an upper bound of it."""
        return len(text.encode("utf-8", "replace"))

    def check(self, request: Request) -> None:  # noqa: B027  most backends have no server to check
        """Check before a run that such a request can be answered. By default nothing is asked.

        Raises:
            UsageError: If the request cannot be answered; the message says what to do.
        """

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Everything that the model's answers depend on, as plain JSON, without secrets."""


def spent(answers: Iterable[Any]) -> dict[str, Any]:
    """Return the sums of what decisions, or answers of a backend, took: tokens and US dollars, by the names of their fields."""
    answers = list(answers)
    names = ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "cost")
    return {name: sum(getattr(answer, name) for answer in answers) for name in names}
