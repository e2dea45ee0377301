"""`load_model`: models from the wheel, the hub or a folder. It reads safetensors only, and runs no code that comes with a model."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_choice, import_extra
from gym_text_policies.backends.local import smollm2
from gym_text_policies.backends.local.adapters import (
    CONFIG,
    EMBEDDED,
    WEIGHTS,
    adapter_folder,
    content_of,
    is_adapted,
    read_adapter,
    short,
    template_of,
    warn_other_base,
)
from gym_text_policies.backends.local.rendering import set_format
from gym_text_policies.backends.local.tokens import check_tokenizer
from gym_text_policies.backends.providers.options import check_fields, check_name
from gym_text_policies.files.safe_files import check_folder

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
"""Precision of weights and products. ``auto``: float32 on a CPU; elsewhere what the model's files say."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and how it is loaded. Equal sources give equal models."""

    name: str
    """Its name in records."""
    base: str
    """``smollm2``, ``hf:OWNER/NAME``, a name on the hub, or a folder."""
    adapter: str = ""
    """Folder of the adapter."""
    digest: str = ""
    """SHA-256 of the adapter's configuration, weights and chat template, 16 digits. (Its tokenizer is the base's.)"""
    content: str = ""
    """Digest of the base's files if it is a folder: configuration, weights, tokenizer and template. See `content_of`."""
    commit: str = ""
    """Commit of the base if it is on the hub."""
    dtype: Dtype = "auto"
    device: str = "auto"
    """See `device_of`."""
    template_kwargs: str = "{}"
    """Arguments of the chat template, as JSON."""
    end_of_turn: str | None = None
    """The text of the token that ends an answer; None: what the chat template writes."""

    @classmethod
    def of(cls, name: str, **options: Any) -> Source:
        """Return the source that a name stands for.

        Args:
            name: See `load_transformers`.
            options: The other fields that `load_transformers` takes.

        Raises:
            UsageError: If there is no such model, adapter, precision or device, or the adapter is incomplete.
        """
        arguments = check_fields("template_kwargs", options.pop("template_kwargs", None))
        source = cls(name, name, template_kwargs=json.dumps(arguments, sort_keys=True), **options)
        check_name("end_of_turn", source.end_of_turn)
        check_choice("dtype", source.dtype, get_args(Dtype))
        device_of(source.device)
        folder = adapter_folder(name)
        if folder is not None:
            base, digest = read_adapter(folder)
            if adapter_folder(base) is not None:
                raise UsageError(f"adapter {name!r}: expected a model as its base; got the adapter {base!r}. Merge that one first.")
            source = replace(source, base=base, adapter=str(folder), digest=digest)
        elif name != EMBEDDED and not name.startswith("hf:") and not (Path(name) / "config.json").exists():
            raise UsageError(
                f"model: expected {EMBEDDED!r}, 'hf:OWNER/NAME', or a folder with a config.json or {CONFIG}; got {name!r}."
            )
        content, commit = content_of(source.base)
        if source.adapter:
            warn_other_base(name, content or commit)
        return replace(source, content=content, commit=commit)

    @property
    def precision(self) -> str:
        """Precision of the weights; empty if only the model's files say it."""
        if self.dtype != "auto":
            return self.dtype
        return "float32" if device_of(self.device) == "cpu" else ""

    @property
    def config(self) -> dict[str, Any]:
        """The fields that identify the model in records, without a precision that only its files say.

        If there is a content or a commit, the names of model and base are for readers alone: see `episode_key`.
        """
        fields: dict[str, Any] = {"model": self.name}
        if self.adapter:
            fields |= {"base": self.base, "adapter": self.digest}
        fields |= {key: value for key in ("content", "commit", "end_of_turn") if (value := getattr(self, key))}
        if device_of(self.device) != device_of("auto"):
            fields["device"] = self.device
        if arguments := json.loads(self.template_kwargs):
            fields["template_kwargs"] = arguments
        return fields | ({} if self.precision in ("", "float32") else {"dtype": self.precision})

    def check_unchanged(self) -> None:
        """Raise `UsageError` if the files have changed since this was made. The files of a commit on the hub cannot change."""
        digest = read_adapter(self.adapter)[1] if self.adapter else ""
        content = self.content if self.commit else content_of(self.base)[0]
        if (digest, content) != (self.digest, self.content):
            raise UsageError(f"model {self.name!r}: expected the files that it had at the start; they have changed. Start anew.")


def device_of(device: str) -> str:
    """Return the device that a name stands for, see `load_transformers`.

    Raises:
        UsageError: If this machine has no such device.
    """
    torch = import_extra("torch", "local")
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    here = [*(["cuda", *gpus] if gpus else []), *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if device == "auto":
        return here[0]
    if device not in here:
        raise UsageError(f"device: expected auto, or one of those that are here: {', '.join(here)}; got {device!r}.")
    return device


def load_model(source: Source) -> tuple[Any, Any]:
    """Return a model, with its adapter beside its layers or merged into them, and its tokenizer.

    Raises:
        UsageError: If the model cannot be loaded, or its files have changed since the source was made.
    """
    transformers = import_extra("transformers", "local")
    for folder in filter(None, (source.base, source.adapter)):
        check_folder(Path(folder))  # does nothing for a name on the hub
    base = str(smollm2.smollm2_folder()) if source.base == EMBEDDED else source.base.removeprefix("hf:")
    safe = {"trust_remote_code": False} | ({"revision": source.commit} if source.commit else {})
    with _loading(source.name):
        config = transformers.AutoConfig.from_pretrained(base, **safe)
        tokenizer = transformers.AutoTokenizer.from_pretrained(base, **safe)
    tokenizer.chat_template = template_of(source.adapter) or tokenizer.chat_template
    set_format(tokenizer, json.loads(source.template_kwargs), source.end_of_turn or "")
    check_tokenizer(tokenizer, f"model {source.name!r}:")
    if config.is_encoder_decoder:
        raise UsageError(f"model {source.name!r}: expected a causal language model; it has an encoder and a decoder.")
    _check_names_no_code(config, source.name)
    with _loading(source.name):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            base, **safe, dtype=source.precision or "auto", use_safetensors=True
        )
    model = model.to(device_of(source.device))
    if source.adapter:
        model = _adapted(model, source)
    source.check_unchanged()
    return model, tokenizer


def _check_names_no_code(config: Any, name: str) -> None:
    """Raise `UsageError` if a model's configuration names a repository of kernels: transformers would load and run its code."""
    for part in (config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", ()))):
        for kind in ("attn_implementation", "experts_implementation"):
            chosen = getattr(part, f"_{kind}", None)
            if isinstance(chosen, str) and not chosen.replace("_", "").isalnum():
                raise UsageError(f"model {name!r}: expected a configuration that names no code; got {kind}={chosen!r}. Remove it.")


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn transformers' errors into `UsageError` while a block loads files, and hide its progress bars."""
    from safetensors import SafetensorError

    with smollm2.quiet():
        try:
            yield
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise UsageError(f"model {name!r}: expected one that can be loaded; {short(error)}") from error


def _adapted(model: Any, source: Source) -> Any:
    """Return the model with its adapter, merged unless all of its layers can stay beside those of the base."""
    peft = import_extra("peft", "train")
    from safetensors import SafetensorError, safe_open

    from gym_text_policies.backends.local.linear import stays_beside

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
            warnings.filterwarnings("error", message=".*missing adapter keys")
            adapted = peft.PeftModel.from_pretrained(model, source.adapter, low_cpu_mem_usage=True)  # no random weights first
        with safe_open(Path(source.adapter) / WEIGHTS, "pt") as file:
            surplus = set(file.keys()) - set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
        if surplus:
            raise ValueError(f"{len(surplus)} weights have no place, such as {min(surplus)}")
        changed = list(filter(is_adapted, adapted.modules()))
        return adapted.get_base_model() if changed and all(map(stays_beside, changed)) else adapted.merge_and_unload()
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, UserWarning, SafetensorError) as error:
        raise UsageError(f"adapter {source.name!r}: expected one that fits its base {source.base!r}; {short(error)}") from error
