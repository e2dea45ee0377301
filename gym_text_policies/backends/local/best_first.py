"""The most probable candidate, found without the probabilities of the others.

The log-probability of a token is at most 0. So the sum over a candidate's first tokens bounds the sum over all of them, and what
begins less probably than a whole candidate need not be read further. The search reads on behind the most probable beginnings, until
none is as probable as the best whole candidate: a uniform-cost search. It finds the candidate to which `decoding.read` gives the
highest score, up to rounding.

Each pass reads its beginnings from the prompt on. Where a model finds all candidates about equally probable, nothing can be left
out. So the longer a search takes, the more a pass reads, and in the end all that is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import torch

from gym_text.errors import PolicyError
from gym_text_policies.backends.local.decoding import Candidates
from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.tree import Tree

_READ_AT_ONCE = 4
"""Least beginnings that one pass reads on. On a CPU a pass of some ten tokens costs hardly more than one of a single token."""
_SHARE = 8
"""A pass reads on one beginning for each so many tokens that were read before."""


@dataclass(frozen=True)
class Found:
    """The most probable candidate, the first of equals."""

    index: int
    """Its place among the candidates."""
    tokens: list[int]
    """Its tokens, the end of turn included."""
    log_probs: list[float]
    """Log-probability of each of them, in nats."""
    tokens_read: int
    """Number of candidates' tokens that went through the model."""


Search = Generator[Branch, torch.Tensor, Found]
"""Yields what the next pass reads, and is sent the logits after the wanted tokens, float32 of shape (wanted, vocabulary)."""


def search(prefix: Prefix, prompt: Sequence[int], candidates: Sequence[Sequence[int]], end: int) -> Search:
    """Search for the greatest log P(candidate + end of turn | prompt).

    Args:
        prefix: The part of the prompt that is remembered, at most all but its last token. All but the last token are kept there.
        prompt: The prompt's tokens.
        candidates: The tokens of each candidate.
        end: The end of turn, which follows each of them.

    Raises:
        PolicyError: If the model predicts what is no number, or no candidate is possible.
    """
    tree = Tree()
    paths = [tree.grow(-1, [*tokens, end]) for tokens in candidates]
    following: dict[int, list[int]] = defaultdict(list)  # the nodes behind each node; -1 stands for the prompt
    for node, parent in enumerate(tree.parents):
        following[parent].append(node)
    log_probs: dict[int, float] = {}
    group: list[tuple[int, ...]] = []  # the nodes of the beginnings in the next pass; the first pass reads the prompt alone
    tokens_read = 0
    while True:
        read = Candidates.of(prefix, prompt, [[tree.tokens[node] for node in path] for path in group], end)
        last = read.branch.wanted[0]
        tokens_read += len(read.branch.tokens) - last - 1
        logits = yield read.branch
        read.branch.keep(last)
        rows = {-1: 0}  # node -> the row of the logits after it
        for nodes, rows_of_path in zip(group, read.rows, strict=True):
            rows |= zip(nodes, rows_of_path[1:], strict=True)
        new = [(row, node) for parent, row in rows.items() for node in following[parent]]
        predicted = torch.log_softmax(logits, -1, out=logits)[[row for row, _ in new], [tree.tokens[node] for _, node in new]]
        log_probs |= zip((node for _, node in new), predicted.tolist(), strict=True)
        bounds = [sum(log_probs.get(node, 0.0) for node in path) for path in paths]
        whole = [index for index, path in enumerate(paths) if path[-1] in log_probs]
        best = max(whole, key=bounds.__getitem__, default=-1)
        highest = bounds[best] if whole else -float("inf")
        if predicted.isnan().any() or (len(whole) == len(paths) and highest == -float("inf")):
            raise PolicyError("model: expected a log-probability of each choice; got NaN, or minus infinity for all of them.")
        done = set(whole)
        unread = sorted((i for i in range(len(paths)) if i not in done and bounds[i] >= highest), key=lambda i: -bounds[i])
        if not unread:
            best_path = paths[best]
            log_probs_of_best = [log_probs[node] for node in best_path]
            return Found(best, [tree.tokens[node] for node in best_path], log_probs_of_best, tokens_read)
        if tokens_read > len(tree.tokens):
            group = [tuple(paths[index][:-1]) for index in unread]
        else:
            beginnings = dict.fromkeys(_beginning(paths[index], log_probs, following) for index in unread)
            group = list(beginnings)[: max(_READ_AT_ONCE, tokens_read // _SHARE)]


def _beginning(path: Sequence[int], log_probs: Mapping[int, float], following: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return a candidate's nodes of known log-probability, and those behind them as long as one node alone can follow."""
    size = sum(node in log_probs for node in path)
    while size < len(path) - 1 and len(following[path[size - 1]]) == 1:
        size += 1
    return tuple(path[:size])


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
