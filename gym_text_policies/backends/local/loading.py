"""`load_transformers` makes a backend from a model's name; the one from `load_when_asked` reads the weights when first asked."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from gym_text_policies.backends.base import Answer, Backend, Request
from gym_text_policies.backends.local.linear import fast_types, leave_file
from gym_text_policies.backends.local.models import Dtype, Source, load_model
from gym_text_policies.backends.local.transformers import MAX_CACHED_TOKENS, TransformersBackend

_logger = logging.getLogger(__name__)
_KEPT = 2
"""Number of models that stay in memory after their last use."""


def load_transformers(
    name: str,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    template_kwargs: Mapping[str, Any] | None = None,
    end_of_turn: str | None = None,
    max_cached_tokens: int = MAX_CACHED_TOKENS,
) -> TransformersBackend:
    """Return a model in this process. One of the two that were asked for last is not loaded again.

    Args:
        name: ``smollm2``, the embedded default; ``hf:OWNER/NAME`` from the Hugging Face hub; a model's folder; an adapter's folder;
            or ``adapters/NAME``, one that ships.
        dtype: Precision of weights and products: ``float32``, ``bfloat16`` or ``float16``. ``auto``: float32 on a CPU; on another
            device what the model's files say. On a CPU that multiplies bfloat16, ``bfloat16`` takes two thirds of float32's time.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``mps``. ``auto``: CUDA where there is one, else MPS, else the CPU.
        template_kwargs: Arguments of the model's chat template, such as ``{"enable_thinking": false}``.
        end_of_turn: The text of the token that ends an answer; by default what the template writes.
        max_cached_tokens: See `TransformersBackend`.

    Raises:
        MissingDependencyError: If transformers, peft for an adapter, or for ``smollm2`` its wheel, is not installed.
        UsageError: If there is no such model or device, or the model cannot be loaded.
    """
    source = Source.of(name, dtype=dtype, device=device, template_kwargs=template_kwargs, end_of_turn=end_of_turn)
    return _loaded(source, max_cached_tokens)


def load_when_asked(name: str, *, max_cached_tokens: int = MAX_CACHED_TOKENS, **options: Any) -> Backend:
    """Return a model in this process whose weights are read when it is first asked; see `load_transformers`."""
    source = Source.of(name, **options)
    return WhenAsked(source, max_cached_tokens) if source.precision else _loaded(source, max_cached_tokens)


class WhenAsked(Backend):
    """A model whose weights are read when it is first asked, and again if other models took its place in memory since.

    So one run can play many models.

    Args:
        source: The model.
        max_cached_tokens: See `TransformersBackend`.
    """

    def __init__(self, source: Source, max_cached_tokens: int) -> None:
        self._source, self._room = source, max_cached_tokens

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the loaded model would have. Nothing is loaded for it."""
        return {"backend": "transformers", **self._source.config}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Let the model answer."""
        return _loaded(self._source, self._room).answer(requests)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text by itself."""
        return _loaded(self._source, self._room).count(text)

    def check(self, request: Request) -> None:
        """Load the model, so that a run whose model cannot be loaded fails at its start."""
        _loaded(self._source, self._room)


_kept: OrderedDict[tuple[Source, int], TransformersBackend] = OrderedDict()
"""The models that were asked for last, the latest at the end."""


def _loaded(source: Source, max_cached_tokens: int) -> TransformersBackend:
    """Return the backend of a source: one in memory, or a new one. Before that is made, the least recently used one is released."""
    key = source, max_cached_tokens
    backend = _kept.pop(key, None)
    if backend is None:
        while len(_kept) >= _KEPT:
            _kept.popitem(last=False)
        for other in tuple(_kept.values()):  # another thread may ask for a model while this one waits
            other.forget()  # a run plays one model after the other: what all have read would take gigabytes
        backend = _load(source, max_cached_tokens)
    _kept[key] = backend
    return backend


def _load(source: Source, max_cached_tokens: int) -> TransformersBackend:
    _logger.info("Loading %s.", source.name)
    model, tokenizer = load_model(source)
    precision = source.precision or str(model.dtype).removeprefix("torch.")
    identity = source.config if precision == "float32" else source.config | {"dtype": precision}
    if precision != "float32" and model.device.type == "cpu" and model.dtype not in fast_types():
        _logger.warning(
            "%s: this CPU does not multiply %s (bfloat16 needs AVX512-BF16, AMX, or BF16 on Arm); the model works, but may take "
            "ten times as long. Take dtype='float32'.",
            *(source.name, precision),
        )
    backend = TransformersBackend(model, tokenizer, identity, max_cached_tokens=max_cached_tokens, optimise=True)
    leave_file(model)
    if backend.way != "packed":
        _logger.info("%s: read in the way %r, which is exact for this model, and slower.", source.name, backend.way)
    return backend
