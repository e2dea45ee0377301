"""`TokenTree`: sequences that share prefixes, each token of them computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


class TokenTree:
    """A tree of tokens over the key-value cache of a causal language model.

    Prompts and candidate answers are paths from the root; equal beginnings are one path. `compute` runs the model once over all
    nodes added since the last call, each seeing its ancestors and itself alone (a 4D attention mask) at the position of
    its depth, so a node's logits are those of its path as a plain sequence.

    Args:
        model: A causal language model of transformers, in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.truncate(0)

    def __len__(self) -> int:
        return len(self._parents)

    def truncate(self, size: int) -> None:
        """Forget all nodes but the first `size`."""
        if size == 0:
            from transformers import DynamicCache

            self._parents: list[int] = []
            self._tokens: list[int] = []
            self._depths: list[int] = []
            self._children: dict[tuple[int, int], int] = {}
            self._sees = torch.zeros((0, 0), dtype=torch.bool)  # (nodes, nodes): row sees column
            self._cache = DynamicCache(config=self._model.config)
            self._computed = 0
        elif size < len(self):
            for key in [key for key, node in self._children.items() if node >= size]:
                del self._children[key]
            del self._parents[size:], self._tokens[size:], self._depths[size:]
            if self._computed > size:
                self._cache.crop(size - self._computed)  # a negative number: how many to drop
                self._computed = size
            self._sees = self._sees[:size, :size]

    def match(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens are already a path from the root."""
        node = -1
        for depth, token in enumerate(tokens):
            if (node, token) not in self._children:
                return depth
            node = self._children[node, token]
        return len(tokens)

    def add(self, tokens: Iterable[int], parent: int = -1) -> list[int]:
        """Add a path below `parent` (-1: the root) and return its nodes, those that were there already included."""
        path = []
        for token in tokens:
            node = self._children.get((parent, token))
            if node is None:
                node = len(self)
                self._children[parent, token] = node
                self._parents.append(parent)
                self._tokens.append(token)
                self._depths.append(self._depths[parent] + 1 if parent >= 0 else 0)
            path.append(node)
            parent = node
        return path

    @torch.inference_mode()
    def compute(self, wanted: Sequence[int]) -> torch.Tensor:
        """Run the model over the new nodes.

        Args:
            wanted: New nodes whose logits are asked for.

        Returns:
            Log-probabilities of the token after each wanted node, float32 of shape (len(wanted), vocabulary).
        """
        first, size = self._computed, len(self)
        self._sees = torch.nn.functional.pad(self._sees, (0, size - len(self._sees), 0, size - len(self._sees)))
        for node in range(first, size):
            if self._parents[node] >= 0:
                self._sees[node] = self._sees[self._parents[node]]
            self._sees[node, node] = True
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([self._tokens[first:]], device=device),
            position_ids=torch.tensor([self._depths[first:]], device=device),
            attention_mask=self._sees[None, None, first:].to(device),  # (1, 1, new, nodes)
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=torch.tensor([node - first for node in wanted], device=device),
        )
        self._computed = size
        return torch.log_softmax(output.logits[0].float(), dim=-1).cpu()
