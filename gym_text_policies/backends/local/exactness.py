"""`exact_prefixes`: the fastest way of reading that gives a model's own probabilities. Each way is compared before it is used.

The comparison is with the model's plain forward pass, without a cache: the probabilities of the next token, after each token of a
few short sequences. Two sequences with a common start are read together, with candidates behind them. One sequence is continued.
Tokens are removed from one. Meanwhile sliding windows are narrowed to eight tokens, so that every sequence is longer than a window.
Models in a process with parts of the same kinds and the same configuration are compared once, as their weights do not decide it.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gym_text.errors import UsageError
from gym_text_policies.backends.local.cached import CachedPrefixes, RereadPrefixes, padded
from gym_text_policies.backends.local.linear import optimise_for_cpu
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Branch, Candidates, Prefixes

_WAYS: tuple[type[Prefixes], ...] = (PackedPrefixes, CachedPrefixes, RereadPrefixes)
_PACKED_LAYERS = {"full_attention", "sliding_attention"}
"""Kinds of layers, by transformers' names, in which tokens influence each other by attention alone."""
_WINDOW = 8
"""Tokens of a sliding window during the comparison."""
_LENGTH = 24
"""Tokens of a sequence in the comparison."""
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.08}
"""Greatest mean total variation distance (half the sum of absolute differences, 0 to 1) that rounding may explain."""
_found: dict[tuple[Any, ...], type[Prefixes]] = {}
"""The ways of models that were optimised, by the kinds of their parts, their configuration, precision and device."""


def exact_prefixes(model: Any, max_tokens: int, *, optimise: bool = False) -> Prefixes:
    """Return the fastest way to read a model that gives the probabilities of its plain forward pass.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        max_tokens: See `Prefixes`.
        optimise: Prepare the model for inference on a CPU, see `optimise_for_cpu`. The caller cannot use the model afterwards.

    Raises:
        UsageError: If no way gives these probabilities.
    """
    reasons = []
    key = frozenset(map(type, model.modules())), str(model.config), model.dtype, model.device
    if optimise and (known := _found.get(key)):
        model = optimise_for_cpu(model)
        if plain_probabilities(model, range(3)).isfinite().all():
            return known(model, max_tokens)
    with narrow_windows(model):
        probe = _Probe(model)
        if optimise:
            model = optimise_for_cpu(model)
        for way in _WAYS if may_be_packed(model) else _WAYS[1:]:
            reason = probe.fault(way(model, 10_000))
            if not reason:
                break
            reasons.append(f"{way.way}: {reason}")
        else:
            raise UsageError(
                f"model: expected one whose probabilities can be computed reliably; {type(model).__name__} gives others than its "
                f"plain forward pass in every way ({'; '.join(reasons)})."
            )
    if optimise:
        _found[key] = way
    return way(model, max_tokens)


def packs(model: Any) -> bool:
    """Return whether a model can be trained on packed rows; if not, it can be trained on rows padded on the right.

    Both are compared with the probabilities of the plain forward pass.

    Args:
        model: A causal language model of transformers, in evaluation mode.

    Raises:
        UsageError: If neither gives these probabilities, so that gradients would be wrong.
    """
    draw, size = random.Random(0), model.config.get_text_config().vocab_size
    rows = [[draw.randrange(size // 4, size) for _ in range(length)] for length in (_LENGTH, _LENGTH // 2)]
    with narrow_windows(model), torch.inference_mode():
        if may_be_packed(model) and not _Probe(model).fault(PackedPrefixes(model, 10_000)):
            return True
        logits = model(input_ids=torch.tensor(padded(rows), device=model.device), use_cache=False).logits.float().cpu()
        read = zip(logits.softmax(-1), rows, strict=True)
        deviation = max(_distance(in_row[: len(row)], plain_probabilities(model, row)) for in_row, row in read)
    if deviation > _TOLERANCE.get(model.dtype, 0.08):
        raise UsageError(
            f"model: expected one whose tokens do not see what comes after them; {type(model).__name__} gives other probabilities "
            f"in a padded row (by {deviation:.2g})."
        )
    return False


def may_be_packed(model: Any) -> bool:
    """Return whether a model's configuration allows several sequences in one row; whether it works, a comparison decides."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    recurrent = any(hasattr(config, name) for name in ("layers_block_type", "ssm_cfg", "mamba_d_state", "state_size"))
    return set(kinds) <= _PACKED_LAYERS and not recurrent


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


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the mean distance of distributions, of shape (rows, vocabulary) each; infinite if a probability is no number."""
    distance = float((first - second).abs().sum(-1).mean() / 2)
    return distance if math.isfinite(distance) else math.inf


class _Probe:
    """Short sequences, with the probabilities that a model's plain forward pass gives after their tokens.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        self._tolerance = _TOLERANCE.get(model.dtype, 0.08)
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
            deviation = self._deviation(prefixes)
        except Exception as error:  # the model may be any of transformers, and its code may fail in any way
            return f"{type(error).__name__}: {error}"
        return "" if deviation <= self._tolerance else f"probabilities differ by {deviation:.2g}"

    def _deviation(self, prefixes: Prefixes) -> float:
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
            size, tokens = len(known) - len(prefix.tokens), [*known[len(prefix.tokens) :], *draft]
            # where tokens can be removed, a draft is read, and nothing of it is kept
            parts = [tokens] if prefixes.cuts_back else [tokens[:size], *([token] for token in draft)]
            for part in parts:
                branch = Branch.line(prefix, part, range(min(size, len(part)) - 1, len(part)))
                logits_read += prefixes.compute([branch])
                branch.keep(min(size, len(part)))
        return _distance(torch.cat(logits_read).softmax(-1).cpu(), self._expected)
