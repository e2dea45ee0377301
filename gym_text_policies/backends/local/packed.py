"""Linear layers whose weights lie in memory as oneDNN reads them, on a CPU: the same sums, sooner for a few tokens.

PyTorch reorders a weight at every call, or reads it as it lies, which for 4 to 20 tokens takes up to twice the time of the sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_TOKENS = 64
"""Tokens of one pass for which the layout is chosen, about."""


class PackedLinear(nn.Module):
    """A linear layer that cannot be trained.

    Args:
        layer: The layer that it stands for.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach(), persistent=False)
        # not a buffer: its layout has no strides, so that what moves or copies buffers would fail on it
        self._weight = (torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _TOKENS),)

    def forward(self, inputs: torch.Tensor, other: torch.Tensor | None = None, then: str = "none") -> torch.Tensor:
        """Return inputs @ weight.T + bias, of shape (…, out_features).

        Args:
            inputs: Of shape (…, in_features).
            other: Of the result's shape.
            then: What is done with each sum: ``swish``, or with `other` ``add`` or ``mul``.
        """
        if other is None:
            outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._weight[0], self.bias, then, [], "")
        else:
            outputs = torch.ops.mkldnn._linear_pointwise.binary(inputs, other, self._weight[0], self.bias, then)
        return outputs


def pack(model: Any) -> Any:
    """Make a model that can only be asked, on a CPU with oneDNN; elsewhere do nothing. The model given cannot be used any more.

    Args:
        model: A model of transformers in float32.

    Returns:
        A `PackedLlama` of a plain Llama; another model with its linear layers replaced.
    """
    if not torch._C._has_mkldnn or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return model
    from gym_text_policies.backends.local.llama import PackedLlama

    with torch.inference_mode():
        if PackedLlama.fits(model):
            return PackedLlama(model)
        for module in list(model.modules()):
            for name, layer in list(module.named_children()):
                if type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
                    setattr(module, name, PackedLinear(layer))
    return model
