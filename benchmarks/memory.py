"""What fits on a GPU of 24, 48 or 80 GB, by arithmetic: the base, the adapter with Adam, the player, and what is left for tokens.

Beside it stand the peaks of a smaller model with random weights on this machine's CPU: they show that nothing holds another copy of
the base. `benchmarks/gpu.py` measures the peaks on a GPU. Sizes are in GB of 10**9 bytes.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu import SHAPES, make_model
from helpers.harness import command, options, table, write
from helpers.resident import STAGES, peaks_of

GPUS = (24, 48, 80)
ATTENTION = ("q", "k", "v", "o")
ACTIVATIONS = 229_568
"""Bytes that autograd keeps for a token in one layer of 8b, in bfloat16 with an adapter on all linear layers: counted on a CPU with
PyTorch's own attention, which a GPU takes, as the difference of two layers and one, and of 442 tokens and 242."""
LEFT_OUT = 1.5
"""GB of CUDA's context, of kernels and of blocks that the allocator holds, by experience."""


@dataclass(frozen=True)
class Config:
    """Which model, and how it is trained."""

    size: str = "8b"
    """Model of gpu.py: 8b, 0.5b or tiny."""
    rank: int = 16
    """Rank of the adapter."""
    measured: str = "0.5b"
    """Model of gpu.py that is measured on the CPU of a Linux machine, with an adapter of rank 16."""


@dataclass(frozen=True)
class Way:
    """A way to train a model; all sizes are in bytes."""

    shape: dict[str, int]
    four_bits: bool = False
    """Whether the base is in 4 bits; else in bfloat16."""
    attention: bool = False
    """Whether the adapter changes the layers of attention alone."""
    rank: int = 16
    eight_bits: bool = False
    """Whether the moments of Adam are in 8 bits, with a float32 for 256 of them."""

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each linear layer of a block."""
        shape = self.shape
        width, wide = shape["hidden_size"], shape["intermediate_size"]
        queries, keys = (shape[name] * shape["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
        mlp = {"gate": (width, wide), "up": (width, wide), "down": (wide, width)}
        return {"q": (width, queries), "k": (width, keys), "v": (width, keys), "o": (queries, width), **mlp}

    @property
    def linear(self) -> int:
        """Number of weights of all linear layers but the last."""
        return self.shape["num_hidden_layers"] * sum(a * b for a, b in self.layers.values())

    @property
    def parameters(self) -> int:
        """Number of all weights: linear layers, embeddings and last layer, and norms."""
        shape = self.shape
        tables = shape["vocab_size"] * shape["hidden_size"] * (1 if shape["tie_word_embeddings"] else 2)
        norms = shape["num_hidden_layers"] * 2 * (shape["hidden_size"] + shape["head_dim"]) + shape["hidden_size"]
        return self.linear + tables + norms

    @property
    def base(self) -> float:
        """Of the base. bitsandbytes keeps a float32 for each 64 weights of 4 bits; all but linear layers stay in bfloat16."""
        return (4 / 8 + 4 / 64) * self.linear + 2 * (self.parameters - self.linear) if self.four_bits else 2 * self.parameters

    @property
    def changed(self) -> list[tuple[int, int]]:
        """Inputs and outputs of the layers of a block that the adapter changes."""
        return [sizes for name, sizes in self.layers.items() if name in ATTENTION or not self.attention]

    @property
    def adapter(self) -> int:
        """Number of the adapter's weights."""
        return self.shape["num_hidden_layers"] * self.rank * sum(a + b for a, b in self.changed)

    @property
    def learning(self) -> float:
        """Of the adapter's weights, gradients and moments."""
        return (4 + 4 + (2 * (1 + 4 / 256) if self.eight_bits else 8)) * self.adapter

    @property
    def player(self) -> float:
        """Of the copy for play, which shares what has no adapter; a base in 4 bits is not copied."""
        return 0 if self.four_bits else 2 * self.shape["num_hidden_layers"] * sum(a * b for a, b in self.changed)

    @property
    def head(self) -> float:
        """Of the last layer in float32, in which logits are computed, while the model learns or is asked."""
        return 4 * self.shape["vocab_size"] * self.shape["hidden_size"]

    @property
    def total(self) -> float:
        """All of this together."""
        return self.base + self.learning + self.player + self.head

    @property
    def cached_token(self) -> float:
        """Of the keys and values of a token that play remembers, in bfloat16."""
        return 2 * 2 * self.shape["num_hidden_layers"] * self.shape["num_key_value_heads"] * self.shape["head_dim"]

    @property
    def kept_inputs(self) -> float:
        """Of the layers' inputs for a token, in bfloat16: what gradient checkpointing keeps of it."""
        return 2 * self.shape["num_hidden_layers"] * self.shape["hidden_size"]


def ways(config: Config) -> Iterator[tuple[str, Way]]:
    """Yield the ways of the table with their options."""
    for label, four_bits in (("--dtype bfloat16", False), ("--load-in-4bit", True)):
        for layers, attention in (("", False), (" --target-modules attention", True)):
            yield f"`{label}{layers}`", Way(SHAPES[config.size], four_bits, attention, config.rank)


def measured(size: str) -> list[tuple[str, float, int]]:
    """Return for each stage of training a model its name, its bytes by arithmetic, and its peak in a process of its own."""
    way = Way(SHAPES[size])
    adapted = way.base + 4 * way.adapter
    sums = (way.base, adapted, adapted + way.player + way.head, way.total)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tiny", size):
            make_model(name, f"{folder}/{name}", "cpu")
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            alone.apply(peaks_of, (f"{folder}/tiny",))  # so that all libraries are loaded before
            peaks = alone.apply(peaks_of, (f"{folder}/{size}",))
    return [(stage, by_arithmetic, peaks[stage]) for stage, by_arithmetic in zip(STAGES, sums, strict=True)]


COLUMNS = ("options", "base", "adapter, gradients, Adam", "player", "head in float32", "together")


def main(config: Config, results: Path | None = None) -> list[Way]:
    """Write the table, and return its ways."""
    rows, found = [], []
    for label, way in ways(config):
        sizes = [f"{size / 1e9:.1f}" for size in (way.base, way.learning, way.player, way.head, way.total)]
        left = [gpu - LEFT_OUT - way.total / 1e9 for gpu in GPUS]
        rows.append([label, *sizes, *(f"{room:.0f}" if room > 0 else "no" for room in left), "not run"])
        found.append(way)
    one = found[0]
    about = f"`{command()}`: {one.parameters:,} parameters, an adapter of rank {config.rank}; GB, and what is left of a GPU. "
    about += f"A token that play remembers takes {one.cached_token / 1e3:.0f} kB (keys and values); one that is learnt keeps "
    about += f"{one.kept_inputs / 1e3:.0f} kB with `--gradient-checkpointing`, and one layer's activations at a time."
    if config.size == "8b":
        without = ACTIVATIONS * one.shape["num_hidden_layers"]
        about += f" Without it that is {without / 1e6:.1f} MB, {ACTIVATIONS / 1e3:.0f} kB in each layer."
    text = f"{about}\n\n{table((*COLUMNS, *(f'left of {gpu}' for gpu in GPUS), 'peak on a GPU'), rows)}"
    stages, small = measured(config.measured), Way(SHAPES[config.measured])
    text += (
        f"\n\nMeasured on a CPU, with {small.parameters:,} random parameters and `--dtype bfloat16`: the process's resident memory "
    )
    text += f"beyond its libraries, GB. A copy of the base in float32 would take {4 * small.parameters / 1e9:.2f} more. "
    text += (
        "`load_base` and `player_of` also compare their fast ways with a plain pass, whose activations and logits the arithmetic "
    )
    text += "lacks.\n\n"
    figures = [(stage, f"{known / 1e9:.2f}", f"{peak / 1e9:.2f}", f"{(peak - known) / 1e9:+.2f}") for stage, known, peak in stages]
    text += table(("until then", "by arithmetic", "peak", "difference"), figures)
    record = {"config": dataclasses.asdict(config), "rows": [{"options": row[0], "cells": row[1:]} for row in rows]}
    record["measured"] = [{"stage": stage, "by_arithmetic": known, "peak": peak} for stage, known, peak in stages]
    write("memory", text, record, results)
    return found


if __name__ == "__main__":
    main(options(Config, __doc__))
