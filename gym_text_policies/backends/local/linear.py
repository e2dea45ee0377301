"""Linear layers for inference on a CPU, with weights in the memory layout that oneDNN reads.

Weights of 4 bits were tried (November 2026, torch 2.13, two cores with AVX-512). The embedded model's weights lie on a grid of 4
bits (those of its head, of 8 bits), and the matrix that was tried could be converted to 4 bits without loss. But PyTorch's kernel
for such weights rounds inputs, scales and results to bfloat16. Its float32 version is not vectorised, and takes ten times as long
as a product in float32. As drafts that the exact weights check, passes in 4 bits were 1.2 times as fast as prompt lookup for the
text with the fewest repetitions, and 0.9 times as fast for all texts together.
"""

from __future__ import annotations

import functools
import platform

import torch
from torch import nn

_LAYOUT_TOKENS = 64
"""About the number of tokens in a pass for which oneDNN is to choose a weight's layout."""


@functools.cache
def fast_types() -> frozenset[torch.dtype]:
    """Return the precisions that this CPU multiplies without conversion, by oneDNN: float32, and bfloat16 if the CPU has it.

    oneDNN takes bfloat16 on any CPU with AVX-512, but without AVX512-BF16 or AMX it emulates the products.
    """
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return frozenset()
    supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if platform.machine().lower() in ("x86_64", "amd64"):
        supported = supported and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return frozenset([torch.float32, torch.bfloat16] if supported else [torch.float32])


class FusedLinear(nn.Module):
    """A linear layer for inference, with its weight in the memory layout that oneDNN reads.

    PyTorch's own layer reorders the weight at every call, or multiplies it in its slower layout. For 4 to 20 tokens that takes up
    to twice the time of the product here.

    Args:
        layer: The layer to replace, in one of the `fast_types`.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach(), persistent=False)
        # not a buffer: the layout has no strides, so that moving or copying it as a buffer would fail
        self._weight = (torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _LAYOUT_TOKENS),)

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weight in the usual layout, for models that read it directly."""
        weight: torch.Tensor = self._weight[0].to_dense()
        return weight

    def forward(self, inputs: torch.Tensor, other: torch.Tensor | None = None, then: str = "none") -> torch.Tensor:
        """Return inputs @ weight.T + bias, of shape (…, out_features).

        Args:
            inputs: Of shape (…, in_features), in the weight's precision.
            other: Of the result's shape and precision.
            then: What is done with the result: ``swish``, or with `other` ``add`` or ``mul``.
        """
        if other is None:
            outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight[0], self.bias, then, [], "")
        else:
            outputs = torch.ops.mkldnn._linear_pointwise.binary(inputs, other, self._weight[0], self.bias, then)
        return outputs

    def added(self, states: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Return states + `forward` of the inputs, in float32.

        Args:
            states: Of shape (…, out_features), float32.
            inputs: See `forward`.
        """
        return self.forward(inputs, states, "add") if inputs.dtype == states.dtype else states + self.forward(inputs)


def interleaved(layer: nn.Linear, head_size: int) -> nn.Linear:
    """Return a layer whose outputs alternate between the halves of each head, so that two that rotate together are neighbours."""

    def interleave(rows: torch.Tensor) -> torch.Tensor:
        return rows.reshape(-1, 2, head_size // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)

    return linear(interleave(layer.weight), None if layer.bias is None else interleave(layer.bias))


def stacked(*layers: nn.Linear) -> nn.Linear:
    """Return one layer with the outputs of several."""
    weights: list[torch.Tensor] = [layer.weight for layer in layers]
    biases: list[torch.Tensor] = [layer.bias for layer in layers]
    return linear(torch.cat(weights), None if biases[0] is None else torch.cat(biases))


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Return a layer with these weights, which are not trained."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer
