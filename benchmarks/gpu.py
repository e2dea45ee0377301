"""Speed and memory on one GPU: play in ``choose`` and in words, SFT and PPO, each beside a plainer way.

The models are made from their configurations, with random weights and the embedded model's tokenizer, so that nothing is
downloaded. Random weights take as much time as trained weights, except for answers in words: there the time depends on how often
drafted tokens are accepted, and so on the model's answers. The prompts are those of `benchmarks/inference.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import inference
import torch
import training
from helpers.harness import command, options, table, write
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig, GenerationConfig

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.models import Source, device_of, load_model
from gym_text_policies.backends.local.smollm2 import quiet, smollm2_folder
from gym_text_policies.backends.local.tokens import end_of_turn
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.training.model.lora import TrainingDevice, add_lora, environment_record, load_base, set_dtype
from gym_text_policies.training.ppo import PPOConfig, train

_NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
_NAMES += ("num_attention_heads", "num_key_value_heads", "head_dim", "tie_word_embeddings")
SHAPES: dict[str, dict[str, int]] = {
    "tiny": dict(zip(_NAMES, (49_152, 32, 64, 2, 4, 2, 8, True), strict=True)),
    "0.5b": dict(zip(_NAMES, (151_936, 896, 4864, 24, 14, 2, 64, True), strict=True)),
    "8b": dict(zip(_NAMES, (151_936, 4096, 12_288, 36, 32, 8, 128, False), strict=True)),
}
"""Configurations of Qwen3's architecture: 1,591,488, 494,008,192 and 8,190,735,360 parameters."""
PAGE, BATCH = 256, 8192
"""Transformers' continuous batching: tokens of a block of its cache, and of one pass at most; its own defaults."""
REMEMBERED = 262_144
"""Tokens that play remembers: all of 64 episodes."""
STRIDE = 3
"""One prompt for each step is measured on every third step."""


@dataclass(frozen=True)
class Config:
    """What to measure."""

    device: TrainingDevice = "auto"
    """auto (CUDA where there is one, else MPS, else the CPU) or cpu. CUDA_VISIBLE_DEVICES picks one of several."""
    sizes: tuple[str, ...] = ("0.5b", "8b")
    """Models: 0.5b, 8b, or tiny, which is for tests."""
    precisions: tuple[str, ...] = ("bfloat16", "4bit")
    """Of the weights: float32, bfloat16, or 4bit, by bitsandbytes on CUDA."""
    environment: str = inference.ENV_ID
    """Of the training data and of PPO."""
    episodes: int = 64
    """Episodes of the expert that choose decides again."""
    together: tuple[int, ...] = (1, 8, 64)
    """Episodes asked in one call."""
    plain_decisions: int = 32
    """Decisions of the straightforward way, evenly taken from all."""
    answers: int = 16
    """Prompts that are answered in words, one of each episode."""
    answer_tokens: int = 64
    """Most tokens of an answer."""
    rows: int = 8
    """Gold episodes that SFT learns from."""
    rows_per_pass: int = 2
    """Of them, those that go through the model at once."""
    ppo_episodes: int = 8
    """Episodes of each of PPO's two iterations; the second is measured."""


@dataclass(frozen=True)
class Row:
    """One contender's figures."""

    size: str
    precision: str
    task: str
    """What is counted a second: rows of one task are compared."""
    way: str
    per_second: float | None = None
    ratio: float | None = None
    """Over the first way of the task, the plain one."""
    memory: float | None = None
    """Peak of the GPU's memory, in GB; on a CPU the process's highest until then."""
    failed: str = ""
    """Why there are no figures."""

    def beside(self, plain: Row | None) -> Row:
        """Return the row with its ratio over the task's first row, if both have figures."""
        known = plain is not None and plain.per_second and self.per_second
        return dataclasses.replace(self, ratio=self.per_second / plain.per_second) if known else self


Work = Callable[[], tuple[float, float]]
"""Does something, and returns its count and its seconds."""


# ---------------------------------------------------------------- the contenders


def make_model(size: str, folder: str, device: str) -> int:
    """Save a random model in bfloat16, made on the device, with the embedded model's tokenizer; return its parameters."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model("qwen3", max_position_embeddings=32_768, **ends, **SHAPES[size])
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True)
class Player:
    """A model that plays, and its requests. `load` returns the model and its tokenizer, which are loaded once."""

    config: Config
    plays: Sequence[inference.Play]
    load: Callable[[], tuple[Any, Any]]

    def backend(self) -> TransformersBackend:
        """Return a backend that has read nothing yet."""
        return TransformersBackend(*self.load(), "measured", max_cached_tokens=REMEMBERED)

    def prompts(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the requests' prompts as tokens."""
        return [inference.tokens_of(self.load()[1], request) for request in requests]

    def plain_choices(self) -> tuple[int, float]:
        """Read each prompt anew and generate 15 tokens."""
        requests = [request for play in self.plays for request in play]
        some = self.prompts(requests[:: -(-len(requests) // self.config.plain_decisions)])
        return len(some), self._generated(some, 15)[1]

    def choices(self, together: int) -> tuple[int, float]:
        """Score the candidates of every decision."""
        decisions = sum(map(len, self.plays))
        measured = inference.choose([self.backend()], self.plays, together, lambda request: None, decisions)  # beside nothing
        return decisions, decisions * measured.ours[0]

    def plain_words(self) -> tuple[int, float]:
        """Generate one answer after the other."""
        return self._generated(self.prompts(self.words()), self.config.answer_tokens)

    def our_words(self) -> tuple[int, float]:
        """Generate all answers together."""
        requests = [Request(request.messages, max_tokens=self.config.answer_tokens) for request in self.words()]
        backend, start = self.backend(), time.perf_counter()
        answers = backend.answer(requests)
        return sum(answer.tokens_out for answer in answers), time.perf_counter() - start

    def batched_words(self) -> tuple[int, float]:
        """Generate all answers by transformers' continuous batching, with room for all of them at once."""
        (model, tokenizer), prompts, most = self.load(), self.prompts(self.words()), self.config.answer_tokens
        blocks = sum(-(-(len(prompt) + most) // PAGE) + 1 for prompt in prompts)
        flash = importlib.util.find_spec("kernels") is None  # with that package transformers would download an attention
        settings = ContinuousBatchingConfig(
            page_size=PAGE, num_blocks=blocks, max_batch_tokens=min(BATCH, sum(map(len, prompts))), auto_switch_to_flash=flash
        )
        end = end_of_turn(tokenizer)
        generation = GenerationConfig(max_new_tokens=most, do_sample=False, eos_token_id=end, pad_token_id=end)
        results = model.generate_batch(prompts, generation, settings).values()
        errors = {result.error for result in results if result.error}
        if errors or len(results) < len(prompts):  # it logs its errors
            raise RuntimeError("; ".join(errors) or f"{len(results)} of {len(prompts)} answers")
        began, ended = zip(*(result.lifespan for result in results), strict=True)  # without its warming up
        return sum(len(result.generated_tokens) for result in results), max(ended) - min(began)

    def words(self) -> list[Request]:
        """Return the question in the middle of each episode, as many as are asked for."""
        return [play[len(play) // 2] for play in self.plays[: self.config.answers]]

    def _generated(self, prompts: Sequence[Sequence[int]], most: int) -> tuple[int, float]:
        """Generate by transformers, one prompt after the other; return the number of new tokens and the seconds."""
        model = self.load()[0]
        inference.generate(model, prompts[0], 2)  # warms up
        start = time.perf_counter()
        return sum(inference.generate(model, prompt, most) for prompt in prompts), time.perf_counter() - start


def learner(folder: str, precision: str, device: TrainingDevice) -> tuple[Any, Any]:
    """Return a model to train, with an adapter, and its tokenizer."""
    held = "float32" if precision == "float32" else "bfloat16"
    base, tokenizer = load_base(folder, dtype=held, load_in_4bit=precision == "4bit", device=device)
    model = add_lora(base)
    set_dtype(model, held)
    return model, tokenizer


def learnt(load: Callable[[], tuple[Any, Any]], learn: Callable[..., int], batches: Sequence[Any]) -> tuple[int, float]:
    """Do a forward and a backward pass for each batch, after one that warms up; return the actions learnt and the seconds."""
    model, tokenizer = load()
    wait = torch.cuda.synchronize if model.device.type == "cuda" else lambda: None
    learn(model, tokenizer, batches[0])
    wait()
    start = time.perf_counter()
    count = sum(learn(model, tokenizer, batch) for batch in batches)
    wait()
    return count, time.perf_counter() - start


def learnt_by_ppo(config: Config, folder: str, precision: str) -> tuple[float, float]:
    """Let PPO play and learn twice; return the decisions that the second iteration learnt from, and its seconds of learning."""
    with tempfile.TemporaryDirectory() as run:
        held = {"load_in_4bit": True} if precision == "4bit" else {"dtype": precision}
        where = {"folder": f"{run}/ppo", "model": folder, "device": config.device, **held}
        how = {"iterations": 2, "value_iterations": 0, "dev_every": 0, "episodes_per_iteration": config.ppo_episodes}
        train(PPOConfig(environments=(config.environment,), **where, **how))
        line = json.loads(Path(f"{run}/ppo/metrics.jsonl").read_text("utf-8").splitlines()[-1])
    return line["steps"], line["seconds_learn"]


# ---------------------------------------------------------------- measuring


def measured(row: Row, work: Work, on_gpu: bool) -> Row:
    """Return a row with the figures of some work. If the work fails, the row has the reason, and the other rows are measured."""
    if on_gpu:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        count, seconds = work()
    except Exception as error:  # out of memory, or anything that a library does not support here
        return dataclasses.replace(row, failed=f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return dataclasses.replace(row, per_second=count / seconds, memory=peak / 1e9)


def contenders(config: Config, folder: str, precision: str, plays: Sequence[inference.Play]) -> Iterator[tuple[str, str, Work]]:
    """Yield the task, the way and the work of each contender, the plain way of a task first. Each model is loaded when needed."""
    options = {"load_in_4bit": True} if precision == "4bit" else {"dtype": precision}
    load = functools.cache(lambda: load_model(Source.of(folder, device=config.device, **options)))
    player = Player(config, plays, load)
    yield "decisions/s", "straightforward: prompt read anew, 15 tokens generated", player.plain_choices
    for together in config.together:
        yield "decisions/s", f"`choose`, {together} at once", functools.partial(player.choices, together)
    yield "tokens/s in words", "`generate`, one at a time", player.plain_words
    yield "tokens/s in words", f"transformers' continuous batching, {config.answers} at once", player.batched_words
    yield "tokens/s in words", f"ours, {config.answers} at once", player.our_words
    load.cache_clear()

    with tempfile.TemporaryDirectory() as data:
        rows = collect(CollectConfig(f"{data}/rows", (config.environment,), (str(config.rows),)))
    batches = [rows[start : start + config.rows_per_pass] for start in range(0, len(rows), config.rows_per_pass)]
    steps = range(0, max(row.decisions for row in rows), STRIDE)
    load = functools.cache(lambda: learner(folder, precision, config.device))
    one_by_one = functools.partial(training.one_by_one, steps=steps)
    yield "SFT actions/s", training.RECIPE, functools.partial(learnt, load, one_by_one, [batch[:1] for batch in batches])
    yield "SFT actions/s", "whole episodes packed", functools.partial(learnt, load, training.packed, batches)
    load.cache_clear()
    yield "PPO decisions learnt/s", "two epochs", functools.partial(learnt_by_ppo, config, folder, precision)


def measure(config: Config) -> tuple[list[Row], dict[str, int]]:
    """Return the rows of all contenders, and the number of parameters of each model."""
    plays = inference.prompts_of_expert(config.episodes)
    rows: list[Row] = []
    parameters, device = {}, device_of(config.device)
    for size in config.sizes:
        with tempfile.TemporaryDirectory() as folder, quiet():
            parameters[size] = make_model(size, folder, device)
            for precision in config.precisions:
                plain: dict[str, Row] = {}  # task -> its first way
                for task, way, work in contenders(config, folder, precision, plays):
                    row = measured(Row(size, precision, task, way), work, device.startswith("cuda")).beside(plain.get(task))
                    plain.setdefault(task, row)
                    rows.append(row)
                    print(*cells_of(row), sep=" | ", flush=True)
    return rows, parameters


COLUMNS = ("model", "weights", "task", "way", "a second", "over the first way", "peak GB")


def cells_of(row: Row) -> list[str]:
    """Return a row of the table."""
    ratio = f"{row.ratio:.2f}" if row.ratio else ""
    figures = [row.failed, "", ""] if row.failed else [f"{row.per_second:.4g}", ratio, f"{row.memory:.1f}"]
    return [row.size, row.precision, row.task, row.way, *figures]


def main(config: Config, results: Path | None = None) -> list[Row]:
    """Measure everything, write the table, by default among the committed results, and return its rows."""
    rows, parameters = measure(config)
    record = {"config": dataclasses.asdict(config), "parameters": parameters, "ran_on": environment_record()}
    about = f"`{command()}`; {record['ran_on']['device']}; random weights; "
    about += "; ".join(f"{size}: {count:,} parameters" for size, count in parameters.items())
    text = f"{about}\n\n{table(COLUMNS, map(cells_of, rows))}"
    write("gpu", text, record | {"rows": [dataclasses.asdict(row) for row in rows]}, results)
    return rows


if __name__ == "__main__":
    main(options(Config, __doc__))
