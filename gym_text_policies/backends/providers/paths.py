"""Paths of tokens behind a prompt: what servers are asked for, and what they say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Paths = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Reading:
    """Log-probabilities of paths of tokens behind a prompt."""

    log_probs: list[list[float]]
    """Of each token of each path, in nats."""
    computed: int | None
    """Tokens that the server computed; None where it does not say."""


@dataclass(frozen=True)
class Writing:
    """A text that a server has generated behind a prompt."""

    text: str
    """The text, without special tokens."""
    tokens: list[int]
    """Its tokens, the end of turn included if the model came to it."""
    log_probs: list[float]
    """Of each token, in nats: of the draw, at the temperature; greedily at temperature 1."""
    computed: int | None
    """Tokens of the prompt that the server computed; None where it does not say."""
    finish: str | None = None
    """How it ended, as `Answer.finish` says it."""


def followers(paths: Paths) -> dict[tuple[int, ...], list[int]]:
    """Return the beginnings of paths, each with the tokens that follow it.

    >>> followers([[5, 2], [5, 6, 2]])
    {(): [5], (5,): [2, 6], (5, 6): [2]}
    """
    found: dict[tuple[int, ...], dict[int, None]] = {}
    for path in paths:
        for place, token in enumerate(path):
            found.setdefault(tuple(path[:place]), {})[token] = None
    return {beginning: list(tokens) for beginning, tokens in found.items()}


def along(paths: Paths, found: Mapping[tuple[int, ...], Mapping[int, float]]) -> list[list[float]]:
    """Return the values of each path's tokens, each found by what is before it."""
    return [[found[tuple(path[:place])][token] for place, token in enumerate(path)] for path in paths]


def parted(asked: Mapping[tuple[int, ...], list[int]], most: int) -> list[list[tuple[tuple[int, ...], list[int]]]]:
    """Return beginnings, each with tokens that follow it, in parts of at most `most` different tokens."""
    parts: list[list[tuple[tuple[int, ...], list[int]]]] = [[]]
    seen: set[int] = set()
    for beginning, tokens in asked.items():
        for start in range(0, len(tokens), most):
            some = tokens[start : start + most]
            if len(seen.union(some)) > most:
                parts.append([])
                seen = set()
            parts[-1].append((beginning, some))
            seen.update(some)
    return parts
