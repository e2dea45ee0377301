"""Conversations as rows of a model, for training: packed into one where that is exact, else padded on the right.

Packed, each token is read once: what prompts have in common, and all answers to a prompt, share their beginning. That is right for
models whose tokens meet in attention alone. For others each path from the first token of a conversation to a last one is a row of
its own, and the rest of the row is filled up: no token of a causal model sees what comes later. `load_base` finds out which it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from gym_text_policies.backends.local.attention import Mask, Segments, packed_attention
from gym_text_policies.backends.local.tree import Tree, depths, padded, paths, spans
from gym_text_policies.training.model.sequences import Conversation

_BLOCK = 192
"""Tokens of a conversation whose attention is computed at once."""
_GPU_BLOCK = 1024
"""The same where starting a product takes longer than what larger ones waste on masked tokens."""
_PADDED_TOKENS = 2048
"""Tokens of padded rows that go through the model at once, about."""


def lay_out(model: Any, conversations: Sequence[Conversation]) -> PackedRow | PaddedRows:
    """Return conversations as rows that the model reads as its plain forward pass would.

    Args:
        model: What `load_base` returns, with or without an adapter, possibly in `DistributedDataParallel`.
        conversations: What to read.
    """
    own = _own(model)
    return pack(own, conversations) if own.packs else pad(conversations)


def answer_losses(model: Any, conversations: Sequence[Conversation]) -> torch.Tensor:
    """Return -log P of each token of each decision's first answer, float32 of shape (tokens,)."""
    rows = lay_out(model, conversations)
    targets = [
        (places[node], token)
        for conversation, places in zip(conversations, rows.places, strict=True)
        for decision in conversation.decisions
        for node, token in decision.answers[0]
    ]
    log_probs, _ = rows.read(model, [place for place, _ in targets])  # (tokens, vocabulary)
    tokens = torch.tensor([token for _, token in targets], device=log_probs.device)
    return -log_probs.gather(1, tokens[:, None])[:, 0]


def _own(model: Any) -> Any:
    """Return the model itself, out of `DistributedDataParallel`."""
    return model.module if isinstance(model, DistributedDataParallel) else model


# ---------------------------------------------------------------- packed


@dataclass(frozen=True)
class PackedRow:
    """Conversations as one row of the model."""

    tokens: list[int]
    positions: list[int]
    blocks: list[_Block]
    places: list[list[int]]
    """For each conversation the place of each of its nodes in the row."""

    def read(self, model: Any, predicting: Sequence[int], hidden: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the model over the row, with gradients where they are on.

        Args:
            model: See `lay_out`.
            predicting: Places after which the next token's log-probabilities are wanted.
            hidden: Places whose hidden states after the last layer are wanted.

        Returns:
            The log-probabilities, of shape (predicting, vocabulary), and the hidden states, of shape (hidden, width); both float32.
        """
        own = _own(model)
        device = own.device
        with packed_attention(own):
            output = model(
                input_ids=torch.tensor([self.tokens], device=device),
                position_ids=torch.tensor([self.positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor(list(predicting), device=device),
                segments=_Blocks(self.blocks),
                output_hidden_states=bool(hidden),
            )
        states = output.hidden_states[-1][0][list(hidden)].float() if hidden else torch.empty(0, device=device)
        return output.logits[0].float().log_softmax(-1), states


def pack(model: Any, conversations: Sequence[Conversation]) -> PackedRow:
    """Lay conversations into one row; what they have in common, from their first token on, stands there once."""
    tree = Tree()
    places = [tree.graft(conversation.tree) for conversation in conversations]
    return PackedRow(tree.tokens, depths(tree.parents, 0), _blocks(model, tree.parents), places)


def _blocks(model: Any, parents: Sequence[int]) -> list[_Block]:
    """Split a row, a tree, into blocks; nodes that no node of a block attends to are left out, not masked."""
    positions = depths(parents, 0)
    tree = torch.tensor([positions, *spans(parents)], device=model.device)  # (3, nodes)
    blocks: list[_Block] = []
    size = _BLOCK if model.device.type == "cpu" else _GPU_BLOCK
    for start in range(0, len(parents), size):
        stop = min(start + size, len(parents))
        needed = [*sorted(_followed(parents, range(start, stop))), *range(start, stop)]  # answers of earlier decisions are not
        columns = torch.tensor(needed, device=model.device)
        mask = Mask(0, tree.index_select(1, columns), stop - start, 1 + max(positions[start:stop]), model.dtype)
        blocks.append(_Block(stop - start, mask, columns))
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


class _Block(NamedTuple):
    """Nodes that follow each other in a packed row."""

    size: int
    mask: Mask
    columns: torch.Tensor
    """The nodes of the row that the mask has columns for: its own, and those before it that they follow."""


class _Blocks(Segments):
    """The blocks of a packed row: all keys of the row are there at once."""

    def visible(
        self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the keys and values of each block's columns."""
        for block in self.all:
            yield keys.index_select(1, block.columns), values.index_select(1, block.columns)


# ---------------------------------------------------------------- padded


@dataclass(frozen=True)
class PaddedRows:
    """Conversations as rows of equal length, one for each path from a first token to a last one."""

    tokens: list[list[int]]
    places: list[list[int]]
    """For each conversation the place of each of its nodes: its row times the length of a row, plus its column."""

    def read(self, model: Any, predicting: Sequence[int], hidden: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the model over the rows; as `PackedRow.read`.

        Where they are many they are read in parts, and read once more for their gradients: only one part is held in memory.
        """
        size = len(self.tokens[0])
        together = max(1, _PADDED_TOKENS // size)
        in_parts = len(self.tokens) > together and not isinstance(model, DistributedDataParallel)  # which takes one pass for a step
        parts = range(0, len(self.tokens), together if in_parts else len(self.tokens))
        log_probs, states, read, shown = [], [], [], []
        for start in parts:
            rows = self.tokens[start : start + parts.step]
            of_part = range(start * size, (start + len(rows)) * size)
            own, own_hidden = ([place for place in dict.fromkeys(places) if place in of_part] for places in (predicting, hidden))
            run = partial(
                _run, model, rows, *([divmod(place - of_part.start, size) for place in some] for some in (own, own_hidden))
            )
            found = checkpoint(run, use_reentrant=False) if in_parts and torch.is_grad_enabled() else run()
            log_probs.append(found[0])
            states.append(found[1])
            read += own
            shown += own_hidden
        order, order_hidden = ({place: row for row, place in enumerate(some)} for some in (read, shown))
        return (
            torch.cat(log_probs)[[order[place] for place in predicting]],
            torch.cat(states)[[order_hidden[place] for place in hidden]] if hidden else states[0],
        )


def pad(conversations: Sequence[Conversation]) -> PaddedRows:
    """Lay conversations into rows of equal length."""
    rows: list[list[int]] = []
    found: list[dict[int, tuple[int, int]]] = []  # of each conversation: node -> row, column
    for conversation in conversations:
        found.append({})
        for path in paths(conversation.tree.parents):
            for column, node in enumerate(path):
                found[-1].setdefault(node, (len(rows), column))
            rows.append([conversation.tree.tokens[node] for node in path])
    size = max(map(len, rows))
    places = [[row * size + column for _, (row, column) in sorted(nodes.items())] for nodes in found]
    return PaddedRows(padded(rows), places)


def _run(
    model: Any, rows: Sequence[Sequence[int]], predicting: Sequence[tuple[int, int]], hidden: Sequence[tuple[int, int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the model over rows of equal length; `predicting` and `hidden` are rows and columns. Returns as `PackedRow.read`."""
    own = _own(model)
    device = own.device
    columns = sorted({column for _, column in predicting})
    kept: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(getattr(own, "get_base_model", lambda: own)().forward).parameters:
        kept["logits_to_keep"] = torch.tensor(columns, device=device)
    output = model(input_ids=torch.tensor(rows, device=device), use_cache=False, output_hidden_states=bool(hidden), **kept)
    at = [columns.index(column) if kept else column for _, column in predicting]
    log_probs = output.logits[[row for row, _ in predicting], at].float().log_softmax(-1)
    if not hidden:
        return log_probs, torch.empty(0, device=device)
    states = output.hidden_states[-1][[row for row, _ in hidden], [column for _, column in hidden]].float()
    return log_probs, states
