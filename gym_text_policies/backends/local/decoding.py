"""From logits to answers: scores of the candidates of ``choose``, or the tokens of a text.

A text is generated with prompt lookup: a pass also reads a draft of the tokens that may come next, copied from where the last
tokens occurred before. Reading a few more tokens costs hardly more than reading one, and each drafted token that the model would
have taken itself saves a pass. The others are thrown away: the answer is the same, up to rounding. The idea is Apoorv Saxena's
"prompt lookup decoding" (2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.tree import Tree

_DRAFT_TOKENS = 7
"""Drafted tokens of one pass, of all answers together. On a CPU a pass of eight tokens costs hardly more than one of one."""
_LONG_DRAFT_TOKENS = 15
"""The same for an answer whose last draft was right as a whole: a pass of 16 tokens costs a quarter more than one of eight."""
_LONGEST_MATCH = 3
"""Most tokens that are compared to find a draft."""
_REMEMBERED = 20_000
"""Tokens of earlier answers that are kept, about."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of one request as a tree behind its prompt: a beginning that several share is computed once."""

    branch: Branch
    """What is new of the prompt, then the candidates."""
    tokens: tuple[list[int], ...]
    """Of each candidate, the end of turn included."""
    rows: tuple[list[int], ...]
    """For each of `tokens` the row of the branch's logits that predicts it."""
    length_normalised: bool = False
    """Whether a score is the mean over a candidate's tokens, not their sum."""

    @classmethod
    def of(
        cls,
        prefix: Prefix,
        prompt: Sequence[int],
        candidates: Sequence[Sequence[int]],
        end: int,
        *,
        length_normalised: bool = False,
    ) -> Candidates:
        """Return candidates behind a prompt.

        Args:
            prefix: What is known of the prompt, at least its last token excepted.
            prompt: Its tokens.
            candidates: The tokens of each candidate.
            end: The end of turn, which follows each of them.
            length_normalised: Whether a score is the mean over a candidate's tokens, not their sum.
        """
        branch = Branch.line(prefix, prompt[len(prefix.tokens) :], [])
        last = len(branch.tokens) - 1
        tree = Tree(branch.tokens, branch.parents)
        nodes = [[last, *tree.grow(last, tokens)] for tokens in candidates]
        branch.wanted += range(last, len(branch.tokens))
        tokens, rows = tuple([*tokens, end] for tokens in candidates), tuple([node - last for node in path] for path in nodes)
        return cls(branch, tokens, rows, length_normalised)

    @property
    def places(self) -> list[tuple[int, int]]:
        """The tokens of all candidates, each as its row and itself."""
        return [place for rows, tokens in zip(self.rows, self.tokens, strict=True) for place in zip(rows, tokens, strict=True)]

    def scores(self, log_probs: Sequence[Sequence[float]]) -> list[float]:
        """Return log P(candidate + end of turn | prompt) of each candidate.

        Args:
            log_probs: Of each token of each candidate.
        """
        return [sum(own) / (len(own) if self.length_normalised else 1) for own in log_probs]


@torch.inference_mode()
def read(prefixes: Prefixes, requests: Sequence[Candidates]) -> list[list[tuple[float, ...]]]:
    """Return the log-probability of each token of each candidate of several requests from one pass. The prompts are remembered."""
    branches = [candidates.branch for candidates in requests]
    logits = prefixes.compute(branches)
    for branch in branches:
        branch.keep(branch.wanted[0] + 1)
    places = [candidates.places for candidates in requests]
    sizes = list(map(len, places))
    indices = torch.tensor([place for own in places for place in own], device=logits[0].device)  # (tokens of all candidates, 2)
    parts = zip(logits, torch.split(indices, sizes), strict=True)
    # in place: fresh memory for so many numbers takes four times as long as they do
    each = torch.cat([torch.log_softmax(own, -1, out=own)[index[:, 0], index[:, 1]] for own, index in parts])
    numbers = iter(each.tolist())  # of all that was computed, these alone leave the device
    return [[tuple(itertools.islice(numbers, len(tokens))) for tokens in candidates.tokens] for candidates in requests]


class Sampler:
    """Takes the tokens of one answer, among those that a grammar allows.

    Args:
        temperature: 0: the most probable token. Else one is drawn, from the probabilities to the power of 1 / temperature.
        seed: Seed of what is drawn.
        grammar: An ``LLMatcher`` of llguidance, or None.
        keeps: Whether to keep the log-probability of each token that is taken.
    """

    def __init__(self, temperature: float, seed: int, grammar: Any = None, *, keeps: bool = False) -> None:
        self.log_probs: list[float] = []
        """Of each token that was taken, by the probabilities that it was drawn from; greedily by those at temperature 1."""
        self._keeps = keeps
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)
        self._grammar = grammar

    def forced(self, max_tokens: int) -> list[int]:
        """Return at most `max_tokens` next tokens that the grammar leaves no choice about."""
        return list(self._grammar.compute_ff_tokens())[:max_tokens] if self._grammar and max_tokens > 0 else []

    def take(self, logits: torch.Tensor) -> Iterator[int]:
        """Yield the next token after each row of logits, as long as it is asked for.

        Args:
            logits: Of all tokens, float32 of shape (rows, vocabulary).
        """
        if self._grammar or self._temperature or self._keeps:
            yield from map(self._one, logits.cpu())  # what is drawn does not depend on the device
        else:
            yield from logits.argmax(-1).tolist()

    def _one(self, logits: torch.Tensor) -> int:
        """Return the next token after one row of logits, on the CPU."""
        if self._grammar:
            bits = np.unpackbits(np.frombuffer(self._grammar.compute_bitmask(), np.uint8), bitorder="little")
            allowed = torch.zeros(len(logits), dtype=torch.bool)
            allowed[: len(bits)] = torch.from_numpy(bits[: len(logits)].astype(bool))
            logits = logits.masked_fill(~allowed, -math.inf)
        logits = logits / (self._temperature or 1.0)
        if self._temperature:
            token = int(torch.multinomial(logits.softmax(-1), 1, generator=self._generator))
        else:
            token = int(logits.argmax())
        if self._keeps:
            self.log_probs.append(float(logits.log_softmax(-1)[token]))
        if self._grammar:
            self._grammar.consume_token(token)
        return token


class PromptLookup:
    """Drafts what comes next: what followed the last time that the same one to three tokens occurred.

    Args:
        tokens: The prompt.
        earlier: Answers to other prompts: a model often says the same again. Of two equally long matches theirs counts.
    """

    def __init__(self, tokens: Sequence[int] = (), earlier: PromptLookup | None = None) -> None:
        self._earlier = earlier
        self._tokens: list[int] = []
        self._followed_at: dict[tuple[int, ...], int] = {}  # one to three tokens -> index of what followed them last
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            index = len(self._tokens)
            for size in range(1, min(_LONGEST_MATCH, index) + 1):
                self._followed_at[tuple(self._tokens[index - size : index])] = index
            self._tokens.append(token)

    def draft(self, max_tokens: int) -> list[int]:
        """Return `max_tokens` tokens that may come next; none where the last token never occurred before.

        A match that reaches the end of what is known goes on with the draft itself: a line that repeats goes on repeating.
        """
        for size in range(min(_LONGEST_MATCH, len(self._tokens)), 0, -1):
            for known in (self._earlier, self) if self._earlier is not None else (self,):
                index = known._followed_at.get(tuple(self._tokens[-size:]))
                if index is not None and max_tokens > 0:
                    drafted = known._tokens[index : index + max_tokens]
                    while len(drafted) < max_tokens:
                        drafted += drafted[: max_tokens - len(drafted)]
                    return drafted
        return []

    def remember(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Append the answer to another prompt; when there are too many of them, all are forgotten first."""
        if len(self) > _REMEMBERED:
            self._tokens, self._followed_at = [], {}
        self.extend([*prompt[-_LONGEST_MATCH:], *answer])


class Generation:
    """One answer while it is generated.

    Args:
        prompt: Tokens of the prompt.
        prefix: What is known of the prompt, at least its last token excepted.
        sampler: Takes its tokens.
        earlier: Answers to other prompts.
        end: The end of turn, which ends the answer.
        max_tokens: Most tokens.
    """

    def __init__(
        self, prompt: Sequence[int], prefix: Prefix, sampler: Sampler, earlier: PromptLookup, end: int, max_tokens: int
    ) -> None:
        self.tokens: list[int] = []
        """What is generated so far."""
        self.sampler = sampler
        self._prompt, self._prefix = prompt, prefix
        self._lookup = PromptLookup(prompt, earlier)
        self._end, self._max_tokens = end, max_tokens
        self._draft_tokens = _DRAFT_TOKENS

    @property
    def ended(self) -> bool:
        """Whether the model ended it, and no limit."""
        return self.tokens[-1] == self._end

    @property
    def finished(self) -> bool:
        """Whether no token is to come."""
        return self.ended or len(self.tokens) >= self._max_tokens

    def branch(self, answers: int, *, drafts: bool = True) -> Branch:
        """Return what the next pass reads: the tokens that it has not read, and a draft of what comes next.

        Args:
            answers: Number of answers that the pass is for; they share the room for drafts.
            drafts: Whether there is a draft.
        """
        room = min(self._draft_tokens // answers, self._max_tokens - len(self.tokens) - 1) if drafts else 0
        unread = [*self._prompt, *self.tokens][len(self._prefix.tokens) :]
        tokens = unread + (self.sampler.forced(room) or self._lookup.draft(room))
        return Branch.line(self._prefix, tokens, range(len(unread) - 1, len(tokens)))

    def read(self, branch: Branch, logits: torch.Tensor) -> None:
        """Take tokens as long as the draft agrees with them, and one more.

        Args:
            branch: What `branch` returned.
            logits: After each wanted token of it, float32 of shape (wanted, vocabulary).
        """
        right, before = branch.wanted[0] + 1, len(self.tokens)
        for token in self.sampler.take(logits):
            self.tokens.append(token)
            if self.ended or right == len(branch.tokens) or branch.tokens[right] != self.tokens[-1]:
                break
            right += 1
        branch.keep(right)
        all_right = right == len(branch.tokens) and len(branch.wanted) > 1
        self._draft_tokens = _LONG_DRAFT_TOKENS if all_right else _DRAFT_TOKENS
        self._lookup.extend(self.tokens[before:])


def generate(prefixes: Prefixes, generations: Sequence[Generation]) -> None:
    """Generate several answers, some tokens of each in every pass."""
    active = list(generations)
    while active:
        branches = [generation.branch(len(active), drafts=prefixes.cuts_back) for generation in active]
        for generation, branch, logits in zip(active, branches, prefixes.compute(branches), strict=True):
            generation.read(branch, logits)
        active = [generation for generation in active if not generation.finished]
