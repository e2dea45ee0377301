"""The forward pass of a Llama on a CPU, for play: the sums of transformers' own module, in fewer passes over memory.

A layer here is five products of matrices. What follows a product (the activation, the gate, the residual) is done while its result
is still in the CPU's cache; queries, keys and values come out of one product; and the rotation of positions is one multiplication
of complex numbers. Only the rows whose predictions are asked for go through the end of the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding, pad, rms_norm, scaled_dot_product_attention
from transformers import LlamaForCausalLM

from gym_text_policies.backends.local.packed import PackedLinear
from gym_text_policies.backends.local.packing import Part, Parts

_WEIGHTS = ("embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
"""Ends of the names of a Llama's matrices."""
_ROWS = 8
"""The tokens of a pass are padded to a multiple of this, as oneDNN compiles each layer for each number of rows, and keeps that."""


class PackedLlama(nn.Module):
    """A Llama that can only be asked.

    Args:
        model: One in float32 on a CPU; its layers move over here, so that it cannot be used any more.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self._size: int = model.model.layers[0].self_attn.head_dim
        self._key_heads: int = model.config.num_key_value_heads or model.config.num_attention_heads
        self._embedding = model.model.embed_tokens.weight.detach()
        self._angles = model.model.rotary_emb
        self._norm = model.model.norm.weight.detach()
        self._head = PackedLinear(model.lm_head)
        self._layers = nn.ModuleList()
        for place, layer in enumerate(model.model.layers):
            self._layers.append(_Layer(layer, self._size))
            model.model.layers[place] = nn.Identity()  # one layer at a time is in memory twice

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether a model is a Llama whose layers are as the original's."""
        return (
            type(model) is LlamaForCausalLM
            and model.config.hidden_act == "silu"
            and all(type(module) in (nn.Linear, nn.Embedding) for name, module in model.named_modules() if name.endswith(_WEIGHTS))
            and all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in model.parameters())
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: torch.Tensor,
        packed_parts: Parts,
        use_cache: bool = False,
    ) -> Any:
        """Read a packed row, as transformers' own module does inside `packed_attention`.

        Args:
            input_ids: Tokens, of shape (1, tokens).
            position_ids: Their positions, of shape (1, tokens).
            logits_to_keep: The rows after which a prediction is wanted.
            packed_parts: What attends to itself alone.
            use_cache: Not read; the parts keep what they have to.

        Returns:
            An object with `logits` of shape (1, wanted, vocabulary).
        """
        states = embedding(_padded(input_ids[0]), self._embedding)  # (tokens, width)
        cos, sin = self._angles(states[None], position_ids=_padded(position_ids[0])[None])
        turns = torch.complex(*(part[0, :, None, : self._size // 2].contiguous() for part in (cos, sin)))  # (tokens, 1, size / 2)
        layers: list[Any] = list(self._layers)
        wanted = _padded(logits_to_keep)
        for number, layer in enumerate(layers):
            heard = self._attend(number, layer.heads(states, turns), packed_parts.all)
            if layer is layers[-1]:
                states, heard = states[wanted], heard[wanted]
            states = layer.end(states, heard)
        logits = self._head(rms_norm(states, self._norm.shape, self._norm, self.config.rms_norm_eps))
        return SimpleNamespace(logits=logits[None, : len(logits_to_keep)])

    def _attend(self, number: int, heads: torch.Tensor, parts: Sequence[Part]) -> torch.Tensor:
        """Return what each token hears of those that it sees, of shape (tokens, heads * size).

        Args:
            number: The layer's.
            heads: Queries, keys and values, of shape (heads + 2 * key heads, tokens, size).
            parts: What attends to itself alone.
        """
        heard = []
        sizes = [part.size for part in parts]
        *own_heads, padding = torch.split(heads, [*sizes, heads.shape[1] - sum(sizes)], dim=1)
        for part, own in zip(parts, own_heads, strict=True):
            queries, keys, values = own.tensor_split([-2 * self._key_heads, -self._key_heads])
            keys, values = part.extend(number, len(self._layers), keys, values)
            mask = None if part.mask is None else part.mask[: part.size]
            outputs = scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=mask, enable_gqa=True)
            heard.append(outputs[0].transpose(0, 1).flatten(1))
        nothing = padding[: -2 * self._key_heads].transpose(0, 1).flatten(1)
        return torch.cat([*heard, nothing])


def _padded(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers of shape (tokens,) with zeros behind them up to a multiple of `_ROWS`, unless they are fewer than that."""
    return pad(numbers, (0, -len(numbers) % _ROWS)) if len(numbers) > _ROWS else numbers


class _Layer(nn.Module):
    """The weights of one layer.

    Args:
        layer: Of transformers.
        size: Dimension of a head.
    """

    def __init__(self, layer: Any, size: int) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self._size = size
        self._norms = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        self._eps: float = layer.input_layernorm.variance_epsilon
        self._turned = attention.q_proj.out_features + attention.k_proj.out_features
        self._in = PackedLinear(_together(_paired(attention.q_proj, size), _paired(attention.k_proj, size), attention.v_proj))
        self._out, self._gate, self._up, self._down = map(
            PackedLinear, (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def heads(self, states: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return queries, keys and values, of shape (heads + 2 * key heads, tokens, size)."""
        mixed = self._in(rms_norm(states, self._norms[0].shape, self._norms[0], self._eps))
        mixed = mixed.reshape(len(states), -1, self._size // 2, 2)
        pairs = torch.view_as_complex(mixed)
        pairs[:, : self._turned // self._size] *= turns
        heads: torch.Tensor = mixed.flatten(2).transpose(0, 1)
        return heads

    def end(self, states: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
        """Return the states after the layer, of shape (tokens, width)."""
        states = self._out(heard, states, "add")
        normal = rms_norm(states, self._norms[1].shape, self._norms[1], self._eps)
        states = self._down(self._up(normal, self._gate(normal, then="swish"), "mul"), states, "add")
        return states


def _paired(layer: nn.Linear, size: int) -> nn.Linear:
    """Return a layer whose outputs' halves alternate in each head, so that two that turn together are one complex number."""

    def pair(rows: torch.Tensor) -> torch.Tensor:
        return rows.reshape(-1, 2, size // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)

    return _linear(pair(layer.weight), None if layer.bias is None else pair(layer.bias))


def _together(*layers: nn.Linear) -> nn.Linear:
    """Return one layer with the outputs of several."""
    weights: list[torch.Tensor] = [layer.weight for layer in layers]
    biases: list[torch.Tensor] = [layer.bias for layer in layers]
    return _linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases))


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Return a layer of given weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer
