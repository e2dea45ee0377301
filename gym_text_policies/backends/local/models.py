"""`load_model`: models from the wheel, the hub or a folder. It reads safetensors only, and runs no code that comes with a model."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gym_text.errors import UsageError, check_bool, check_choice, import_extra
from gym_text_policies.backends.local import smollm2
from gym_text_policies.backends.local.adapters import (
    CONFIG,
    WEIGHTS,
    adapter_folder,
    read_adapter,
    short,
    template_of,
    warn_other_base,
)
from gym_text_policies.backends.local.contents import EMBEDDED, check_names_no_code, content_of
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
    load_in_4bit: bool = False
    dtype: Dtype = "auto"
    device: str = "auto"
    """See `device_of`."""
    device_map: Literal["auto"] | None = None
    template_kwargs: tuple[tuple[str, Any], ...] = ()
    """Arguments of the chat template."""
    end_of_turn: str | None = None
    """The text of the token that ends an answer; None: what the chat template writes."""

    @classmethod
    def of(cls, name: str, **options: Any) -> Source:
        """Return the source that a name stands for.

        Args:
            name: See `load_transformers`.
            options: The other fields that `load_transformers` takes.

        Raises:
            UsageError: If there is no such model, adapter or device, the adapter is incomplete, or options contradict each other.
        """
        arguments = check_fields("template_kwargs", options.pop("template_kwargs", None))
        for key, value in arguments.items():
            if isinstance(value, list | tuple | dict):
                raise UsageError(f"template_kwargs: expected a text, a number, true or false as {key}; got {value!r}.")
        source = cls(name, name, template_kwargs=tuple(sorted(arguments.items())), **options)
        source._check_options()
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

    def _check_options(self) -> None:
        check_name("end_of_turn", self.end_of_turn)
        check_bool("load_in_4bit", self.load_in_4bit)
        check_choice("dtype", self.dtype, get_args(Dtype))
        device = device_of(self.device)
        if self.device_map is not None:
            check_choice("device_map", self.device_map, ("auto",))
            if self.device != "auto":
                raise UsageError(f"device: expected none beside device_map, which takes all there are; got {self.device!r}.")
        if self.load_in_4bit and not device.startswith("cuda"):
            got = f"got device={self.device!r}" if device_of("auto").startswith("cuda") else "there is none"
            raise UsageError(f"load_in_4bit=True: expected a CUDA device; {got}. Leave it off.")
        if self.load_in_4bit and self.dtype != "auto":
            raise UsageError(f"dtype: expected none beside load_in_4bit, whose products are in bfloat16; got {self.dtype!r}.")

    @property
    def config(self) -> dict[str, Any]:
        """The fields that identify the model in records, without the precision that ``auto`` stands for.

        If there is a content or a commit, the names of model and base are for readers alone: see `episode_key`.
        """
        fields: dict[str, Any] = {"model": self.name}
        if self.adapter:
            fields |= {"base": self.base, "adapter": self.digest}
        others = ("content", "commit", "load_in_4bit", "device_map", "end_of_turn")
        fields |= {key: value for key in others if (value := getattr(self, key))}
        if device_of(self.device) != device_of("auto"):
            fields["device"] = self.device
        if self.template_kwargs:
            fields["template_kwargs"] = dict(self.template_kwargs)
        return fields

    @property
    def weights(self) -> str:
        """What identifies the weights, configuration and tokenizer that are read."""
        return f"{self.content or self.commit or smollm2.DIGEST} {self.digest}".strip()

    def check_unchanged(self) -> None:
        """Raise `UsageError` if the files have changed since this was made. The files of a commit on the hub cannot change."""
        digest = read_adapter(self.adapter)[1] if self.adapter else ""
        content = self.content if self.commit else content_of(self.base)[0]
        if (digest, content) != (self.digest, self.content):
            raise UsageError(f"model {self.name!r}: expected the files that it had at the start; they have changed. Start anew.")


def device_of(device: str) -> str:
    """Return the device that a name stands for.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; or ``auto``: CUDA where there is one, else MPS, else the CPU.

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
    """Return a model and its tokenizer. An adapter is merged into the weights, unless these have 4 bits.

    Raises:
        UsageError: If the model cannot be loaded, or its files have changed since the source was made.
    """
    transformers = import_extra("transformers", "local")
    for folder in filter(None, (source.base, source.adapter)):
        check_folder(Path(folder))  # does nothing for a name on the hub
    device = device_of(source.device)
    dtype = "float32" if source.dtype == "auto" and device == "cpu" else source.dtype
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True, "device_map": source.device_map}
    if source.load_in_4bit:
        options |= _four_bits(device, source.device_map)
    base, safe = _files(source)
    with _loading(source.name):
        config = transformers.AutoConfig.from_pretrained(base, **safe)
    tokenizer = _tokenizer(source, getattr(config.get_text_config(), "vocab_size", None))
    if config.is_encoder_decoder:
        raise UsageError(f"model {source.name!r}: expected a causal language model; it has an encoder and a decoder.")
    check_names_no_code(config, source.name)
    with _loading(source.name):
        model = transformers.AutoModelForCausalLM.from_pretrained(base, **safe, **options)
    if not options["device_map"]:
        model = model.to(device)
    if source.adapter:
        model = _adapted(model, source)
    source.check_unchanged()
    return model, tokenizer


def _files(source: Source) -> tuple[str, dict[str, Any]]:
    """Return where transformers finds the base's files, and how it reads them."""
    base = str(smollm2.smollm2_folder()) if source.base == EMBEDDED else source.base.removeprefix("hf:")
    return base, {"trust_remote_code": False, **({"revision": source.commit} if source.commit else {})}


def _tokenizer(source: Source, most: int | None) -> Any:
    """Return the checked tokenizer of a source, with the user's settings. The vocabulary has `most` tokens, if that is known."""
    transformers = import_extra("transformers", "local")
    base, safe = _files(source)
    with _loading(source.name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(base, **safe)
    tokenizer.chat_template = template_of(source.adapter) or tokenizer.chat_template
    set_format(tokenizer, dict(source.template_kwargs), source.end_of_turn or "")
    check_tokenizer(tokenizer, f"model {source.name!r}:", most)
    return tokenizer


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn transformers' errors into `UsageError` while a block loads files, and hide its progress bars."""
    from safetensors import SafetensorError

    with smollm2.quiet():
        try:
            yield
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise UsageError(f"model {name!r}: expected one that can be loaded; {short(error)}") from error


def _four_bits(device: str, device_map: str | None) -> dict[str, Any]:
    torch, transformers = import_extra("torch", "local"), import_extra("transformers", "local")
    import_extra("bitsandbytes", "gpu")
    settings = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    return {"dtype": torch.bfloat16, "quantization_config": settings, "device_map": device_map or {"": device}}


def _adapted(model: Any, source: Source) -> Any:
    """Return the model with its adapter."""
    peft = import_extra("peft", "train")
    from safetensors import safe_open

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
            warnings.filterwarnings("error", message=".*missing adapter keys")
            adapted = peft.PeftModel.from_pretrained(model, source.adapter, low_cpu_mem_usage=True)  # no random weights first
        with safe_open(Path(source.adapter) / WEIGHTS, "pt") as file:
            surplus = set(file.keys()) - set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
            spoilt = [key for key in file.keys() if not file.get_tensor(key).isfinite().all()]  # noqa: SIM118  no mapping
        if surplus:
            raise ValueError(f"{len(surplus)} weights have no place, such as {min(surplus)}")
        if spoilt:
            raise ValueError(f"{len(spoilt)} weights are NaN or infinite, such as {min(spoilt)}")
    except (RuntimeError, ValueError, KeyError, TypeError, UserWarning) as error:
        raise UsageError(f"adapter {source.name!r}: expected one that fits its base {source.base!r}; {short(error)}") from error
    return adapted if source.load_in_4bit else adapted.merge_and_unload()
