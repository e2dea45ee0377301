"""From logits to answers: the scores of candidates in mode ``choose``, or the tokens of a text.

Texts are generated with prompt lookup. A forward pass also reads a draft of the next tokens: those that followed the last time that
the latest tokens occurred. A pass of a few tokens costs hardly more than one of a single token, and each drafted token that equals
the model's own choice saves a pass. Other drafted tokens are thrown away. The answer is the same, up to rounding. The idea is
Apoorv Saxena's "prompt lookup decoding" (2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.sampling import Sampler
from gym_text_policies.backends.local.tree import Tree

_DRAFT_TOKENS = 7
"""Drafted tokens in one pass, of all answers together. On a CPU a pass of eight tokens costs hardly more than one of a single
token."""
_LONG_DRAFT_TOKENS = 15
"""The same after a draft that was right as a whole: a pass of 16 tokens costs a quarter more than one of eight."""
_LONGEST_MATCH = 3
"""Most tokens that are compared to find a draft."""
_REMEMBERED = 20_000
"""About the most tokens of earlier answers that are kept."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of one request as a tree behind its prompt. A start that several candidates share is computed once."""

    branch: Branch
    """The new tokens of the prompt, then those of the candidates."""
    tokens: tuple[list[int], ...]
    """The tokens of each candidate, the end of turn included."""
    rows: tuple[list[int], ...]
    """For each token in `tokens` the row of the branch's logits that predicts it."""

    @classmethod
    def of(
        cls,
        prefix: Prefix,
        prompt: Sequence[int],
        candidates: Sequence[Sequence[int]],
        end: int,
    ) -> Candidates:
        """Return candidates behind a prompt.

        Args:
            prefix: The part of the prompt that is remembered, at most all but its last token.
            prompt: The prompt's tokens.
            candidates: The tokens of each candidate.
            end: The end of turn, which follows each of them.
        """
        branch = Branch.line(prefix, prompt[len(prefix.tokens) :], [])
        last = len(branch.tokens) - 1
        tree = Tree(branch.tokens, branch.parents)
        nodes = [[last, *tree.grow(last, tokens)] for tokens in candidates]
        branch.wanted += range(last, len(branch.tokens))
        tokens, rows = tuple([*tokens, end] for tokens in candidates), tuple([node - last for node in path] for path in nodes)
        return cls(branch, tokens, rows)


@torch.inference_mode()
def read(prefixes: Prefixes, requests: Sequence[Candidates]) -> list[list[tuple[float, ...]]]:
    """Return the log-probability of each token of each candidate, for several requests in one pass. The prompts are remembered."""
    branches = [candidates.branch for candidates in requests]
    logits = prefixes.compute(branches)
    for branch in branches:
        branch.keep(branch.wanted[0] + 1)
    targets = [
        [pair for rows, tokens in zip(each.rows, each.tokens, strict=True) for pair in zip(rows, tokens, strict=True)]
        for each in requests
    ]  # of each token of all candidates the row of the logits that predicts it, and the token
    sizes = list(map(len, targets))
    indices = torch.tensor(list(itertools.chain(*targets)), device=logits[0].device)  # (tokens of all candidates, 2)
    parts = zip(logits, torch.split(indices, sizes), strict=True)
    # in place: allocating a tensor of this size takes four times as long as computing its numbers
    target_log_probs = torch.cat([torch.log_softmax(rows, -1, out=rows)[index[:, 0], index[:, 1]] for rows, index in parts])
    log_probs = iter(target_log_probs.tolist())  # only these numbers leave the device
    return [[tuple(itertools.islice(log_probs, len(tokens))) for tokens in candidates.tokens] for candidates in requests]


class PromptLookup:
    """Drafts the next tokens: those that followed the last time that the same one to three tokens occurred.

    Args:
        tokens: The prompt.
        earlier: Answers to other prompts, as a model often repeats itself. They come first if matches are equally long.
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
        """Return a draft of `max_tokens` tokens; an empty one if the last token never occurred before.

        If a match reaches the end of the known tokens, the draft repeats itself, as a line that has repeated goes on repeating.
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
        """Append the answer to a prompt. If there are too many answers, all earlier ones are forgotten first."""
        if len(self) > _REMEMBERED:
            self._tokens, self._followed_at = [], {}
        self.extend([*prompt[-_LONGEST_MATCH:], *answer])


Ends = Callable[[list[int]], bool]
"""Whether an answer, or a thought, ends with the last of these tokens. It is asked after each token."""


class Generation:
    """One answer while it is generated, or a thought and then the answer behind it.

    Args:
        prompt: Tokens of the prompt.
        prefix: The part of the prompt that is remembered, at most all but its last token.
        sampler: Chooses its tokens.
        earlier: Answers to other prompts.
        ends: Whether the model has ended the answer.
        max_tokens: Most tokens.
    """

    def __init__(
        self, prompt: Sequence[int], prefix: Prefix, sampler: Sampler, earlier: PromptLookup, ends: Ends, max_tokens: int
    ) -> None:
        self.tokens: list[int] = []
        """The tokens generated so far."""
        self.ended = False
        """Whether the model itself ended the answer, not the limit."""
        self.prefix = prefix
        """The tokens that the model has read."""
        self.sampler = sampler
        self._prompt = prompt
        self._lookup = PromptLookup(prompt, earlier)
        self._ends, self._max_tokens = ends, max_tokens
        self._draft_tokens = _DRAFT_TOKENS

    def go_on(self, prompt: Sequence[int], prefix: Prefix, tokens: Sequence[int], ends: Ends, max_tokens: int) -> None:
        """Begin an answer behind a thought, with the same sampler.

        Args:
            prompt: Tokens of the prompt, of the thought, and of what closes it.
            prefix: The part of `prompt` and `tokens` that is remembered.
            tokens: The tokens of the answer that are generated already.
            ends: Whether the model has ended the answer.
            max_tokens: Most tokens of the answer.
        """
        self._lookup.extend(prompt[len(self._prompt) + len(self.tokens) :])
        self.tokens, self._prompt, self.prefix = list(tokens[:max_tokens]), prompt, prefix
        self.ended = bool(self.tokens) and ends(self.tokens)
        self._ends, self._max_tokens = ends, max_tokens

    @property
    def finished(self) -> bool:
        """Whether the answer is complete or at its limit."""
        return self.ended or len(self.tokens) >= self._max_tokens

    def branch(self, answers: int, *, drafts: bool = True) -> Branch:
        """Return what the next pass reads: the tokens that the model has not read, and a draft of those that follow.

        Args:
            answers: Number of answers in the pass, which share the room for drafts.
            drafts: Whether to add a draft.
        """
        room = min(self._draft_tokens // answers, self._max_tokens - len(self.tokens) - 1) if drafts else 0
        unread = [*self._prompt, *self.tokens][len(self.prefix.tokens) :]
        tokens = unread + (self.sampler.forced(room) or self._lookup.draft(room))
        return Branch.line(self.prefix, tokens, range(len(unread) - 1, len(tokens)))

    def read(self, branch: Branch, logits: torch.Tensor) -> None:
        """Take tokens as long as they equal the draft's, and one more.

        Args:
            branch: What `branch` returned.
            logits: After each wanted token of the branch, float32 of shape (wanted, vocabulary).
        """
        right, before = branch.wanted[0] + 1, len(self.tokens)
        for token in self.sampler.take(logits):
            self.tokens.append(token)
            self.ended = self._ends(self.tokens)
            if self.ended or right == len(branch.tokens) or branch.tokens[right] != self.tokens[-1]:
                break
            right += 1
        branch.keep(right)
        all_right = right == len(branch.tokens) and len(branch.wanted) > 1
        self._draft_tokens = _LONG_DRAFT_TOKENS if all_right else _DRAFT_TOKENS
        self._lookup.extend(self.tokens[before:])


def generate(prefixes: Prefixes, generations: Sequence[Generation]) -> None:
    """Generate several answers together. Each pass adds at least one token to each of them."""
    active = [generation for generation in generations if not generation.finished]
    while active:
        branches = [generation.branch(len(active), drafts=prefixes.cuts_back) for generation in active]
        for generation, branch, logits in zip(active, branches, prefixes.compute(branches), strict=True):
            generation.read(branch, logits)
        active = [generation for generation in active if not generation.finished]
