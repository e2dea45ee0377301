"""`load_transformers` makes a backend from a model's name; the one from `load_when_asked` reads the weights when first asked."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from weakref import WeakValueDictionary

from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.local.linear import fast_types
from gym_text_policies.backends.local.models import Dtype, Source, device_of, load_model
from gym_text_policies.backends.local.transformers import TransformersBackend

_logger = logging.getLogger(__name__)
_KEPT = 2
"""Number of models that stay in memory after their last use."""


def load_transformers(
    name: str,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    device_map: Literal["auto"] | None = None,
    load_in_4bit: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    end_of_turn: str | None = None,
    max_cached_tokens: int | None = None,
) -> TransformersBackend:
    """Return a model in this process. A model that is in use already is not loaded again.

    Args:
        name: ``smollm2``, the embedded default; ``hf:OWNER/NAME`` from the Hugging Face hub; a model's folder; an adapter's folder,
            which is merged into its base; or ``adapters/NAME``, one that ships.
        dtype: Precision of weights and products: ``float32``, ``bfloat16`` or ``float16``. ``auto``: float32 on a CPU; on another
            device what the model's files say. On a CPU that multiplies bfloat16, ``bfloat16`` takes two thirds of float32's time.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``. ``auto``: CUDA where there is one, else MPS, else the CPU.
        device_map: ``auto`` spreads the layers of a model that one GPU does not hold over all GPUs, then the CPU's memory.
        load_in_4bit: Keep the weights in 4 bits, by bitsandbytes, on a CUDA device; products are in bfloat16.
        template_kwargs: Arguments of the model's chat template, such as ``{"enable_thinking": false}``.
        end_of_turn: The text of the token that ends an answer; by default what the template writes.
        max_cached_tokens: See `TransformersBackend`.

    Raises:
        MissingDependencyError: If transformers, peft for an adapter, or for ``smollm2`` its wheel, is not installed.
        UsageError: If there is no such model or device, or the model cannot be loaded.
    """
    chats = {"template_kwargs": template_kwargs, "end_of_turn": end_of_turn}
    source = Source.of(name, dtype=dtype, device=device, device_map=device_map, load_in_4bit=load_in_4bit, **chats)
    return _loaded(source, max_cached_tokens)


def load_when_asked(name: str, *, max_cached_tokens: int | None = None, **options: Any) -> Backend:
    """Return a model in this process whose weights are read when it is first asked; see `load_transformers`."""
    source = Source.of(name, **options)
    return WhenAsked(source, max_cached_tokens) if _precision(source) else _loaded(source, max_cached_tokens)


class WhenAsked(Backend):
    """A model whose weights are read when it is first asked, and again if other models took its place in memory since.

    So one run can play many models.

    Args:
        source: The model.
        max_cached_tokens: See `TransformersBackend`.
    """

    def __init__(self, source: Source, max_cached_tokens: int | None) -> None:
        self._source, self._room = source, max_cached_tokens

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the loaded model would have. Nothing is loaded for it."""
        return {"backend": "transformers", **_identity(self._source, _precision(self._source))}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Let the model answer."""
        return _loaded(self._source, self._room).answer(requests)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself."""
        return _loaded(self._source, self._room).count(text)

    def check(self, request: Request) -> None:
        """Load the model, so that a run whose model cannot be loaded fails at its start."""
        _loaded(self._source, self._room)


_in_use: WeakValueDictionary[tuple[Source, int | None], TransformersBackend] = WeakValueDictionary()
_kept: OrderedDict[tuple[Source, int | None], TransformersBackend] = OrderedDict()
"""The models that were asked for last, the latest at the end."""


def _loaded(source: Source, max_cached_tokens: int | None) -> TransformersBackend:
    """Return the backend of a source: one in memory, or a new one. Before that is made, the least recently used one is released."""
    key = source, max_cached_tokens
    backend = _in_use.get(key)
    if backend is None:
        while len(_kept) >= _KEPT:
            _kept.popitem(last=False)
        for other in tuple(_kept.values()):  # another thread may ask for a model while this one waits
            other.forget()  # a run plays one model after the other: what all have read would take gigabytes
        backend = _in_use[key] = _load(source, max_cached_tokens)
    _kept[key] = backend
    _kept.move_to_end(key)
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)
    return backend


def _load(source: Source, max_cached_tokens: int | None) -> TransformersBackend:
    _logger.info("Loading %s.", source.name)
    model, tokenizer = load_model(source)
    precision = _precision(source) or str(model.dtype).removeprefix("torch.")
    if precision != "float32" and model.device.type == "cpu" and model.dtype not in fast_types():
        _logger.warning(
            "%s: this CPU does not multiply %s (bfloat16 needs AVX512-BF16, AMX, or BF16 on Arm); the model works, but may take "
            "ten times as long. Take dtype='float32'.",
            *(source.name, precision),
        )
    optimise = not source.load_in_4bit and source.device_map is None
    identity = _identity(source, precision)
    weights = source.weights if optimise else ""
    backend = TransformersBackend(
        model, tokenizer, identity, max_cached_tokens=max_cached_tokens, optimise=optimise, weights=weights
    )
    if backend.way != "packed":
        _logger.info(
            "%s: read in the way %r, which is exact for this model, and slower than packed rows.", source.name, backend.way
        )
    return backend


def _precision(source: Source) -> str:
    """Return the precision of a model; empty if only its files say it."""
    if source.load_in_4bit:
        return "4 bits"
    if source.dtype != "auto":
        return source.dtype
    return "float32" if device_of(source.device) == "cpu" else ""


def _identity(source: Source, precision: str) -> dict[str, Any]:
    """Return all fields that identify a model in records."""
    return source.config | ({} if precision == "float32" or source.load_in_4bit else {"dtype": precision})
