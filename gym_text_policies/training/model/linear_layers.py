"""The linear layers of a model to which an adapter is added: all of them, those of attention, or some by their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from gym_text.errors import UsageError, import_extra

ALL_LINEAR, ATTENTION = "all-linear", "attention"
_MAMBA = ("out_proj", "conv1d")
_WITHOUT_ADAPTER = dict.fromkeys(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"), _MAMBA) | {
    "llama4_text": ("router",)
}
"""For each type of model, the linear layers to which peft cannot add an adapter: fused kernels read the weights of these layers
directly, or the layers return more than one tensor."""
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
"""How the name of an attention block is written in the names of its layers."""


def excluded_layers(model: Any) -> list[str] | None:
    """Return the last parts of the names of linear layers that can have no adapter; None if all can."""
    return list(_WITHOUT_ADAPTER.get(model.config.get_text_config().model_type, ())) or None


def linear_layers(model: Any) -> list[str]:
    """Return the names of a base's linear layers that can have an adapter: all but the last layer, which computes the logits."""
    linear = import_extra("torch", "train").nn.Linear
    head, excluded = model.get_output_embeddings(), excluded_layers(model) or ()
    return [
        name
        for name, module in model.named_modules()
        if (isinstance(module, linear) or type(module).__name__ == "Conv1D")  # GPT-2's linear layers
        and module is not head
        and name.rpartition(".")[2] not in excluded
    ]


def targets_of(model: Any, words: Sequence[str]) -> str | list[str]:
    """Return the target modules of peft for the words of a user: ``all-linear``, ``attention``, or names as in ``q_proj``.

    Raises:
        UsageError: If the model has no such layers.
    """
    if tuple(words) == (ALL_LINEAR,):
        return ALL_LINEAR
    layers, targets = linear_layers(model), []
    for word in words:
        found = _of_attention(layers) if word == ATTENTION else [word] if adapted(layers, [word]) else []
        if not found:
            last = sorted({layer.rpartition(".")[2] for layer in layers})
            raise UsageError(f"target_modules: expected {ALL_LINEAR!r}, {ATTENTION!r}, or some of {', '.join(last)}; got {word!r}.")
        targets += found
    return list(dict.fromkeys(targets))


def _of_attention(layers: Sequence[str]) -> list[str]:
    """Return names that stand for the layers of attention alone, as short as possible: ``q_proj``, or ``attn.c_proj``."""
    inside = {layer for layer in layers if _ATTENTION.search(layer.rpartition(".")[0])}
    names: dict[str, None] = {}
    for layer in layers:
        parts = layer.split(".")
        if layer in inside:
            names[next(name for n in range(1, len(parts) + 1) if adapted(layers, [name := ".".join(parts[-n:])]) <= inside)] = None
    return list(names)


def adapted(layers: Sequence[str], targets: str | Collection[str]) -> set[str]:
    """Return those of some layers to which target modules of peft add an adapter: names, ends of names, or a pattern."""
    if targets == ALL_LINEAR:
        return set(layers)
    if isinstance(targets, str):
        return {layer for layer in layers if re.fullmatch(targets, layer)}
    return {layer for layer in layers if any(layer == target or layer.endswith(f".{target}") for target in targets)}
