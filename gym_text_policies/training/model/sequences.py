"""Conversations as trees of tokens, for training.

A prompt has the tokens that the policy sees at play (`prompt_tokens`). An answer is tokenised separately, with the end of turn, and
follows the last token of its prompt, as candidate actions do in ``choose``. The tree contains the common prefix of prompts once. So
the prompts of an append-only conversation are one path of the tree.

A thought stands between a prompt and its answer. It is tokenised separately, too, and so are the markers around it, as the chat
template writes them. The next prompt is what the template makes of the whole conversation. Most templates leave earlier thoughts
out. Then a thought is a branch of the tree.

A `Conversation` is a tree of tokens with decisions. `passes` groups the conversations that go through the model in one pass.
`gym_text_policies.training.model.layouts` turns the conversations of a pass into rows, and runs the model over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from gym_text_policies.backends.local.grammars import call_tokens
from gym_text_policies.backends.local.prefixes import Tree, depths
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.tokens import end_of_turn, prompt_tokens, template_tokens, text_tokens
from gym_text_policies.data.calls import row_calls
from gym_text_policies.data.rows import Example
from gym_text_policies.prompts.tools import called_action
from gym_text_policies.records import Message


class DecisionNodes(NamedTuple):
    """The nodes of one decision in a tree."""

    prompt_end: int
    """Node of the last token before the answers: the prompt's, or the last one that closes the thought."""
    answers: tuple[tuple[tuple[int, int], ...], ...]
    """For each answer its tokens, with the end of turn, as pairs of the node that predicts the token, and the token. The tokens of
    a thought and those around it come first."""


@dataclass
class Conversation:
    """A tree of tokens, with its decisions."""

    tree: Tree = field(default_factory=Tree)
    decisions: list[DecisionNodes] = field(default_factory=list)
    indices: range = range(0)
    """Indices, in the tensors of a batch, of the decisions that have answers; see `number_decisions`."""
    _prompt: list[int] = field(default_factory=list, repr=False, compare=False)
    """Tokens of the last prompt, with which the next one often begins."""
    _prompt_end: int = field(default=-1, repr=False, compare=False)

    @classmethod
    def of(cls, tokenizer: Any, examples: Iterable[Example]) -> Conversation:
        """Return a conversation of prompts with one answer each, as `Row.examples` yields them."""
        conversation = cls()
        for messages, answer, thought, tool in examples:
            conversation.add(tokenizer, messages, [answer], thought=thought, tool=tool)
        return conversation

    def add(
        self, tokenizer: Any, messages: Sequence[Message], answers: Sequence[str], *, thought: str = "", tool: str = ""
    ) -> None:
        """Add a prompt and its answers. Without a thought they stand where the chat template puts an answer without one.

        With a tool the answers are arguments of its calls, and have the tokens of the whole call, as the chat template writes it.

        Raises:
            UsageError: If there is a thought or a tool, and the chat template has none.
        """
        calls = row_calls(tokenizer, tool, think=bool(thought)) if tool else None
        answer_start = calls.answer_start if calls else format_of(tokenizer).answer_start(bool(thought))
        start = self._read(prompt_tokens(tokenizer, messages, answer_start))
        between: list[int] = []
        if thought:
            markers = (template_tokens(tokenizer, text) for text in (answer_start.thought_open, answer_start.thought_close))
            between = [*next(markers), *text_tokens(tokenizer, thought), *next(markers)]
        thinking = [start, *self.tree.grow(start, between)]
        paths = []
        for answer in answers:
            if calls:
                *tokens, end = call_tokens(tokenizer, calls, called_action(answer) or "")
            else:
                tokens, end = text_tokens(tokenizer, answer), end_of_turn(tokenizer)
            path = zip([thinking[-1], *self.tree.grow(thinking[-1], tokens)], [*tokens, end], strict=True)
            paths.append((*zip(thinking, between, strict=False), *path))
        self.decisions.append(DecisionNodes(thinking[-1], tuple(paths)))

    def _read(self, prompt: list[int]) -> int:
        """Add a prompt's tokens, and return the node of the last one."""
        same = len(self._prompt) if prompt[: len(self._prompt)] == self._prompt else 0
        nodes = self.tree.grow(self._prompt_end if same else -1, prompt[same:])
        self._prompt, self._prompt_end = prompt, nodes[-1] if nodes else self._prompt_end
        return self._prompt_end

    @property
    def length(self) -> int:
        """Number of tokens from the beginning to the end of the longest of its texts."""
        return max(depths(self.tree.parents, 0), default=0) + 1

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tree.tokens)

    @property
    def size_after_first_prompt(self) -> int:
        """Number of tokens that do not belong to the first prompt."""
        return self.size - self.decisions[0].prompt_end - 1 if self.decisions else 0


def number_decisions(parts: Iterable[list[Conversation]]) -> list[list[Conversation]]:
    """Set the `indices` of conversations, counting from part to part, and return the parts."""
    numbered = list(parts)
    start = 0
    for conversation in (conversation for part in numbered for conversation in part):
        stop = start + sum(bool(decision.answers) for decision in conversation.decisions)
        conversation.indices = range(start, stop)
        start = stop
    return numbered


def passes(conversations: Iterable[Conversation], tokens: int) -> list[list[Conversation]]:
    """Group conversations, in their order, into passes of the model.

    A pass has as many conversations as fit into this number of tokens, but at least one. What they have in common counts once,
    because a packed row contains it once.
    """
    groups: list[list[Conversation]] = []
    tree = Tree()
    for conversation in conversations:
        tree.graft(conversation.tree)
        if not groups or len(tree.tokens) > tokens:
            groups.append([])
            tree = Tree()
            tree.graft(conversation.tree)
        groups[-1].append(conversation)
    return groups


def stack_padded(tensors: Sequence[torch.Tensor], fill: float = -math.inf) -> torch.Tensor:
    """Return tensors of shapes (n, width), of unequal widths, as one of shape (sum of n, greatest width), padded with `fill`."""
    width = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=fill) for tensor in tensors])
