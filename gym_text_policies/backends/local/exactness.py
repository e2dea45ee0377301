"""`exact_prefixes`: the fastest way of reading that gives a model's own probabilities. Each way is compared before it is used.

The comparison is with the model's plain forward pass, without a cache: the probabilities of the next token, after each token of a
few short sequences. Two sequences with a common start are read together, with candidates behind them. One sequence is continued.
Tokens are removed from one. Meanwhile sliding windows are narrowed to eight tokens, so that every sequence is longer than a window.
"""

from __future__ import annotations

import contextlib
import logging
import math
import platform
import random
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gym_text.errors import UsageError
from gym_text_policies.backends.local.cached import CachedPrefixes, RereadPrefixes
from gym_text_policies.backends.local.decoding import Candidates
from gym_text_policies.backends.local.linear import fast_types, optimise_for_cpu
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch, Prefixes, usual_room
from gym_text_policies.backends.local.tree import padded
from gym_text_policies.files.digests import digest_of
from gym_text_policies.files.user_cache import recall, remember

_logger = logging.getLogger(__name__)
_WAYS: tuple[type[Prefixes], ...] = (PackedPrefixes, CachedPrefixes, RereadPrefixes)
_PACKED_LAYERS = {"full_attention", "sliding_attention"}
"""Kinds of layers, by transformers' names, in which tokens influence each other by attention alone."""
_WINDOW = 8
"""Tokens of a sliding window during the comparison."""
_LENGTH = 24
"""Tokens of a sequence in the comparison."""
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.08}
"""Greatest mean total variation distance (half the sum of absolute differences, 0 to 1) that rounding may explain."""


def exact_prefixes(model: Any, max_tokens: int | None, *, optimise: bool = False, weights: str = "") -> Prefixes:
    """Return the fastest way to read a model that gives the probabilities of its plain forward pass.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        max_tokens: See `Prefixes`; None: see `usual_room`.
        optimise: Prepare the model for inference on a CPU, see `optimise_for_cpu`. The caller cannot use the model afterwards.
        weights: What identifies the model's weights and configuration. The result of the comparison is kept for them in the user's
            cache folder, and used while weights, code, libraries and hardware are the same. If empty, the model is compared anew.

    Raises:
        UsageError: If no way gives these probabilities.
    """
    facts = {"weights": weights, **_facts(model, optimise=optimise)} if weights else {}
    known = recall("ways", facts) if facts else None
    with narrow_windows(model):
        probe = None if known in [way.__name__ for way in _ways(model)] else _Probe(model)
        if optimise:
            model = optimise_for_cpu(model)
        way = _first_exact(model, probe) if probe else next(way for way in _ways(model) if way.__name__ == known)
    if facts and probe:
        remember("ways", facts, way.__name__)
    return way(model, usual_room(model) if max_tokens is None else max_tokens)


def _ways(model: Any) -> list[type[Prefixes]]:
    """Return the ways of reading that a model's configuration allows, the fastest first."""
    return [way for way in _WAYS if way is not PackedPrefixes or may_be_packed(model)]


def _first_exact(model: Any, probe: _Probe) -> type[Prefixes]:
    """Return the first way with the probabilities of the plain forward pass; raise `UsageError` if there is none."""
    reasons = []
    for way in _ways(model):
        reason = probe.fault(way(model, 10_000))
        if not reason:
            _logger.debug("%s is read in the way %r", type(model).__name__, way.way)
            return way
        reasons.append(f"{way.way}: {reason}")
    raise UsageError(
        f"model: expected one whose probabilities can be computed reliably; {type(model).__name__} gives others than its "
        f"plain forward pass in every way ({'; '.join(reasons)})."
    )


def _facts(model: Any, *, optimise: bool) -> dict[str, Any]:
    """Return what, beside the weights, the result of the comparison depends on: code, libraries, hardware, precision, threads."""
    gpu = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else ""
    return {
        "code": digest_of({path.name: path for path in Path(__file__).parent.glob("*.py")}),
        "packages": [torch.__version__, *(version(name) for name in ("transformers", "gym-text"))],
        "model": [type(model).__name__, str(getattr(model.config, "_attn_implementation", "")), str(model.dtype), optimise],
        "hardware": [model.device.type, gpu, platform.machine(), torch.backends.cpu.get_cpu_capability()],
        "kernels": [*sorted(map(str, fast_types())), torch.get_num_threads()],
    }


def packs(model: Any) -> bool:
    """Return whether a model can be trained on packed rows; if not, it can be trained on rows padded on the right.

    Both are compared with the probabilities of the plain forward pass.

    Args:
        model: A causal language model of transformers, in evaluation mode.

    Raises:
        UsageError: If neither gives these probabilities, so that gradients would be wrong.
    """
    with narrow_windows(model):
        if may_be_packed(model) and not _Probe(model).fault(PackedPrefixes(model, 10_000)):
            return True
    deviation = _padding_deviation(model)
    if deviation > _tolerance(model):
        raise UsageError(
            f"model: expected one whose tokens do not see what comes after them; {type(model).__name__} gives other probabilities "
            f"in a padded row (by {deviation:.2g})."
        )
    return False


def may_be_packed(model: Any) -> bool:
    """Return whether a model's configuration allows several sequences in one row; whether it works, a comparison decides.

    A model with layers on several devices is not allowed: a prefix keeps the keys and values of all layers on one device.
    """
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    recurrent = any(hasattr(config, name) for name in ("layers_block_type", "ssm_cfg", "mamba_d_state", "state_size"))
    devices = set(getattr(model, "hf_device_map", {}).values())
    return set(kinds) <= _PACKED_LAYERS and not recurrent and len(devices) <= 1


def window_of(config: Any) -> int:
    """Return the most tokens that a model reads.

    With rotary positions of type ``longrope`` or ``dynamic``, a text beyond a certain length changes the encoding of all positions,
    and the keys of earlier tokens would be wrong. Such a model reads no more than that length.
    """
    config = config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("longrope", "dynamic"):
        return int(rope.get("original_max_position_embeddings") or config.max_position_embeddings)
    return int(getattr(config, "max_position_embeddings", None) or 32_768)


@contextlib.contextmanager
def narrow_windows(model: Any) -> Iterator[None]:
    """Narrow a model's sliding windows while the block runs, so that short sequences are longer than a window."""
    config = model.config.get_text_config()
    owners = [(config, "sliding_window"), (config, "attention_chunk_size")]
    owners += [(module, "sliding_window") for module in model.modules()]
    usual = [(owner, name, value) for owner, name in owners if type(value := getattr(owner, name, None)) is int and value > _WINDOW]
    try:
        for owner, name, _ in usual:
            setattr(owner, name, _WINDOW)
        yield
    finally:
        for owner, name, value in usual:
            setattr(owner, name, value)


@torch.inference_mode()
def plain_probabilities(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Return the probabilities of the next token after each token, by one plain forward pass; shape (tokens, vocabulary)."""
    logits = model(input_ids=torch.tensor([list(tokens)], device=model.device), use_cache=False).logits[0]
    probabilities: torch.Tensor = logits.float().softmax(-1).cpu()
    return probabilities


@torch.inference_mode()
def _padding_deviation(model: Any) -> float:
    """Return how far the probabilities in padded rows are from those of plain forward passes, as a mean distance."""
    draw, size = random.Random(0), model.config.get_text_config().vocab_size
    rows = [[draw.randrange(size // 4, size) for _ in range(length)] for length in (_LENGTH, _LENGTH // 2)]
    with narrow_windows(model):
        logits = model(input_ids=torch.tensor(padded(rows), device=model.device), use_cache=False).logits
        read = logits.float().softmax(-1).cpu()
        return max(_distance(in_row[: len(row)], plain_probabilities(model, row)) for in_row, row in zip(read, rows, strict=True))


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the mean distance of distributions, of shape (rows, vocabulary) each; infinite if a probability is no number."""
    distance = float((first - second).abs().sum(-1).mean() / 2)
    return distance if math.isfinite(distance) else math.inf


def _tolerance(model: Any) -> float:
    return _TOLERANCE.get(model.dtype, 0.08)


class _Probe:
    """Short sequences, with the probabilities that a model's plain forward pass gives after their tokens.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        self._tolerance = _tolerance(model)
        draw, size = random.Random(0), model.config.get_text_config().vocab_size
        words = range(min(100, size // 4), size)
        first, second, third, more = (tuple(draw.choice(words) for _ in range(_LENGTH)) for _ in range(4))
        self._prompts = [first, first[: _LENGTH // 2] + second[: _LENGTH // 3]]
        self._candidates = [list(more[:1]), list(more[:1] + more[2:4]), list(more[5:8])]
        later = first + more[:1] + second  # goes on from the first prompt
        self._lines = [(later, third[:3]), (later + more[:1], third[4:6])]
        pairs = [(prompt, tuple(tokens)) for prompt in self._prompts for tokens in self._candidates] + self._lines
        self._expected = torch.cat([plain_probabilities(model, prompt + tokens)[-1 - len(tokens) :] for prompt, tokens in pairs])

    def fault(self, prefixes: Prefixes) -> str:
        """Return what is wrong with the probabilities of this way of reading; empty if nothing is."""
        try:
            deviation = self.deviation(prefixes)
        except Exception as error:  # the model may be any of transformers, and its code may fail in any way
            return f"{type(error).__name__}: {error}"
        return "" if deviation <= self._tolerance else f"probabilities differ by {deviation:.2g}"

    def deviation(self, prefixes: Prefixes) -> float:
        """Return the mean distance between the probabilities of this way and the plain ones; infinite if one is not a number."""
        candidates = [
            Candidates.of(prefix, prompt, self._candidates, 0)
            for prefix, prompt in zip(prefixes.open(self._prompts), self._prompts, strict=True)
        ]
        logits = prefixes.compute([tree.branch for tree in candidates])
        for tree in candidates:
            tree.branch.keep(tree.branch.wanted[0] + 1)
        logits_read = [rows[path] for tree, rows in zip(candidates, logits, strict=True) for path in tree.rows]
        for known, draft in self._lines:
            (prefix,) = prefixes.open([known])
            size = len(known) - len(prefix.tokens)
            branch = Branch.line(prefix, [*known[len(prefix.tokens) :], *draft], range(size - 1, size + len(draft)))
            if prefixes.cuts_back:  # read a draft, and keep nothing of it
                logits_read += prefixes.compute([branch])
                branch.keep(size)
                continue
            for token in range(-1, len(draft)):
                part = branch.tokens[:size] if token < 0 else [draft[token]]
                branch_of_one = Branch.line(prefix, part, [len(part) - 1])
                logits_read += prefixes.compute([branch_of_one])
                branch_of_one.keep(len(part))
        return _distance(torch.cat(logits_read).softmax(-1).cpu(), self._expected)
