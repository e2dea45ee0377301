"""Conversations as input rows of a model, for training: packed into one row if that is exact, else padded on the right.

In a packed row the model reads each token once: prompts share their common prefix, and the answers to a prompt share the prompt. A
mask lets each token attend only to its ancestors in the tree of tokens. Packing is exact for models in which tokens act on each
other in attention alone.

Other models, such as those with recurrent layers, read padded rows: one row for each path through the tree, from the first token of
a conversation to a last token, with padding after it. No token of a causal model attends to the padding. `load_base` tests which
layout a model needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from gym_text_policies.backends.local.cached import padded, paths
from gym_text_policies.backends.local.packed import Mask, Segments, packed_attention
from gym_text_policies.backends.local.prefixes import Tree, depths, spans
from gym_text_policies.training.model.sequences import Conversation

_BLOCK = 192
"""On a CPU, number of tokens of a packed row whose attention is computed at once."""
_GPU_BLOCK = 1024
"""Such a number on a GPU. There the start of a matrix product takes longer than the masked tokens of a larger block."""
_PADDED_TOKENS = 2048
"""Approximate number of tokens of padded rows in one pass of the model."""


def lay_out(model: Any, conversations: Sequence[Conversation]) -> PackedRow | PaddedRows:
    """Return conversations as rows, of which a model of `load_base` computes what it computes for each prompt and answer alone."""
    return PackedRow(model, conversations) if model.packs else PaddedRows(conversations)


def answer_losses(model: Any, conversations: Sequence[Conversation]) -> torch.Tensor:
    """Return -log P of each token of each decision's first answer, float32 of shape (tokens,)."""
    rows = lay_out(model, conversations)
    targets = [
        (offsets[node], token)
        for conversation, offsets in zip(conversations, rows.offsets, strict=True)
        for decision in conversation.decisions
        for node, token in decision.answers[0]
    ]
    log_probs, _ = rows.read(model, [offset for offset, _ in targets])  # (tokens, vocabulary)
    tokens = torch.tensor([token for _, token in targets], device=log_probs.device)
    return -log_probs.gather(1, tokens[:, None])[:, 0]


# ---------------------------------------------------------------- packed


class PackedRow:
    """Conversations as one row of the model, which contains their common prefix once."""

    def __init__(self, model: Any, conversations: Sequence[Conversation]) -> None:
        tree = Tree()
        self.offsets = [tree.graft(conversation.tree) for conversation in conversations]
        """For each conversation the offset in the row of each node of its tree."""
        self.tokens, self._positions = tree.tokens, depths(tree.parents, 0)
        self._blocks = Segments(_blocks(model, tree.parents, self._positions))

    def read(self, model: Any, predicting: Sequence[int], hidden: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the model over the row. The results have gradients, unless ``torch.no_grad`` is on.

        Args:
            model: See `lay_out`.
            predicting: Offsets of the tokens after which the next token's log-probabilities are wanted.
            hidden: Offsets of the tokens whose hidden states after the last layer are wanted.

        Returns:
            The log-probabilities, of shape (predicting, vocabulary), and the hidden states, of shape (hidden, width); both float32.
        """
        device = model.device
        with packed_attention(model):
            output = model(
                input_ids=torch.tensor([self.tokens], device=device),
                position_ids=torch.tensor([self._positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor(list(predicting), device=device),
                segments=self._blocks,
                output_hidden_states=bool(hidden),
            )
        states = output.hidden_states[-1][0][list(hidden)].float() if hidden else torch.empty(0, device=device)
        return output.logits[0].float().log_softmax(-1), states


def _blocks(model: Any, parents: Sequence[int], positions: Sequence[int]) -> list[_Block]:
    """Split a packed row into blocks. A block's mask has columns only for the nodes that some node of the block attends to."""
    tree = torch.tensor([positions, *spans(parents)], device=model.device)  # (3, nodes)
    blocks: list[_Block] = []
    size = _BLOCK if model.device.type == "cpu" else _GPU_BLOCK
    for start in range(0, len(parents), size):
        stop = min(start + size, len(parents))
        needed = [*sorted(_ancestors(parents, range(start, stop))), *range(start, stop)]  # no answers of earlier decisions
        columns = torch.tensor(needed, device=model.device)
        mask = Mask(0, tree.index_select(1, columns), stop - start, 1 + max(positions[start:stop]), model.dtype)
        blocks.append(_Block(stop - start, mask, columns))
    return blocks


def _ancestors(parents: Sequence[int], nodes: range) -> set[int]:
    """Return the ancestors of some nodes that come before all of them."""
    ancestors: set[int] = set()
    for node in nodes:
        parent = parents[node]
        while 0 <= parent < nodes.start and parent not in ancestors:
            ancestors.add(parent)
            parent = parents[parent]
    return ancestors


class _Block(NamedTuple):
    """A run of nodes of a packed row whose attention is computed at once."""

    size: int
    mask: Mask
    columns: torch.Tensor
    """The nodes of the row that the mask has columns for: those of the block and their ancestors."""

    def visible(self, layer: int, num_layers: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and values of the columns."""
        return keys.index_select(1, self.columns), values.index_select(1, self.columns)


# ---------------------------------------------------------------- padded


class PaddedRows:
    """Conversations as rows of equal length: one row for each path from the first token to a last token."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        rows: list[list[int]] = []
        cells: list[dict[int, tuple[int, int]]] = []  # of each conversation: node -> row, column
        for conversation in conversations:
            cells.append({})
            for path in paths(conversation.tree.parents):
                for column, node in enumerate(path):
                    cells[-1].setdefault(node, (len(rows), column))
                rows.append([conversation.tree.tokens[node] for node in path])
        self.tokens = padded(rows)
        size = len(self.tokens[0])
        self.offsets = [[row * size + column for _, (row, column) in sorted(of_nodes.items())] for of_nodes in cells]
        """For each conversation the offset of each node of its tree: its row times the length of a row, plus its column."""

    def read(self, model: Any, predicting: Sequence[int], hidden: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the model over the rows. Arguments and result are those of `PackedRow.read`.

        Many rows are read in parts, and for the gradients the model reads each part again. So the memory holds only one part.
        """
        size = len(self.tokens[0])
        rows_per_part = max(1, _PADDED_TOKENS // size)
        log_probs: dict[int, torch.Tensor] = {}
        states: dict[int, torch.Tensor] = {}
        for start in range(0, len(self.tokens), rows_per_part):
            rows = self.tokens[start : start + rows_per_part]
            part = range(start * size, (start + len(rows)) * size)
            wanted, wanted_hidden = ([offset for offset in dict.fromkeys(all_) if offset in part] for all_ in (predicting, hidden))
            cells, hidden_cells = ([divmod(offset - part.start, size) for offset in some] for some in (wanted, wanted_hidden))
            run = partial(_run, model, rows, cells, hidden_cells)
            in_parts = len(rows) < len(self.tokens) and torch.is_grad_enabled()
            part_log_probs, part_states = checkpoint(run, use_reentrant=False) if in_parts else run()
            log_probs |= zip(wanted, part_log_probs, strict=True)
            states |= zip(wanted_hidden, part_states, strict=True)
        return (
            torch.stack([log_probs[offset] for offset in predicting]),
            torch.stack([states[offset] for offset in hidden]) if hidden else torch.empty(0, device=model.device),
        )


def _run(
    model: Any, rows: Sequence[Sequence[int]], predicting: Sequence[tuple[int, int]], hidden: Sequence[tuple[int, int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the model over rows of equal length; `predicting` and `hidden` are rows and columns. See `PackedRow.read`."""
    device = model.device
    columns = sorted({column for _, column in predicting})
    options: dict[str, Any] = {}
    if "logits_to_keep" in inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters:
        options["logits_to_keep"] = torch.tensor(columns, device=device)
    output = model(input_ids=torch.tensor(rows, device=device), use_cache=False, output_hidden_states=bool(hidden), **options)
    logit_columns = [columns.index(column) if options else column for _, column in predicting]
    log_probs = output.logits[[row for row, _ in predicting], logit_columns].float().log_softmax(-1)
    if not hidden:
        return log_probs, log_probs[:0]
    states = output.hidden_states[-1][[row for row, _ in hidden], [column for _, column in hidden]].float()
    return log_probs, states
