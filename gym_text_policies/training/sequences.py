"""What is learnt from, as tokens: a tree for each conversation, and many of them in one row of the model.

The tokens of a prompt are those that the policy sees at play (`prompt_tokens`), and each answer hangs on the last token of its
prompt as a candidate does in ``choose``: tokenised apart, with the end of turn. What prompts begin with alike is read once: the
steps of an append-only conversation make one line, and the first tokens of several conversations one prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gym_text.errors import UsageError
from gym_text_policies.backends.local.attention import Segments, attention_mask, packed_attention
from gym_text_policies.backends.local.tokens import prompt_tokens, text_tokens
from gym_text_policies.backends.local.tree import Tree, depths, visible
from gym_text_policies.records import Message

_BLOCK = 192
"""Tokens of a conversation whose attention is computed at once."""


@dataclass(frozen=True)
class Decided:
    """One decision in a tree."""

    last: int
    """Node of the prompt's last token."""
    answers: tuple[tuple[tuple[int, int], ...], ...]
    """For each answer its tokens, the end of turn included: the node that predicts it, and the token."""


@dataclass
class Reading:
    """A conversation as a tree of tokens, with its decisions."""

    tree: Tree = field(default_factory=Tree)
    decided: list[Decided] = field(default_factory=list)

    @classmethod
    def of(cls, tokenizer: Any, examples: Iterable[tuple[Sequence[Message], str]]) -> Reading:
        """Return a conversation of prompts with one answer each, as `Row.examples` yields them."""
        reading = cls()
        for messages, answer in examples:
            reading.add(tokenizer, messages, [answer])
        return reading

    def add(self, tokenizer: Any, messages: Sequence[Message], answers: Sequence[str]) -> None:
        """Add a prompt and the answers whose probability is asked for."""
        last = self.tree.grow(-1, prompt_tokens(tokenizer, messages))[-1]
        paths = []
        for answer in answers:
            tokens = text_tokens(tokenizer, answer)
            nodes = [last, *self.tree.grow(last, tokens)]
            paths.append(tuple(zip(nodes, [*tokens, tokenizer.eos_token_id], strict=True)))
        self.decided.append(Decided(last, tuple(paths)))

    def check_window(self, window: int) -> None:
        """Raise `UsageError` if it is longer than the model's window."""
        length = max(depths(self.tree.parents, 0), default=0) + 1
        if length > window:
            raise UsageError(
                f"row: expected at most {window} tokens, the model's window; got {length}. Show less history, or leave the row out."
            )

    @property
    def grown(self) -> int:
        """Number of its tokens after the first prompt."""
        return len(self.tree.tokens) - self.decided[0].last - 1 if self.decided else 0

    @property
    def stem(self) -> int:
        """Number of its first nodes that form a line on which no later node hangs but at its end."""
        turns = [parent for node, parent in enumerate(self.tree.parents) if parent != node - 1]
        return min(turns, default=len(self.tree.parents) - 1) + 1


@dataclass
class _Part:
    """Nodes in a packed row of which each sees some of its stem and of this part."""

    size: int
    mask: torch.Tensor | None
    stem: _Part | None = None
    """What it goes on from."""
    columns: torch.Tensor | None = None
    """Which of all nodes up to its own it sees; None: all."""
    _seen: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, init=False, repr=False, compare=False)

    def extend(self, layer: int, layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what it sees of the keys and values of its stem, which is asked before it, and of its own."""
        stem = self.stem._seen if self.stem else None
        self._seen = (torch.cat([stem[0], keys], dim=1), torch.cat([stem[1], values], dim=1)) if stem else (keys, values)
        if self.columns is None:
            return self._seen
        return self._seen[0].index_select(1, self.columns), self._seen[1].index_select(1, self.columns)


@dataclass(frozen=True)
class Packed:
    """Conversations as one row."""

    tokens: list[int]
    positions: list[int]
    parts: list[_Part]
    places: list[list[int]]
    """For each conversation the row of each node."""


def pack(model: Any, readings: Sequence[Reading]) -> Packed:
    """Put conversations into one row; what all of them begin with stands there once."""
    shared = _shared(readings)
    first = readings[0].tree.tokens[:shared]
    stem = _blocks(model, range(-1, shared - 1))
    packed = Packed(list(first), list(range(shared)), list(stem), [])
    for reading in readings:
        start = len(packed.tokens)
        parents = [parent - shared for parent in reading.tree.parents[shared:]]
        packed.tokens.extend(reading.tree.tokens[shared:])
        packed.positions.extend(depths(parents, shared))
        packed.parts.extend(_blocks(model, parents, stem))
        packed.places.append([*range(shared), *range(start, len(packed.tokens))])
    return packed


def _blocks(model: Any, parents: Sequence[int], stem: Sequence[_Part] = ()) -> list[_Part]:
    """Return a tree's nodes in blocks that follow a stem and each other; what no node of a block sees is left out, not masked."""
    known = sum(part.size for part in stem)
    seen = visible(parents, known)
    blocks: list[_Part] = []
    last = stem[-1] if stem else None
    for start in range(0, len(parents), _BLOCK):
        rows = seen[start : start + _BLOCK, : known + start + _BLOCK]
        some = rows.any(dim=0)  # not the answers of earlier decisions
        columns = None if some.all() else some.nonzero()[:, 0].to(model.device)
        last = _Part(len(rows), attention_mask(rows[:, some], model), last, columns)
        blocks.append(last)
    return blocks


def _shared(readings: Sequence[Reading]) -> int:
    """Return how many first tokens all conversations have in common; none of them is a last token of a prompt."""
    if len(readings) < 2:
        return 0
    lines = [reading.tree.tokens[: reading.stem] for reading in readings]
    most = min(min(len(line) for line in lines), *(reading.decided[0].last for reading in readings))
    return next((i for i in range(most) if len({line[i] for line in lines}) > 1), most)


def read(model: Any, packed: Packed, rows: Sequence[int], *, hidden: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the model over a packed row, with gradients where they are on.

    Args:
        model: A causal language model of transformers, with or without an adapter; or one that shares its gradients with other
            processes.
        packed: What to read.
        rows: After which tokens the prediction is wanted.
        hidden: Whether to return the last hidden states as well.

    Returns:
        The log-probabilities of the next token, float32 of shape (rows, vocabulary), and the hidden states after the last layer of
        all tokens, of shape (tokens, width), or None.
    """
    own = _own(model)
    device = own.device
    with packed_attention(own):
        output = model(
            input_ids=torch.tensor([packed.tokens], device=device),
            position_ids=torch.tensor([packed.positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(list(rows), device=device),
            segments=Segments(packed.parts),
            output_hidden_states=hidden,
        )
    return output.logits[0].float().log_softmax(-1), output.hidden_states[-1][0].float() if hidden else None


def answer_losses(model: Any, readings: Sequence[Reading]) -> torch.Tensor:
    """Return -log P of each token of each conversation's first answers, float32 of shape (tokens,)."""
    packed = pack(_own(model), readings)
    targets = [
        (places[node], token)
        for reading, places in zip(readings, packed.places, strict=True)
        for decided in reading.decided
        for node, token in decided.answers[0]
    ]
    logs, _ = read(model, packed, [row for row, _ in targets])
    tokens = torch.tensor([token for _, token in targets], device=logs.device)
    return -logs.gather(1, tokens[:, None])[:, 0]


def _own(model: Any) -> Any:
    """Return the model of this process, without what shares its gradients with other processes."""
    return model.module if isinstance(model, DistributedDataParallel) else model
