"""The forward pass of a Llama on a CPU, for play: the numbers of transformers' module, with fewer passes over memory.

With a model in bfloat16, products and attention are in bfloat16; states between layers, norms, positions and logits are in float32.

A layer is five matrix products. The operation after a product (activation, gate, residual) is applied while the result is still in
the CPU's cache. One product computes queries, keys and values. The rotation of positions is one multiplication of complex numbers.
The end of the last layer is computed only for the tokens whose predictions are needed.

Other models keep their own forward pass, with `FusedLinear` in place of their linear layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding, pad, scaled_dot_product_attention
from transformers import LlamaForCausalLM

from gym_text_policies.backends.local.attention import Mask, Segments
from gym_text_policies.backends.local.linear import FusedLinear, fast_types, interleaved, linear, stacked
from gym_text_policies.backends.local.packed import BranchSegment

_MATRICES = ("embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
"""Last parts of the names of a Llama's matrices."""
_PADDED_TO = 8
"""The number of tokens in a pass is padded to a multiple of this, as oneDNN compiles and keeps each layer for each number of
rows."""
_BY_PRODUCTS = 12
"""Least number of new tokens for which attention is computed by oneDNN as product, softmax, product. PyTorch's own takes twice as
long for so many."""


def optimise_for_cpu(model: Any) -> Any:
    """Return a model for inference alone, faster on a CPU with oneDNN; elsewhere the model as it is.

    Args:
        model: A model of transformers in evaluation mode. The caller cannot use it afterwards: its weights move to the result.

    Returns:
        A `FusedLlama` if the model is a plain Llama; else the model with its linear layers replaced.
    """
    with torch.inference_mode():
        if FusedLlama.fits(model):
            return FusedLlama(model)
        for module in list(model.modules()):
            for name, layer in list(module.named_children()):
                if type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype in fast_types():
                    setattr(module, name, FusedLinear(layer))
    return model


class FusedLlama(nn.Module):
    """A Llama for inference.

    Args:
        model: A Llama on a CPU, in one of the `fast_types`. Its layers move over, so that the caller cannot use it afterwards.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self._head_size: int = model.model.layers[0].self_attn.head_dim
        self._key_heads: int = model.config.num_key_value_heads or model.config.num_attention_heads
        self._embedding = model.model.embed_tokens.weight.detach()
        self._angles = model.model.rotary_emb
        # norm and logits in float32: the 8 bits of bfloat16 would round probabilities by several percent
        self._norm, head = model.model.norm.weight.detach().float(), model.lm_head
        self._logits = FusedLinear(linear(head.weight.float(), None if head.bias is None else head.bias.float()))
        self._layers = nn.ModuleList()
        for index, layer in enumerate(model.model.layers):
            self._layers.append(_Layer(layer, self._head_size))
            model.model.layers[index] = nn.Identity()  # so that only one layer at a time is in memory twice

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether a model is a Llama with transformers' own layers, on a CPU that multiplies its precision."""
        types = {weight.dtype for weight in model.parameters()}
        return (
            type(model) is LlamaForCausalLM
            and model.config.hidden_act == "silu"
            and all(type(module) in (nn.Linear, nn.Embedding) for name, module in model.named_modules() if name.endswith(_MATRICES))
            and len(types) == 1
            and types <= fast_types()
            and all(weight.device.type == "cpu" for weight in model.parameters())
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
            segments: Which tokens attend to which.
            use_cache: Ignored: the segments keep keys and values.

        Returns:
            An object with `logits` of shape (1, wanted, vocabulary).
        """
        states = embedding(_padded(input_ids[0]), self._embedding).float()  # (tokens, width)
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
        logits = self._logits(_normalised(states, self._norm, self.config.rms_norm_eps))
        return SimpleNamespace(logits=logits[None, : len(logits_to_keep)])

    def _attend(self, layer: int, heads: torch.Tensor, segments: Sequence[BranchSegment]) -> torch.Tensor:
        """Return the output of each token's attention, of shape (tokens, heads * size).

        Args:
            layer: Index of the layer.
            heads: Queries, keys and values, of shape (heads + 2 * key heads, tokens, size).
            segments: Which tokens attend to which.
        """
        attended = []
        sizes = [segment.size for segment in segments]
        *own_heads, padding = torch.split(heads, [*sizes, heads.shape[1] - sum(sizes)], dim=1)
        for segment, of_segment in zip(segments, own_heads, strict=True):
            queries, keys, values = of_segment.tensor_split([-2 * self._key_heads, -self._key_heads])
            keys, values = segment.append(layer, len(self._layers), keys, values)
            attended.append(_attended(queries, keys, values, segment.mask))
        nothing = padding[: -2 * self._key_heads].transpose(0, 1).flatten(1)
        return torch.cat([*attended, nothing])


def _attended(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return the output of a segment's attention, of shape (new, heads * size).

    Args:
        queries: Of shape (heads, new, size).
        keys: Of shape (key heads, room, size). Behind those of the mask's tokens there may be others, which have no effect.
        values: Likewise.
        mask: Which tokens attend to which.
    """
    heads, new, size = queries.shape
    repeats = heads // len(keys)  # query heads for each key head
    if new < _BY_PRODUCTS:
        together = queries.reshape(1, len(keys), -1, size)
        keys, values = keys[:, : mask.width], values[:, : mask.width]
        output = scaled_dot_product_attention(together, keys[None], values[None], attn_mask=mask.within(None, repeats))
        return output.reshape(heads, new, size).transpose(0, 1).flatten(1)
    product, output = torch.ops.mkldnn._linear_pointwise, queries.new_empty(len(keys), repeats, new, size)
    blocks = (torch.split(states, mask.block_size, dim=2) for states in ((queries * size**-0.5).reshape(output.shape), output))
    for scaled, result, tail in zip(*blocks, mask.tails(repeats, keys.shape[1]), strict=True):
        width = mask.known + tail.shape[1]
        for head, (block, key, value) in enumerate(zip(scaled.flatten(1, 2), keys, values, strict=True)):
            scores = product(block, key[:width], None, "none", [], "")
            scores[:, mask.known :] += tail
            weights = torch.softmax(scores, -1, out=scores)
            result[head] = product(weights, value[:width].T, None, "none", [], "").reshape(repeats, -1, size)
    return output.reshape(heads, new, size).transpose(0, 1).flatten(1)


def _normalised(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return states divided by their root mean square, times a weight, in the weight's precision.

    PyTorch's own `rms_norm` takes ten times as long on a CPU.

    Args:
        states: Of shape (tokens, width), float32.
        weight: Of shape (width,).
        eps: Added to the mean square.
    """
    sizes = torch.linalg.vector_norm(states, dim=-1, keepdim=True)  # (tokens, 1)
    scales = torch.add(eps, sizes.square_(), alpha=1 / states.shape[1]).rsqrt_()
    return (states * scales).mul_(weight).to(weight.dtype)


def _padded(numbers: torch.Tensor) -> torch.Tensor:
    """Return numbers of shape (tokens,). If there are more than `_PADDED_TO`, they are padded with zeros to a multiple of it."""
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
            stacked(interleaved(attention.q_proj, head_size), interleaved(attention.k_proj, head_size), attention.v_proj)
        )
        self._out, self._gate, self._up, self._down = map(
            FusedLinear, (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )

    def heads(self, states: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        """Return queries, keys and values, of shape (heads + 2 * key heads, tokens, size)."""
        mixed = self._in(_normalised(states, self._norms[0], self._eps))
        dtype = mixed.dtype
        mixed = mixed.float().reshape(len(states), -1, self._head_size // 2, 2)
        pairs = torch.view_as_complex(mixed)
        pairs[:, : self._rotated_heads] *= rotations
        heads: torch.Tensor = mixed.flatten(2).to(dtype).transpose(0, 1)
        return heads

    def end(self, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return the states after the layer, of shape (tokens, width)."""
        states = self._out.added(states, attended)
        normal = _normalised(states, self._norms[1], self._eps)
        return self._down.added(states, self._up(normal, self._gate(normal, then="swish"), "mul"))
