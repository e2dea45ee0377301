"""Linear layers for inference on a CPU, with weights in the memory layout that oneDNN reads, and once in memory.

Models that have equal weights share them. In float32 an adapter stays beside its base's layers, and takes no more than its weights.
"""

from __future__ import annotations

import functools
import platform
import sys
import weakref
from typing import Any

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


def optimise_for_cpu(model: Any) -> Any:
    """Return a model for inference alone, on a CPU with the linear layers of oneDNN; elsewhere nothing is changed.

    In bfloat16 the logits are computed in float32: the 8 bits of bfloat16 would round probabilities by several percent.

    Args:
        model: A model of transformers in evaluation mode. The caller cannot use it afterwards: the result is the same object.
    """
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    with torch.inference_mode():
        for path, module in model.named_modules():  # which goes on with the children that a module has then
            for name, layer in list(module.named_children()):
                if stays_beside(layer):
                    base = _shared_linear(f"{path}.{name}", layer.base_layer, torch.float32)
                    setattr(module, name, AdaptedLinear(base, layer))
                elif type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype in fast_types():
                    dtype = torch.float32 if layer is head else layer.weight.dtype
                    setattr(module, name, _shared_linear(f"{path}.{name}", layer, dtype))
    return model


def stays_beside(layer: Any) -> bool:
    """Return whether a layer is a linear one that peft has given an adapter of low rank, in float32 on a CPU.

    There the adapter's product takes a tenth of the base's time. In bfloat16 it would take up to three quarters.
    """
    lora = sys.modules.get("peft.tuners.lora.layer")
    if lora is None or type(layer) is not lora.Linear or type(layer.base_layer) is not nn.Linear:
        return False
    weight, more = layer.base_layer.weight, layer.lora_variant or any(layer.lora_bias.values())
    return weight.device.type == "cpu" and weight.dtype == torch.float32 in fast_types() and not more


_linears: weakref.WeakValueDictionary[tuple[Any, ...], FusedLinear] = weakref.WeakValueDictionary()
_parameters: weakref.WeakValueDictionary[tuple[Any, ...], nn.Parameter] = weakref.WeakValueDictionary()
"""The layers and the other parameters of the models in memory; of those with one name, size and precision the latest."""


def _shared_linear(path: str, layer: nn.Linear, dtype: torch.dtype) -> FusedLinear:
    """Return a layer for inference: that of another model if its weights are equal, else a new one."""
    key = path, layer.weight.shape, layer.weight.dtype, dtype
    known = _linears.get(key)
    if known is None or not known.equals(layer):
        known = _linears[key] = FusedLinear(layer, dtype)
    return known


@torch.inference_mode()
def leave_file(model: Any) -> None:
    """Let a model whose linear layers are `FusedLinear` have its other parameters outside its file: those of another, or copies.

    All pages of a file that were read take memory, as long as a single weight lies in them.
    """
    if not any(type(module) is FusedLinear for module in model.modules()):
        return
    copies: dict[nn.Parameter, nn.Parameter] = {}  # by the original, since weights may be tied
    for path, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in copies:
                key = f"{path}.{name}", parameter.shape, parameter.dtype, str(parameter.device)
                known = _parameters.get(key)
                if known is None or not torch.equal(known, parameter):
                    known = _parameters[key] = nn.Parameter(parameter.detach().clone(), requires_grad=False)
                copies[parameter] = known
            setattr(module, name, copies[parameter])


class FusedLinear(nn.Module):
    """A linear layer for inference, with its weight in the memory layout that oneDNN reads.

    PyTorch's own layer reorders the weight at every call, or multiplies it in its slower layout. For 4 to 20 tokens that takes up
    to twice the time of the product here. A decision in float32 takes 15 % less time, and words a quarter less.

    Args:
        layer: The layer to replace.
        dtype: Precision of the product and its result, one of the `fast_types`.
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._dtype = dtype
        self.bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        # no buffers: the layout has no strides, so that moving or copying it as a buffer would fail
        self._weight = (torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(dtype), _LAYOUT_TOKENS),)

    def equals(self, layer: nn.Linear) -> bool:
        """Return whether a layer has this layer's weights and bias."""
        if (self.bias is None) != (layer.bias is None):
            return False
        pairs = ((self.weight, layer.weight), (self.bias, layer.bias))
        return all(torch.equal(own, other.to(self._dtype)) for own, other in pairs if own is not None)

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weight in the usual layout, for models that read it directly."""
        weight: torch.Tensor = self._weight[0].to_dense()
        return weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs @ weight.T + bias, of shape (…, out_features), for inputs of shape (…, in_features)."""
        product = torch.ops.mkldnn._linear_pointwise
        outputs: torch.Tensor = product(inputs.to(self._dtype), self._weight[0], self.bias, "none", [], "")
        return outputs


class AdaptedLinear(nn.Module):
    """A linear layer for inference with an adapter of low rank beside it.

    Args:
        base: The layer of the base. Other models may share it.
        adapted: The same layer as peft has adapted it, see `stays_beside`.
    """

    def __init__(self, base: FusedLinear, adapted: Any) -> None:
        super().__init__()
        self._base = base
        (name,) = adapted.active_adapters
        self._down = adapted.lora_A[name].weight.detach().t().contiguous()  # (in_features, rank)
        self._up = (adapted.lora_B[name].weight.detach() * adapted.scaling[name]).t().contiguous()  # (rank, out_features)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the base's outputs plus those of the adapter, of shape (…, out_features), for inputs of shape (…, in_features)."""
        outputs: torch.Tensor = self._base(inputs)
        outputs.view(-1, outputs.shape[-1]).addmm_(inputs.reshape(-1, inputs.shape[-1]) @ self._down, self._up)
        return outputs
