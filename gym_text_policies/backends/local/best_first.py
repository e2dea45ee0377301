"""The most probable candidate, found without the probabilities of the others.

The log-probability of a token is at most 0. So the sum over a candidate's first tokens bounds the sum over all of them, and what
begins less probably than a whole candidate need not be read further. The search reads on behind the most probable beginnings, until
none is as probable as the best whole candidate: a uniform-cost search. It finds the candidate that has the highest score, up to
rounding.

Each pass reads its beginnings from the prompt on. Where a model finds all candidates about equally probable, nothing can be left
out. So the longer a search takes, the more a pass reads, and in the end all that is left.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from gym_text.errors import PolicyError
from gym_text_policies.backends.local.prefixes import Branch, Candidates, Prefix, Prefixes

_READ_AT_ONCE = 4
"""Least beginnings that one pass reads on. On a CPU a pass of some ten tokens costs hardly more than one of a single token."""
_SHARE = 8
"""A pass reads on one beginning for each so many tokens that were read before."""


@dataclass(frozen=True)
class Found:
    """The most probable candidate, the first of equals."""

    index: int
    """Its place among the candidates."""
    tokens: tuple[int, ...]
    """Its tokens, the end of turn included."""
    log_probs: list[float]
    """Log-probability of each of them, in nats."""
    tokens_read: int
    """Number of candidates' tokens that went through the model."""


Search = Generator[Branch, torch.Tensor, Found]
"""Yields what the next pass reads, and is sent the logits after the wanted tokens, float32 of shape (wanted, vocabulary)."""


def search(prefix: Prefix, prompt: Sequence[int], candidates: Sequence[Sequence[int]], end: int) -> Search:
    """Search for the greatest log P(candidate + end of turn | prompt). Arguments as of `Candidates.of`.

    Raises:
        PolicyError: If the model predicts what is no number, or no candidate is possible.
    """
    paths = [(*tokens, end) for tokens in candidates]
    following: dict[tuple[int, ...], set[int]] = defaultdict(set)  # beginning of a candidate -> the tokens that may come next
    for path in paths:
        for size, token in enumerate(path):
            following[path[:size]].add(token)
    scores: dict[tuple[int, ...], float] = {(): 0.0}  # beginning -> its log-probability
    group: list[tuple[int, ...]] = []  # the beginnings in the next pass; the first pass reads the prompt alone
    tokens_read = 0
    while True:
        read = Candidates.of(prefix, prompt, group, end)
        last = read.branch.wanted[0]
        tokens_read += len(read.branch.tokens) - last - 1
        logits = yield read.branch
        read.branch.keep(last)
        rows: dict[tuple[int, ...], int] = {(): 0}  # beginning -> the row of the logits after it
        for path, rows_of_path in zip(group, read.rows, strict=True):
            rows |= {path[:size]: row for size, row in enumerate(rows_of_path)}
        new = [(start, token) for start in rows for token in following[start]]
        predicted = torch.log_softmax(logits, -1, out=logits)[[rows[start] for start, _ in new], [token for _, token in new]]
        for (start, token), value in zip(new, predicted.tolist(), strict=True):
            scores[*start, token] = scores[start] + value
        known = [next(size for size in range(len(path), -1, -1) if path[:size] in scores) for path in paths]
        bounds = [scores[path[:size]] for path, size in zip(paths, known, strict=True)]
        whole = [index for index, path in enumerate(paths) if known[index] == len(path)]
        best = max(whole, key=bounds.__getitem__, default=-1)
        highest = bounds[best] if whole else -float("inf")
        if predicted.isnan().any() or (len(whole) == len(paths) and highest == -float("inf")):
            raise PolicyError("model: expected a log-probability of each choice; got NaN, or minus infinity for all of them.")
        unread = [index for index, path in enumerate(paths) if known[index] < len(path) and bounds[index] >= highest]
        if not unread:
            sums = [scores[paths[best][:size]] for size in range(len(paths[best]) + 1)]
            log_probs = [after - before for before, after in itertools.pairwise(sums)]
            return Found(best, paths[best], log_probs, tokens_read)
        beginnings = []
        for index in sorted(unread, key=bounds.__getitem__, reverse=True):
            path, size = paths[index], known[index]
            while size < len(path) - 1 and len(following[path[:size]]) == 1:
                size += 1
            beginnings.append(path[:size])
        group = list(dict.fromkeys(beginnings))[: max(_READ_AT_ONCE, tokens_read // _SHARE)]
        if tokens_read > sum(map(len, following.values())):
            group = [paths[index][:-1] for index in unread]


@torch.inference_mode()
def find(prefixes: Prefixes, searches: Sequence[Search]) -> list[Found]:
    """Make several searches together. Each pass goes on with all that have not ended."""
    found: dict[int, Found] = {}
    waiting = {index: next(each) for index, each in enumerate(searches)}
    while waiting:
        logits = prefixes.compute(list(waiting.values()))
        for index, rows in zip(list(waiting), logits, strict=True):
            try:
                waiting[index] = searches[index].send(rows)
            except StopIteration as ended:
                found[index] = ended.value
                del waiting[index]
    return [found[index] for index in range(len(searches))]
