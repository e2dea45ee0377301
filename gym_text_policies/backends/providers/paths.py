"""Paths of tokens behind a prompt, whose log-probabilities servers are asked for, and the servers' answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Paths = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Reading:
    """Log-probabilities of paths of tokens behind a prompt."""

    log_probs: list[list[float]]
    """The log-probability of each token of each path, in nats."""
    computed: int | None
    """Number of tokens that the server computed; None if it does not say."""


@dataclass(frozen=True)
class ToWrite:
    """What a server is asked to generate behind a prompt."""

    most: int
    """Most tokens."""
    temperature: float = 0.0
    seed: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    """These five: see `Request`."""
    stop: str = ""
    """A text behind which the server may stop, if there is one."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema that the text follows, if there is one."""
    exact: bool = False
    """Whether the log-probability of each token is needed. Then `stop` is left out, as servers do not tell those of its tokens."""

    @property
    def limits(self) -> dict[str, float]:
        """`top_p`, `top_k` and `min_p`, as far as they are given and tokens are drawn."""
        values = {"top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p} if self.temperature else {}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def drawn(self) -> dict[str, int]:
        """The seed, if tokens are drawn with one."""
        return {"seed": self.seed} if self.temperature and self.seed is not None else {}


@dataclass(frozen=True)
class Writing:
    """A text that a server has generated behind a prompt."""

    text: str
    """The text, without special tokens."""
    tokens: list[int]
    """The text's tokens, the end of turn included if the model ended the text."""
    log_probs: list[float]
    """The log-probability of each token, in nats: in the distribution that the token was drawn from, or at temperature 1 if nothing
    was drawn. Empty unless they were asked for."""
    computed: int | None
    """Number of the prompt's tokens that the server computed; None if it does not say."""
    finish: str | None = None
    """How the text ended, as a value of `Answer.finish`."""


def followers(paths: Paths) -> dict[tuple[int, ...], list[int]]:
    """Return all proper beginnings of paths, each with the tokens that may follow it.

    >>> followers([[5, 2], [5, 6, 2]])
    {(): [5], (5,): [2, 6], (5, 6): [2]}
    """
    following: dict[tuple[int, ...], dict[int, None]] = {}
    for path in paths:
        for index, token in enumerate(path):
            following.setdefault(tuple(path[:index]), {})[token] = None
    return {beginning: list(tokens) for beginning, tokens in following.items()}


def along(paths: Paths, values: Mapping[tuple[int, ...], Mapping[int, float]]) -> list[list[float]]:
    """Return the value of each token of each path. The keys of `values` are the tokens before a token, then the token itself."""
    return [[values[tuple(path[:index])][token] for index, token in enumerate(path)] for path in paths]


def parted(following: Mapping[tuple[int, ...], list[int]], most: int) -> list[list[tuple[tuple[int, ...], list[int]]]]:
    """Return the result of `followers` in parts, each with at most `most` different tokens that follow."""
    parts: list[list[tuple[tuple[int, ...], list[int]]]] = [[]]
    seen: set[int] = set()
    for beginning, tokens in following.items():
        for start in range(0, len(tokens), most):
            some = tokens[start : start + most]
            if len(seen.union(some)) > most:
                parts.append([])
                seen = set()
            parts[-1].append((beginning, some))
            seen.update(some)
    return parts
