"""The seam to language models: a `Backend` answers requests, and knows nothing of games, history or parsing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gym_text_policies.records import Message


@dataclass(frozen=True)
class Request:
    """One question to a model."""

    messages: tuple[Message, ...]
    choices: tuple[str, ...] | None = None
    """If given, the answer is a probability for each of these instead of a text."""
    schema: Mapping[str, Any] | None = None
    """If given, the answer is a text that is JSON of this JSON schema."""
    max_tokens: int = 16
    """Most tokens to generate."""
    temperature: float = 0.0
    """0: the most probable token each time. Else tokens are drawn, from probabilities to the power of 1 / temperature."""
    seed: int | None = None
    """Seed of what is drawn."""
    length_normalised: bool = False
    """Whether a choice's likelihood is the mean over its tokens, not their product."""
    episode: str = ""
    """Name of the episode it belongs to, unique in this process, for providers that group by it; no answer depends on it."""


@dataclass(frozen=True)
class Answer:
    """A model's answer to one request."""

    text: str | None = None
    """What was generated; None for a request with choices."""
    probabilities: Mapping[str, float] | None = None
    """Probability of each choice; they sum to 1."""
    probability_kind: str | None = None
    """``likelihood``: of the choice and the end of turn as text, relative to the other choices. ``letter``: of the letter that
    stands for it in a list. ``decision``: as the provider decides."""
    tokens_in: int = 0
    """Tokens given to the model: of the prompt, and of the choices."""
    tokens_cached: int = 0
    """Those of `tokens_in` that were not computed again."""
    tokens_out: int = 0
    """Tokens generated."""
    turns_dropped: int = 0
    """Oldest turns of the chat for which the model's window had no room."""
    cost: float = 0.0
    """Price in US dollars."""
    reference: str | None = None
    """The provider's own name of the episode, where it groups by episodes."""


class Backend(ABC):
    """A language model, wherever it runs. May be called from several threads."""

    remote: bool = False
    """Whether it waits for others: then give it one request a call, from many threads; else many requests, from one."""

    @abstractmethod
    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer each request; an answer does not depend on the other requests.

        Raises:
            PolicyError: If the model or its provider fails.
        """

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """All that its answers depend on, as plain JSON, without secrets."""
