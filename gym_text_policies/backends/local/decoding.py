"""From logits to the tokens of a text.

Texts are generated with prompt lookup. A forward pass also reads a draft of the next tokens: those that followed the last time that
the latest tokens occurred. A pass of a few tokens costs hardly more than one of a single token, and each drafted token that equals
the model's own choice saves a pass. Other drafted tokens are thrown away. The answer is the same, up to rounding. The idea is
Apoorv Saxena's "prompt lookup decoding" (2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from gym_text_policies.backends.local.prefixes import Branch, Prefix, Prefixes
from gym_text_policies.backends.local.sampling import Sampler

_DRAFT_TOKENS = 7
"""Drafted tokens in one pass, of all answers together. On a CPU a pass of eight tokens costs hardly more than one of a single
token."""
_LONGEST_MATCH = 3
"""Most tokens that are compared to find a draft."""
_REMEMBERED = 20_000
"""About the most tokens of earlier answers that are kept."""


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
        if len(self._tokens) > _REMEMBERED:
            self._tokens, self._followed_at = [], {}
        self.extend([*prompt[-_LONGEST_MATCH:], *answer])


Ends = Callable[[list[int]], bool]
"""Whether an answer, or a thought, ends with the last of these tokens. It is asked after each token."""


@dataclass(eq=False)
class Generation:
    """One answer, or a thought, while it is generated."""

    prompt: Sequence[int]
    prefix: Prefix
    """The part of the prompt and the tokens that the model has read, at most all but the last token."""
    sampler: Sampler
    earlier: PromptLookup
    """Answers to other prompts."""
    ends: Ends
    max_tokens: int
    tokens: list[int] = field(default_factory=list)
    """The tokens generated so far."""

    def __post_init__(self) -> None:
        self.ended = bool(self.tokens) and self.ends(self.tokens)
        """Whether the model itself ended the answer, not the limit."""
        self._lookup = PromptLookup([*self.prompt, *self.tokens], self.earlier)

    @property
    def finished(self) -> bool:
        """Whether the answer is complete or at its limit."""
        return self.ended or len(self.tokens) >= self.max_tokens

    def branch(self, answers: int, *, drafts: bool = True) -> Branch:
        """Return what the next pass reads: the tokens that the model has not read, and a draft of those that follow.

        The answers in the pass, of which there are so many, share the room for drafts.
        """
        room = min(_DRAFT_TOKENS // answers, self.max_tokens - len(self.tokens) - 1) if drafts else 0
        unread = [*self.prompt, *self.tokens][len(self.prefix.tokens) :]
        tokens = unread + (self.sampler.forced(room) or self._lookup.draft(room))
        return Branch.line(self.prefix, tokens, range(len(unread) - 1, len(tokens)))

    def read(self, branch: Branch, logits: torch.Tensor) -> None:
        """Take tokens as long as they equal the draft's, and one more; `logits` are those of the branch's wanted tokens."""
        right, before = branch.wanted[0] + 1, len(self.tokens)
        for token in self.sampler.take(logits):
            self.tokens.append(token)
            self.ended = self.ends(self.tokens)
            if self.ended or right == len(branch.tokens) or branch.tokens[right] != self.tokens[-1]:
                break
            right += 1
        branch.keep(right)
        self._lookup.extend(self.tokens[before:])


def generate(prefixes: Prefixes, generations: Sequence[Generation]) -> None:
    """Generate several answers together. Each pass adds at least one token to each of them."""
    active = [generation for generation in generations if not generation.finished]
    while active:
        branches = [generation.branch(len(active), drafts=prefixes.cuts_back) for generation in active]
        for generation, branch, logits in zip(active, branches, prefixes.compute(branches), strict=True):
            generation.read(branch, logits)
        active = [generation for generation in active if not generation.finished]
