"""Speed of the model in this process, compared with transformers' own generation, in one run.

All contenders read the same prompts: those of the expert's episodes of CookingWorld, with the whole episode in the prompt (strategy
``chat``). The straightforward way reads each prompt anew and generates 15 tokens by transformers, one episode at a time.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import gym_text  # noqa: F401  registers the environments
from gym_text.wrappers import History
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.smollm2 import quiet, smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.commands.options import add_fields
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import Prompt

ENV_ID = "CookingWorldText-v0"
RESULTS = Path(__file__).parent / "results"
Play = list[Request]
"""The requests of one episode, in order."""


@dataclass(frozen=True)
class Config:
    """What to measure."""

    episodes: int = 8
    """Episodes, all played to their end."""
    together: int = 8
    """Episodes asked in one call; compared with one."""
    plain_every: int = 4
    """The straightforward way decides only every n-th step: representative, in less time."""
    text_tokens: int = 48
    """Most tokens of an answer in words; measured on the prompts of one whole episode."""


def record(config: Config, strategy: str = "chat") -> list[Play]:
    """Return the requests of the expert's episodes."""
    env, prompt, plays = History(gym.make(ENV_ID, fold="test"), None), Prompt(strategy), []
    spec = text_spec(env)
    for seed in range(config.episodes):
        obs, info = env.reset(seed=seed)
        play = []
        for action in info["gold_path"]:
            play.append(Request(prompt.render(spec, obs), spec.names(obs)))
            obs, *_ = env.step(action)
        plays.append(play)
    return plays


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def tokens_of(tokenizer: Any, request: Request) -> list[int]:
    """Return a prompt's tokens."""
    tokens: list[int] = tokenizer.apply_chat_template(list(request.messages), add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    return tokens


def generate(model: Any, tokens: Sequence[int], most: int) -> int:
    """Generate greedily as transformers does; return the number of new tokens."""
    prompt = torch.tensor([tokens], device=model.device)
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=most, do_sample=False)
    return int(output.shape[1] - len(tokens))


def choose(backend: TransformersBackend, plays: Sequence[Play], together: int) -> tuple[float, int]:
    """Answer all requests, of `together` episodes in a call; return the seconds and the tokens that went through the model."""
    before, seconds = backend.tokens_computed, 0.0
    with tqdm(total=sum(map(len, plays)), desc=f"choose, {together} at once", unit=" decisions") as bar:
        for first in range(0, len(plays), together):
            group = plays[first : first + together]
            for step in range(max(map(len, group))):
                requests = [play[step] for play in group if step < len(play)]
                seconds += timed(lambda requests=requests: backend.answer(requests))
                bar.update(len(requests))
    return seconds, backend.tokens_computed - before


def new_tokens(tokenizer: Any, plays: Sequence[Play]) -> int:
    """Return the number of new tokens: what each prompt adds to the one before, and its candidates, each common beginning once."""
    count = 0
    for play in plays:
        earlier: list[int] = []
        for request in play:
            prompt = tokens_of(tokenizer, request)
            common = next(
                (i for i, (a, b) in enumerate(zip(prompt, earlier, strict=False)) if a != b), min(len(prompt), len(earlier))
            )
            names = [tokenizer(name, add_special_tokens=False)["input_ids"] for name in request.choices or ()]
            count += len(prompt) - common + len({tuple(name[: i + 1]) for name in names for i in range(len(name))})
            earlier = prompt
    return count


def gigaflops() -> float:
    """Return the machine's GFLOP/s in a matrix product of the model's size."""
    left, right = torch.randn(512, 576), torch.randn(576, 1536)
    for _ in range(20):
        left @ right
    return 200 * 2 * 512 * 576 * 1536 / timed(lambda: [left @ right for _ in range(200)]) / 1e9


def main() -> None:
    """Measure everything, print the table and write ``results/inference.json`` and ``.md``."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_fields(parser, Config)
    config = Config(**vars(parser.parse_args()))
    plays = record(config)
    decisions = sum(map(len, plays))
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
        model = AutoModelForCausalLM.from_pretrained(smollm2_folder(), dtype=torch.float32).eval()
    prompts = [tokens_of(tokenizer, request) for play in plays for request in play]
    generate(model, prompts[0], 2)  # warms up
    sample = tqdm(prompts[:: config.plain_every], desc="straightforward", unit=" decisions")
    plain = sum(timed(lambda prompt=prompt: generate(model, prompt, 15)) for prompt in sample) / len(prompts[:: config.plain_every])
    ours = AutoModelForCausalLM.from_pretrained(smollm2_folder(), dtype=torch.float32).eval()
    one, one_computed = choose(TransformersBackend(copy.deepcopy(ours), tokenizer, "one", optimise=True), plays, 1)
    many_backend = TransformersBackend(copy.deepcopy(ours), tokenizer, "many", optimise=True)
    many, many_computed = choose(many_backend, plays, config.together)
    fresh = new_tokens(tokenizer, plays)

    plain_rate, our_rate = write(model, ours, tokenizer, record(config, "reasoning")[0], config.text_tokens)
    rate, parameters = gigaflops(), sum(p.numel() for p in model.parameters())
    floor = 2 * parameters * fresh / decisions / rate / 1e9
    rows = [
        ("decisions", f"{decisions}", ""),
        ("straightforward, s a decision", f"{plain:.2f}", ""),
        ("`choose`, one episode at a time, s a decision", f"{one / decisions:.3f}", ""),
        (f"`choose`, {config.together} episodes at once, s a decision", f"{many / decisions:.3f}", ""),
        ("floor: new tokens x 2 x parameters / measured GFLOP/s, s a decision", f"{floor:.3f}", ""),
        ("measured GFLOP/s", f"{rate:.0f}", ""),
        ("one at a time / straightforward, decisions/s", f"{plain * decisions / one:.1f}", "at least 5"),
        (f"{config.together} at once / straightforward, decisions/s", f"{plain * decisions / many:.1f}", "at least 8"),
        (f"{config.together} at once / one at a time", f"{one / many:.2f}", "at least 1.3"),
        ("tokens computed / tokens new, one at a time", f"{one_computed / fresh:.3f}", "at most 1.15"),
        (f"tokens computed / tokens new, {config.together} at once", f"{many_computed / fresh:.3f}", "at most 1.15"),
        ("tokens/s in words, plain generate", f"{plain_rate:.1f}", ""),
        ("tokens/s in words, ours", f"{our_rate:.1f}", ""),
        ("the same, ratio", f"{our_rate / plain_rate:.2f}", "at least 1.8"),
    ]
    lines = ["| figure | measured | asked |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    data = {"config": asdict(config), "figures": {name: value for name, value, _ in rows}}
    (RESULTS / "inference.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "inference.md").write_text("\n".join(["`python benchmarks/inference.py`", "", *lines, ""]))


def write(model: Any, ours: Any, tokenizer: Any, requests: Sequence[Request], most: int) -> tuple[float, float]:
    """Return the tokens per second of transformers and of ours, one answer at a time, without the time for the prompt."""
    backend = TransformersBackend(ours, tokenizer, "text", optimise=True)
    plain_tokens = our_tokens = 0
    plain_seconds = our_seconds = 0.0
    for request in tqdm(requests, desc="in words", unit=" answers"):
        prompt = tokens_of(tokenizer, request)
        reading = timed(lambda prompt=prompt: generate(model, prompt, 1))
        start = time.perf_counter()
        plain_tokens += generate(model, prompt, most) - 1
        plain_seconds += time.perf_counter() - start - reading
        backend.answer([Request(request.messages, max_tokens=1)])  # reads the prompt
        start = time.perf_counter()
        our_tokens += backend.answer([Request(request.messages, max_tokens=most)])[0].tokens_out
        our_seconds += time.perf_counter() - start
    return plain_tokens / plain_seconds, our_tokens / our_seconds


if __name__ == "__main__":
    main()
