"""Conversations as tokens for training: each as a tree, and several packed into one row of the model.

A prompt's tokens are those that the policy sees at play (`prompt_tokens`). An answer is tokenised apart, with the end of turn, and
follows the last token of its prompt, as candidates do in ``choose``. Tokens that prompts have in common are read once. So the steps
of an append-only conversation form one line, and the common beginning of several conversations is one shared prefix of their row.

From small to large: a `Conversation` is a tree of tokens with decisions; a `Segment` ties one to its decisions' places in a batch;
`passes` groups segments that go through the model at once; `pack` lays the conversations of a pass into one row; `forward` runs the
model over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from gym_text.errors import UsageError
from gym_text_policies.backends.local.attention import Mask, Segments, packed_attention
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.tree import Tree, depths, spans
from gym_text_policies.records import Message

_BLOCK = 192
"""Tokens of a conversation whose attention is computed at once."""
_GPU_BLOCK = 1024
"""The same where starting a product takes longer than what larger ones waste on masked tokens."""

# ---------------------------------------------------------------- conversations


class DecisionNodes(NamedTuple):
    """Where one decision is in a tree."""

    prompt_end: int
    """Node of the prompt's last token."""
    answers: tuple[tuple[tuple[int, int], ...], ...]
    """For each answer its tokens, the end of turn included, as pairs: the node that predicts the token, and the token."""


@dataclass
class Conversation:
    """A tree of tokens, with its decisions."""

    tree: Tree = field(default_factory=Tree)
    decisions: list[DecisionNodes] = field(default_factory=list)

    @classmethod
    def of(cls, tokenizer: Any, examples: Iterable[tuple[Sequence[Message], str]]) -> Conversation:
        """Return a conversation of prompts with one answer each, as `Row.examples` yields them."""
        conversation = cls()
        for messages, answer in examples:
            conversation.add(tokenizer, messages, [answer])
        return conversation

    def add(self, tokenizer: Any, messages: Sequence[Message], answers: Sequence[str]) -> None:
        """Add a prompt and its answers."""
        prompt_end = self.tree.grow(-1, prompt_tokens(tokenizer, messages))[-1]
        paths = []
        for answer in answers:
            tokens = text_tokens(tokenizer, answer)
            nodes = [prompt_end, *self.tree.grow(prompt_end, tokens)]
            paths.append(tuple(zip(nodes, [*tokens, tokenizer.eos_token_id], strict=True)))
        self.decisions.append(DecisionNodes(prompt_end, tuple(paths)))

    def check_window(self, window: int) -> None:
        """Raise `UsageError` if the conversation is longer than the model's window."""
        length = max(depths(self.tree.parents, 0), default=0) + 1
        if length > window:
            raise UsageError(
                f"row: expected at most {window} tokens, the model's window; got {length}. Show less history, or leave the row out."
            )

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tree.tokens)

    @property
    def size_after_first_prompt(self) -> int:
        """Number of tokens that do not belong to the first prompt."""
        return self.size - self.decisions[0].prompt_end - 1 if self.decisions else 0

    @property
    def stem(self) -> int:
        """Length of the unbranched prefix, in tokens."""
        branches = [parent for node, parent in enumerate(self.tree.parents) if parent != node - 1]
        return min(branches, default=self.size - 1) + 1


class Segment(NamedTuple):
    """Decisions of one episode that are read together."""

    conversation: Conversation
    rows: range
    """The rows of these decisions in the tensors of a batch."""


def segments_of(episodes: Iterable[Sequence[Conversation]]) -> list[list[Segment]]:
    """Return the segments of each episode; decisions with answers are numbered through all episodes."""
    segments: list[list[Segment]] = []
    start = 0
    for conversations in episodes:
        segments.append([])
        for conversation in conversations:
            stop = start + sum(bool(decision.answers) for decision in conversation.decisions)
            segments[-1].append(Segment(conversation, range(start, stop)))
            start = stop
    return segments


def passes(segments: Iterable[Segment], tokens: int) -> list[list[Segment]]:
    """Group segments for the model, in their order: as many as fit into this number of tokens together, but at least one."""
    groups: list[list[Segment]] = []
    room = 0
    for segment in segments:
        if room < segment.conversation.size:
            groups.append([])
            room = tokens
        groups[-1].append(segment)
        room -= segment.conversation.size
    return groups


def stack_padded(tensors: Sequence[torch.Tensor], fill: float = -math.inf) -> torch.Tensor:
    """Return tensors of shapes (n, width), of unequal widths, as one of shape (sum of n, greatest width), padded with `fill`."""
    width = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]), value=fill) for tensor in tensors])


# ---------------------------------------------------------------- one row for the model


@dataclass
class _Block:
    """Nodes that follow each other in a packed row; they attend to nodes of their stem and to each other."""

    size: int
    mask: Mask
    stem: _Block | None = None
    """The block that it continues."""
    columns: torch.Tensor | None = None
    """Which of the nodes before its end it attends to; None: all."""
    _states: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, init=False, repr=False, compare=False)

    def extend(self, layer: int, layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the visible keys and values: the stem's, then its own. The stem runs first."""
        stem = self.stem._states if self.stem else None
        self._states = (torch.cat([stem[0], keys], dim=1), torch.cat([stem[1], values], dim=1)) if stem else (keys, values)
        if self.columns is None:
            return self._states
        return self._states[0].index_select(1, self.columns), self._states[1].index_select(1, self.columns)


@dataclass(frozen=True)
class PackedRow:
    """Conversations as one row of the model."""

    tokens: list[int]
    positions: list[int]
    blocks: list[_Block]
    places: list[list[int]]
    """For each conversation the place of each of its nodes in the row."""


def pack(model: Any, conversations: Sequence[Conversation]) -> PackedRow:
    """Lay conversations into one row; their common beginning stands there once."""
    shared = _shared_prefix(conversations)
    prefix = conversations[0].tree.tokens[:shared]
    stem = _blocks(model, range(-1, shared - 1))
    row = PackedRow(list(prefix), list(range(shared)), list(stem), [])
    for conversation in conversations:
        start = len(row.tokens)
        parents = [parent - shared for parent in conversation.tree.parents[shared:]]
        row.tokens.extend(conversation.tree.tokens[shared:])
        row.positions.extend(depths(parents, shared))
        row.blocks.extend(_blocks(model, parents, stem))
        row.places.append([*range(shared), *range(start, len(row.tokens))])
    return row


def _blocks(model: Any, parents: Sequence[int], stem: Sequence[_Block] = ()) -> list[_Block]:
    """Split a tree that follows a stem into blocks; nodes that no node of a block attends to are left out, not masked."""
    known = sum(block.size for block in stem)
    positions = depths(parents, known)
    tree = torch.tensor([positions, *spans(parents)], device=model.device)  # (3, nodes)
    blocks: list[_Block] = []
    last = stem[-1] if stem else None
    size = _BLOCK if model.device.type == "cpu" else _GPU_BLOCK
    for start in range(0, len(parents), size):
        stop = min(start + size, len(parents))
        needed = [*sorted(_followed(parents, range(start, stop))), *range(start, stop)]  # answers of earlier decisions are not
        columns, own = None, tree[:, :stop]
        if len(needed) < stop:
            columns = torch.tensor([*range(known), *(known + node for node in needed)], device=model.device)
            own = tree.index_select(1, columns[known:] - known)
        mask = Mask(known, own, stop - start, 1 + max(positions[start:stop]), model.dtype)
        last = _Block(stop - start, mask, last, columns)
        blocks.append(last)
    return blocks


def _followed(parents: Sequence[int], nodes: range) -> set[int]:
    """Return the nodes before `nodes` that one of these follows, in one step or more."""
    found: set[int] = set()
    for node in nodes:
        parent = parents[node]
        while 0 <= parent < nodes.start and parent not in found:
            found.add(parent)
            parent = parents[parent]
    return found


def _shared_prefix(conversations: Sequence[Conversation]) -> int:
    """Return how many first tokens all conversations have in common, without the last token of any prompt."""
    if len(conversations) < 2:
        return 0
    stems = [conversation.tree.tokens[: conversation.stem] for conversation in conversations]
    limit = min(min(len(stem) for stem in stems), *(conversation.decisions[0].prompt_end for conversation in conversations))
    return next((i for i in range(limit) if len({stem[i] for stem in stems}) > 1), limit)


def forward(model: Any, row: PackedRow, places: Sequence[int], *, hidden: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the model over a packed row, with gradients where they are on.

    Args:
        model: A causal language model of transformers, with or without an adapter, possibly in `DistributedDataParallel`.
        row: What to read.
        places: Tokens of the row after which the next token's log-probabilities are wanted.
        hidden: Whether to return the last hidden states as well.

    Returns:
        The log-probabilities, float32 of shape (places, vocabulary), and the hidden states of all tokens after the last layer,
        float32 of shape (tokens, width), or None.
    """
    own = _own(model)
    device = own.device
    with packed_attention(own):
        output = model(
            input_ids=torch.tensor([row.tokens], device=device),
            position_ids=torch.tensor([row.positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(list(places), device=device),
            segments=Segments(row.blocks),
            output_hidden_states=hidden,
        )
    return output.logits[0].float().log_softmax(-1), output.hidden_states[-1][0].float() if hidden else None


def answer_losses(model: Any, conversations: Sequence[Conversation]) -> torch.Tensor:
    """Return -log P of each token of each decision's first answer, float32 of shape (tokens,)."""
    row = pack(_own(model), conversations)
    targets = [
        (places[node], token)
        for conversation, places in zip(conversations, row.places, strict=True)
        for decision in conversation.decisions
        for node, token in decision.answers[0]
    ]
    log_probs, _ = forward(model, row, [place for place, _ in targets])  # (tokens, vocabulary)
    tokens = torch.tensor([token for _, token in targets], device=log_probs.device)
    return -log_probs.gather(1, tokens[:, None])[:, 0]


def _own(model: Any) -> Any:
    """Return the model itself, out of `DistributedDataParallel`."""
    return model.module if isinstance(model, DistributedDataParallel) else model
