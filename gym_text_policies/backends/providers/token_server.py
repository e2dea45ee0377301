"""`TokenServer`: a kind of server that takes tokens and gives their log-probabilities, and what it is asked and answers.

A server is asked for the log-probability of each token of several candidates behind a prompt: the actions of mode ``choose``, each
with the end of turn. Requests are made so that the server computes the prompt once, and uses its cache of earlier prompts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.providers.connection import Connection

Candidates = Sequence[Sequence[int]]
"""The tokens of each text that may stand behind a prompt."""


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of candidates behind a prompt."""

    log_probs: list[list[float]]
    """The log-probability of each token of each candidate, in nats."""
    computed: int | None
    """Number of tokens that the server computed; None if it does not say."""


@dataclass(frozen=True)
class Generated:
    """A text that a server has generated behind a prompt."""

    text: str = ""
    """The text, without special tokens."""
    tokens: Sequence[int] = ()
    """The text's tokens, the end of turn included if the model ended the text."""
    log_probs: Sequence[float] = ()
    """The log-probability of each token, in nats: in the distribution that the token was drawn from, or at temperature 1 if nothing
    was drawn. Empty unless they were asked for."""
    computed: int | None = 0
    """Number of the prompt's tokens that the server computed; None if it does not say."""
    finish: str | None = None
    """How the text ended, as a value of `Answer.finish`."""

    def then(self, more: Generated) -> Generated:
        """Return this text with more behind it."""
        computed = None if self.computed is None or more.computed is None else self.computed + more.computed
        tokens, log_probs = [*self.tokens, *more.tokens], [*self.log_probs, *more.log_probs]
        return Generated(self.text + more.text, tokens, log_probs, computed, more.finish)


class TokenServer(ABC):
    """One kind of server that takes tokens and gives their log-probabilities.

    Args:
        server: The server.
        row: The model's entry in ``/v1/models``.
        tokenizer: Name of the model's tokenizer, if the user gave one.
    """

    name: ClassVar[str]
    owner: ClassVar[str]
    """The owner of the models in this kind of server's ``/v1/models``."""

    def __init__(self, server: Connection, row: Mapping[str, Any], tokenizer: str | None) -> None:
        self._server = server
        self._row = row
        self._tokenizer_name = tokenizer

    @property
    @abstractmethod
    def window(self) -> int:
        """The most tokens that the model reads."""

    @property
    @abstractmethod
    def tokenizer(self) -> Any:
        """The model's tokenizer; `UsageError` if it cannot be loaded."""

    def check_tokens(self, arguments: Mapping[str, Any]) -> None:  # noqa: B027  a server that tokenises has nothing to compare
        """Check that the server gives a chat the same tokens as `tokenizer`, with these template arguments.

        Raises:
            UsageError: If the tokens differ.
        """

    @abstractmethod
    def score(self, prompt: Sequence[int], candidates: Candidates) -> Scores:
        """Return the log-probabilities of candidates behind a prompt."""

    @abstractmethod
    def generate(self, prompt: Sequence[int], request: Request, stop: str = "") -> Generated:
        """Generate tokens behind a prompt.

        Args:
            prompt: The tokens before them.
            request: How many are generated at most, how they are drawn, and the JSON schema of the text, if there is one.
            stop: A text behind which the server may stop, if there is one. If the request needs the log-probability of each token,
                it is not sent, as servers do not give those of its tokens.
        """


def draw_settings(request: Request) -> dict[str, float]:
    """Return the seed, `top_p`, `top_k` and `min_p` of a request, as far as they are given; none if nothing is drawn."""
    names = ("seed", "top_p", "top_k", "min_p") if request.temperature else ()
    return {name: getattr(request, name) for name in names if getattr(request, name) is not None}


def next_tokens(candidates: Candidates) -> dict[tuple[int, ...], list[int]]:
    """Return all proper beginnings of candidates, each with the tokens that may follow it.

    >>> next_tokens([[5, 2], [5, 6, 2]])
    {(): [5], (5,): [2, 6], (5, 6): [2]}
    """
    following: dict[tuple[int, ...], dict[int, None]] = {}
    for candidate in candidates:
        for index, token in enumerate(candidate):
            following.setdefault(tuple(candidate[:index]), {})[token] = None
    return {beginning: list(tokens) for beginning, tokens in following.items()}


def along(candidates: Candidates, values: Mapping[tuple[int, ...], Mapping[int, float]]) -> list[list[float]]:
    """Return the value of each token of each candidate. The keys of `values` are the tokens before a token, then the token."""
    return [[values[tuple(tokens[:index])][token] for index, token in enumerate(tokens)] for tokens in candidates]
