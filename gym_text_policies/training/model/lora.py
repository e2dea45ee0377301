"""Adapters: low-rank updates of a model's linear layers (Hu et al. 2021, https://arxiv.org/abs/2106.09685), by peft.

An adapter's folder holds ``adapter_model.safetensors`` (16-bit), ``adapter_config.json`` (peft's, with the name of the base) and
``training.json`` (how the model is prompted, and how the adapter was made).
"""

from __future__ import annotations

import contextlib
import functools
import platform
import shlex
import sys
import types
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.local.adapters import WEIGHTS, adapter_folder, read_adapter, warn_other_base
from gym_text_policies.backends.local.models import Source, load_model
from gym_text_policies.backends.local.tokens import check_tokenizer

RANK, ALPHA = 16, 32
"""Rank of a new adapter, if the user says nothing, and its alpha: updates are scaled by alpha / rank."""
_MAMBA = ["out_proj", "conv1d"]
_WITHOUT_ADAPTER = dict.fromkeys(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"), _MAMBA) | {
    "llama4_text": ["router"]
}
"""For each type of model, the linear layers to which peft cannot add an adapter: fused kernels read the weights of these layers
directly, or the layers return more than one tensor."""


def load_base(name: str, *, dtype: str = "float32", chat_template: str = "") -> tuple[Any, Any]:
    """Return a model to train, its weights frozen, and its tokenizer.

    Args:
        name: ``smollm2``, ``hf:OWNER/NAME`` or a folder.
        dtype: Number format of the weights: ``float32`` or ``bfloat16``.
        chat_template: Text of a chat template that replaces the model's. An adapter that is saved keeps it.

    Raises:
        UsageError: If there is no such model, or its probabilities cannot be computed reliably.
    """
    from gym_text_policies.backends.local.exactness import packs

    source = Source.of(name, dtype=dtype)
    model, tokenizer = load_model(source)
    model.requires_grad_(False)
    model.base_name = name  # an adapter's configuration names it
    if chat_template:
        tokenizer.chat_template = chat_template
        check_tokenizer(tokenizer, f"model {name!r}:")
    model.chat_template = chat_template
    model.base_content = source.content or source.commit  # an adapter's record says which weights it was trained on
    model.packs = packs(model)  # whether `layouts.lay_out` packs or pads
    return model, tokenizer


def add_lora(model: Any, *, rank: int | None = None, adapter: str | Path = "", name: str = "default") -> Any:
    """Return the model with an adapter: a new one for all linear layers but the last, or one to train further.

    Args:
        model: A base, as `load_base` returns it, or a model that has an adapter already.
        rank: Rank of a new adapter; None: `RANK`. An adapter that is trained further keeps its rank, alpha and layers.
        adapter: Folder of the adapter to train further, or the name of one that ships; empty: a new one.
        name: The adapter's name in the model.

    Raises:
        UsageError: If the adapter is for another base, or has another rank.
    """
    peft = import_extra("peft", "train")
    if adapter:
        base, _ = read_adapter(adapter)
        if base != model.base_name:
            raise UsageError(f"adapter {str(adapter)!r}: expected one for {model.base_name!r}; got one for {base!r}.")
        warn_other_base(adapter, getattr(model, "base_content", ""))
        config = peft.PeftConfig.from_pretrained(str(adapter_folder(adapter)))
        if rank not in (None, config.r):
            raise UsageError(
                f"rank: expected none, because {str(adapter)!r} is trained further and keeps its own, {config.r}; got {rank}. "
                "Leave it out, or begin with a base."
            )
        config.inference_mode, config.base_model_name_or_path = False, model.name_or_path
    else:
        config = peft.LoraConfig(
            r=rank or RANK,
            lora_alpha=ALPHA,
            target_modules="all-linear",
            exclude_modules=_WITHOUT_ADAPTER.get(model.config.get_text_config().model_type),
            task_type="CAUSAL_LM",
        )
    with warnings.catch_warnings(action="ignore"):  # peft's, about what it corrects by itself
        if isinstance(model, peft.PeftModel):
            model.add_adapter(name, config)
        else:
            model = peft.get_peft_model(model, config, adapter_name=name)
    if adapter:
        load_weights(model, adapter, name)
    return model


def set_dtype(model: Any, dtype: str) -> None:
    """Convert the frozen weights of a model to float32 or bfloat16, and the trained ones to float32. Buffers stay as they are.

    Logits are always computed in float32: bfloat16 would round a logit of 20 by 0.06, and a ratio of probabilities by 6 %.
    """
    torch = import_extra("torch", "train")
    head = model.get_output_embeddings()
    if dtype == "bfloat16" and type(head) is torch.nn.Linear:
        head.forward = types.MethodType(_in_float32, head)
    for parameter in model.parameters():
        trained = parameter.requires_grad
        parameter.data = parameter.data.float() if trained else parameter.data.to(getattr(torch, dtype))


def _in_float32(layer: Any, inputs: Any) -> Any:
    """Compute a linear layer in float32, also inside autocast."""
    torch = import_extra("torch", "train")
    with torch.autocast(inputs.device.type, enabled=False):
        return torch.nn.functional.linear(inputs.float(), layer.weight.float(), None if layer.bias is None else layer.bias.float())


def compile_layers(model: Any) -> None:
    """Let torch compile the layers of a model with an adapter, for rows of any length; attention itself is not compiled."""
    for layer in model.get_base_model().model.layers:
        layer.compile(dynamic=True)


def checkpoint_layers(model: Any) -> None:
    """Let the layers of a model with an adapter keep only their inputs, and compute the rest again for the gradients.

    That takes a quarter more time and, for long rows, a fifth of the memory (Chen et al. 2016, https://arxiv.org/abs/1604.06174).

    Raises:
        UsageError: If the model does not read packed rows, or its layers are compiled.
    """
    torch_checkpoint = import_extra("torch.utils.checkpoint", "train").checkpoint
    from gym_text_policies.backends.local.packed import packed_attention

    layers = model.get_base_model().model.layers
    if not model.packs or layers[0]._compiled_call_impl:
        raise UsageError("gradient_checkpointing: expected a model that reads packed rows, not compiled. Leave it out.")
    options = {
        "use_reentrant": False,
        "context_fn": lambda: (contextlib.nullcontext(), packed_attention(model)),  # layers compute again after the forward pass
    }
    for layer in layers:
        layer.forward = functools.partial(torch_checkpoint, layer.forward, **options)


def load_weights(model: Any, folder: str | Path, name: str = "default") -> None:
    """Load the weights of a folder into a model's adapter.

    Raises:
        UsageError: If the weights belong to another model.
    """
    peft = import_extra("peft", "train")
    from safetensors.torch import load_file

    weights = {key: tensor.float() for key, tensor in load_file((adapter_folder(folder) or Path(folder)) / WEIGHTS).items()}
    present = peft.get_peft_model_state_dict(model, adapter_name=name)
    if {key: tensor.shape for key, tensor in weights.items()} != {key: tensor.shape for key, tensor in present.items()}:
        raise UsageError(f"adapter {str(folder)!r}: expected weights for {model.base_name!r}; their names or shapes are others.")
    peft.set_peft_model_state_dict(model, weights, adapter_name=name)


def environment_record() -> dict[str, Any]:
    """Return the hardware, the versions and the command of a training run, for its record."""
    torch = import_extra("torch", "train")
    packages = ("torch", "transformers", "peft", "datasets", "accelerate")
    return {
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads",
        **{package: version(package) for package in packages},
        "command": shlex.join(["gym-text", *sys.argv[1:]]) if Path(sys.argv[0]).stem in ("gym-text", "cli") else "",
    }
