"""The most probable candidate, found without the probabilities of the others.

The log-probability of a token is at most 0. So the sum over a candidate's first tokens bounds the sum over all of them, and what
begins less probably than a whole candidate need not be read further. The search reads on behind the most probable beginnings, until
none is as probable as the best whole candidate: a uniform-cost search. It finds the candidate to which `decoding.read` gives the
highest score, up to rounding.

Each pass reads its beginnings from the prompt on. Where a model finds all candidates about equally probable, nothing can be left
out. So the longer a search takes, the more a pass reads, and in the end all that is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from gym_text.errors import PolicyError
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
    whole = {path[-1]: index for index, path in reversed([*enumerate(paths)])}  # the node of a candidate's end -> the candidate
    following: list[list[int]] = [[] for _ in range(len(tree.tokens) + 1)]  # the last entry, at -1, is for the prompt
    for node, parent in enumerate(tree.parents):
        following[parent].append(node)
    log_probs, sums = [0.0] * len(following), [0.0] * len(following)
    unread, best, highest, tokens_read = [(0.0, -1)], -1, -float("inf"), 0  # unread: a heap of (-sum, node)
    while unread and -unread[0][0] >= highest:
        nodes: list[int] = []
        reads_all = tokens_read > len(tree.tokens)
        while unread and -unread[0][0] >= highest and (reads_all or len(nodes) < max(_READ_AT_ONCE, tokens_read // _SHARE)):
            nodes.append(heapq.heappop(unread)[1])
        for node in nodes:  # also of those that are added here: where only one token can follow, it is read in the same pass
            nodes += [child for child in following[node] if following[child] and (reads_all or len(following[node]) == 1)]
        branch = Branch.line(prefix, prompt[len(prefix.tokens) :], [])
        last = len(branch.tokens) - 1
        grown = Tree(branch.tokens, branch.parents)
        places = [_grow(grown, last, tree, node) for node in nodes]
        branch.wanted += sorted({last, *places})  # the tokens up to the first wanted one must have no fork between them
        tokens_read += len(branch.tokens) - last - 1
        logits = yield branch
        branch.keep(last)
        row_of, children = {place: row for row, place in enumerate(branch.wanted)}, [following[node] for node in nodes]
        rows = [row_of[place] for place, those in zip(places, children, strict=True) for _ in those]
        new = [child for those in children for child in those]
        predicted = torch.log_softmax(logits, -1, out=logits)[rows, [tree.tokens[child] for child in new]]
        read = set(nodes)
        for child, log_prob in zip(new, predicted.tolist(), strict=True):
            log_probs[child], sums[child] = log_prob, sums[tree.parents[child]] + log_prob
            if child in whole and (sums[child], -whole[child]) > (highest, -best):
                best, highest = whole[child], sums[child]
            if following[child] and child not in read:
                heapq.heappush(unread, (-sums[child], child))
        if predicted.isnan().any():
            best = -1
            break
    if best < 0:
        raise PolicyError("model: expected a log-probability of each choice; got NaN, or minus infinity for all of them.")
    path = paths[best]
    return Found(best, [tree.tokens[node] for node in path], [log_probs[node] for node in path], tokens_read)


def _grow(grown: Tree, last: int, tree: Tree, node: int) -> int:
    """Add a beginning to a pass, behind the prompt's last token; return the place of its own last token."""
    tokens = []
    while node >= 0:
        tokens.append(tree.tokens[node])
        node = tree.parents[node]
    return [last, *grown.grow(last, reversed(tokens))][-1]


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
