"""The forward pass of a Llama on a CPU, for play: the numbers of transformers' module, in fewer passes over memory.

A layer is five products of matrices. What follows a product (activation, gate, residual) is done while its result is still in the
CPU's cache. One product gives queries, keys and values. The rotation of positions is one multiplication of complex numbers. Only
the rows whose predictions are asked for go through the end of the last layer.

Other models keep their own forward pass, with `FusedLinear` in place of their linear layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding, pad, rms_norm, scaled_dot_product_attention
from transformers import LlamaForCausalLM

from gym_text_policies.backends.local.attention import Segment, Segments

_MATRICES = ("embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
"""Last parts of the names of a Llama's matrices."""
_LAYOUT_TOKENS = 64
"""Tokens of one pass for which oneDNN chooses a weight's layout, about."""
_PADDED_TO = 8
"""The tokens of a pass are padded to a multiple of this: oneDNN compiles, and keeps, each layer once for each number of rows."""


def optimise_for_cpu(model: Any) -> Any:
    """Return a model for inference alone, faster on a CPU with oneDNN; elsewhere the model as it is.

    Args:
        model: A model of transformers in float32. It cannot be used any more: its weights move into what is returned.

    Returns:
        A `FusedLlama` of a plain Llama; another model with its linear layers replaced.
    """
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return model
    with torch.inference_mode():
        if FusedLlama.fits(model):
            return FusedLlama(model)
        for module in list(model.modules()):
            for name, layer in list(module.named_children()):
                if type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
                    setattr(module, name, FusedLinear(layer))
    return model


class FusedLinear(nn.Module):
    """A linear layer for inference, its weight laid out in memory as oneDNN reads it.

    PyTorch reorders a weight at every call, or reads it as it lies. For 4 to 20 tokens that takes up to twice the time of the
    product itself.

    Args:
        layer: The layer to replace.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach(), persistent=False)
        # not a buffer: its layout has no strides, and what moves or copies buffers would fail on it
        self._weight = (torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _LAYOUT_TOKENS),)

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weight in its usual layout, for models that read it themselves."""
        weight: torch.Tensor = self._weight[0].to_dense()
        return weight

    def forward(self, inputs: torch.Tensor, other: torch.Tensor | None = None, then: str = "none") -> torch.Tensor:
        """Return inputs @ weight.T + bias, of shape (…, out_features).

        Args:
            inputs: Of shape (…, in_features).
            other: Of the result's shape.
            then: What is done with the result: ``swish``, or with `other` ``add`` or ``mul``.
        """
        if other is None:
            outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight[0], self.bias, then, [], "")
        else:
            outputs = torch.ops.mkldnn._linear_pointwise.binary(inputs, other, self._weight[0], self.bias, then)
        return outputs


class FusedLlama(nn.Module):
    """A Llama for inference.

    Args:
        model: One in float32 on a CPU. Its layers move over here, so that it cannot be used any more.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self._head_size: int = model.model.layers[0].self_attn.head_dim
        self._key_heads: int = model.config.num_key_value_heads or model.config.num_attention_heads
        self._embedding = model.model.embed_tokens.weight.detach()
        self._angles = model.model.rotary_emb
        self._norm = model.model.norm.weight.detach()
        self._logits = FusedLinear(model.lm_head)
        self._layers = nn.ModuleList()
        for index, layer in enumerate(model.model.layers):
            self._layers.append(_Layer(layer, self._head_size))
            model.model.layers[index] = nn.Identity()  # only one layer at a time is in memory twice

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether a model is a Llama in float32 on a CPU whose layers are transformers' own."""
        return (
            type(model) is LlamaForCausalLM
            and model.config.hidden_act == "silu"
            and all(type(module) in (nn.Linear, nn.Embedding) for name, module in model.named_modules() if name.endswith(_MATRICES))
            and all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in model.parameters())
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        logits_to_keep: torch.Tensor,
        segments: Segments,
        use_cache: bool = False,
    ) -> Any:
        """Read a packed row, as transformers' own module does inside `packed_attention`.

        Args:
            input_ids: Tokens, of shape (1, tokens).
            position_ids: Their positions, of shape (1, tokens).
            logits_to_keep: The rows after which a prediction is wanted.
            segments: Who attends to whom.
            use_cache: Ignored; the segments keep what they have to.

        Returns:
            An object with `logits` of shape (1, wanted, vocabulary).
        """
        states = embedding(_padded(input_ids[0]), self._embedding)  # (tokens, width)
        cos, sin = self._angles(states[None], position_ids=_padded(position_ids[0])[None])
        half = self._head_size // 2
        rotations = torch.complex(*(angles[0, :, None, :half].contiguous() for angles in (cos, sin)))  # (tokens, 1, size / 2)
        layers: list[Any] = list(self._layers)
        wanted = _padded(logits_to_keep)
        for index, layer in enumerate(layers):
            attended = self._attend(index, layer.heads(states, rotations), segments.all)
            if layer is layers[-1]:
                states, attended = states[wanted], attended[wanted]
            states = layer.end(states, attended)
        logits = self._logits(rms_norm(states, self._norm.shape, self._norm, self.config.rms_norm_eps))
        return SimpleNamespace(logits=logits[None, : len(logits_to_keep)])

    def _attend(self, layer: int, heads: torch.Tensor, segments: Sequence[Segment]) -> torch.Tensor:
        """Return the output of each token's attention, of shape (tokens, heads * size).

        Args:
            layer: Index of the layer.
            heads: Queries, keys and values, of shape (heads + 2 * key heads, tokens, size).
            segments: Who attends to whom.
        """
        attended = []
        sizes = [segment.size for segment in segments]
        *own_heads, padding = torch.split(heads, [*sizes, heads.shape[1] - sum(sizes)], dim=1)
        for segment, own in zip(segments, own_heads, strict=True):
            queries, keys, values = own.tensor_split([-2 * self._key_heads, -self._key_heads])
            keys, values = segment.extend(layer, len(self._layers), keys, values)
            mask = segment.mask.within(None)
            mask = None if mask is None else mask[: segment.size]
            output = scaled_dot_product_attention(queries[None], keys[None], values[None], attn_mask=mask, enable_gqa=True)
            attended.append(output[0].transpose(0, 1).flatten(1))
        nothing = padding[: -2 * self._key_heads].transpose(0, 1).flatten(1)
        return torch.cat([*attended, nothing])


def _padded(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers of shape (tokens,), padded with zeros to a multiple of `_PADDED_TO` where they are more than that."""
    return pad(numbers, (0, -len(numbers) % _PADDED_TO)) if len(numbers) > _PADDED_TO else numbers


class _Layer(nn.Module):
    """The weights of one layer.

    Args:
        layer: Of transformers.
        head_size: Dimension of a head.
    """

    def __init__(self, layer: Any, head_size: int) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self._head_size = head_size
        self._norms = layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach()
        self._eps: float = layer.input_layernorm.variance_epsilon
        self._rotated_heads = (attention.q_proj.out_features + attention.k_proj.out_features) // head_size
        self._in = FusedLinear(
            _stacked(_interleaved(attention.q_proj, head_size), _interleaved(attention.k_proj, head_size), attention.v_proj)
        )
        self._out, self._gate, self._up, self._down = map(
            FusedLinear, (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def heads(self, states: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        """Return queries, keys and values, of shape (heads + 2 * key heads, tokens, size)."""
        mixed = self._in(rms_norm(states, self._norms[0].shape, self._norms[0], self._eps))
        mixed = mixed.reshape(len(states), -1, self._head_size // 2, 2)
        pairs = torch.view_as_complex(mixed)
        pairs[:, : self._rotated_heads] *= rotations
        heads: torch.Tensor = mixed.flatten(2).transpose(0, 1)
        return heads

    def end(self, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return the states after the layer, of shape (tokens, width)."""
        states = self._out(attended, states, "add")
        normal = rms_norm(states, self._norms[1].shape, self._norms[1], self._eps)
        states = self._down(self._up(normal, self._gate(normal, then="swish"), "mul"), states, "add")
        return states


def _interleaved(layer: nn.Linear, head_size: int) -> nn.Linear:
    """Return a layer whose outputs alternate between the halves of each head: two that rotate together are neighbours."""

    def interleave(rows: torch.Tensor) -> torch.Tensor:
        return rows.reshape(-1, 2, head_size // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)

    return _linear(interleave(layer.weight), None if layer.bias is None else interleave(layer.bias))


def _stacked(*layers: nn.Linear) -> nn.Linear:
    """Return one layer with the outputs of several."""
    weights: list[torch.Tensor] = [layer.weight for layer in layers]
    biases: list[torch.Tensor] = [layer.bias for layer in layers]
    return _linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases))


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Return a layer with these weights, which are not trained."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer
