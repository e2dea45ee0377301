"""A player with the present weights of a model that is trained: a copy with its adapter merged, or the model itself."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gym_text.errors import import_extra
from gym_text_policies.backends.local.adapters import is_adapted

if TYPE_CHECKING:
    from gym_text_policies.backends.local.transformers import TransformersBackend


def player_of(model: Any, tokenizer: Any, dtype: str = "float32", *, name: str = "learner") -> TransformersBackend:
    """Return a backend that plays with the present weights of a model.

    The backend has a copy of the model, with its adapter, if it has one, merged, that is optimised for play. A quantised model, as
    TRL may train it, is not copied: it is itself set to evaluation. `name` is the model's name in records.
    """
    from gym_text_policies.backends.local.transformers import TransformersBackend

    if getattr(_base_of(model), "hf_quantizer", None) is not None:
        return TransformersBackend(model, tokenizer, name)
    return TransformersBackend(merged_copy(model, dtype), tokenizer, name, optimise=True)


def merged_copy(model: Any, dtype: str = "float32") -> Any:
    """Return a copy of a model for play, in a number format, with its adapter, if it has one, merged.

    Each layer is merged in float32 and rounded once: in bfloat16 most of a small update would be rounded away. No more than one
    layer at a time is held in float32 for that. Weights that are frozen, have no adapter and have the format already are shared
    with the model.
    """
    torch = import_extra("torch", "train")
    base, form = _base_of(model), getattr(torch, dtype)
    copies: dict[int, Any] = {}  # for `deepcopy`: what stands for which object
    inside: set[int] = set()
    for module in base.modules():
        if id(module) not in inside and is_adapted(module):
            inside |= {id(part) for part in (*module.modules(), *module.parameters())}
            copies[id(module)] = _merged(module).to(form)
    for weight in base.parameters():
        if id(weight) not in inside and weight.dtype == form and not weight.requires_grad:
            copies[id(weight)] = torch.nn.Parameter(weight.data, requires_grad=False)
    copied = copy.deepcopy(base, copies)
    copied.__dict__.pop("peft_config", None)
    copied.__dict__.pop("forward", None)  # another library's replacement would call the model that is trained
    for weight in copied.parameters():
        weight.data = weight.data.to(form)
    for buffer in copied.buffers():  # such as those of positions
        buffer.data = buffer.data.float() if buffer.is_floating_point() else buffer.data
    return copied


def _base_of(model: Any) -> Any:
    """Return the base of a model with an adapter, or the model itself if it has none."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _merged(layer: Any) -> Any:
    """Return a copy of a layer of peft's, merged in float32."""
    layer = copy.deepcopy(layer).float()
    if hasattr(layer, "unload_and_optionally_merge_module"):
        return layer.unload_and_optionally_merge_module(merge=True, safe_merge=False, adapter_names=None)
    layer.merge()
    return layer.get_base_layer()
