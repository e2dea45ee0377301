"""Speed of the model in this process, compared with transformers' own generation, in one run.

All contenders read the same prompts: those of the expert's episodes of CookingWorld, with the whole episode in the prompt (strategy
``chat``). The straightforward way reads each prompt anew and generates 15 tokens by transformers in float32, one episode at a time.
Contenders take turns: at each step of the episodes, and for each answer in words. llama.cpp takes part where the wheel
``xllamacpp`` is installed. It runs as its server starts, without drafts; ours drafts by prompt lookup.

``python benchmarks/inference.py`` measures all parts; names, as in ``python benchmarks/inference.py search``, measure single parts.
The table has all parts that were measured in this call or an earlier one. They are to be measured on one machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from helpers.harness import command, earlier, options, run, table, timed, write
from helpers.llamacpp import LlamaCpp
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import check_choice
from gym_text.wrappers import History
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.local.linear import FusedLinear
from gym_text_policies.backends.local.smollm2 import quiet, smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.policies.config import DEFAULTS
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policies.lookahead import LookAhead, SearchSettings
from gym_text_policies.policy import Policy, text_spec
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Decision, Turn
from gym_text_policies.training.model.lora import environment_record

ENV_ID = "CookingWorldText-v0"
Play = list[Request]
"""The requests of one episode, in order."""
Plain = Callable[[Request], object]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    names: tuple[str, ...] = field(default=(), metadata={"positional": True})
    """Parts to measure: choose, words, search; none: all. A wrong name is answered with the list."""
    episodes: int = 8
    """Episodes, all played to their end."""
    together: int = 8
    """Episodes asked in one call; compared with one."""
    text_tokens: int = 48
    """Most tokens of an answer in words."""
    text_episodes: int = 2
    """Episodes whose prompts are answered in words."""
    simulations: int = 32
    """Simulations of a decision that looks ahead."""
    searched_steps: int = 2
    """Decisions of each episode that look ahead; the first is made after six steps of the expert, the next after twelve …"""


def prompts_of_expert(episodes: int, strategy: str = "chat", env_id: str = ENV_ID, first: int = 0, **arguments: Any) -> list[Play]:
    """Return the requests of the expert's episodes."""
    env, prompt, plays = History(gym.make(env_id, fold="test", **arguments), None), Prompt(strategy), []
    spec = text_spec(env)
    for seed in range(first, first + episodes):
        obs, info = env.reset(seed=seed)
        play = []
        for action in info["gold_path"]:
            play.append(Request(prompt.render(spec, obs), spec.names(obs)))
            obs, *_ = env.step(spec.encode(action, obs))
        plays.append(play)
    return plays


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


def load(dtype: torch.dtype) -> Any:
    """Return the embedded model."""
    with quiet():
        return AutoModelForCausalLM.from_pretrained(smollm2_folder(), dtype=dtype).eval()


def backend(tokenizer: Any, dtype: torch.dtype) -> TransformersBackend:
    """Return the embedded model as we run it."""
    return TransformersBackend(load(dtype), tokenizer, str(dtype), optimise=True)


@dataclass(frozen=True)
class Choosing:
    """What `choose` measures."""

    plain: float
    """Of the straightforward way, s a decision."""
    ours: tuple[float, ...]
    """Of each backend, s a decision."""
    computed: int
    """Tokens that went through the first backend."""


def choose(backends: Sequence[TransformersBackend], plays: Sequence[Play], together: int, plain: Plain, every: int) -> Choosing:
    """Let each backend answer all requests, of `together` episodes in a call.

    Args:
        backends: They take turns at each step.
        plays: The requests.
        together: Number of episodes.
        plain: Answers one request in the straightforward way. In every n-th call it answers one request; the time of this request
            stands for all requests of the call.
        every: The number n.
    """
    before, seconds, calls = backends[0].tokens_computed, [0.0] * len(backends), 0
    sampled, plain_seconds = 0, 0.0
    with tqdm(total=sum(map(len, plays)), desc=f"choose, {together} at once", unit=" decisions") as bar:
        for first in range(0, len(plays), together):
            group = plays[first : first + together]
            for step in range(max(map(len, group))):
                requests = [play[step] for play in group if step < len(play)]
                for index, each in enumerate(backends):
                    seconds[index] += timed(lambda each=each, requests=requests: each.answer(requests))
                if calls % every == 0:
                    request = requests[step % len(requests)]
                    plain_seconds += len(requests) * timed(lambda request=request: plain(request))
                    sampled += len(requests)
                calls += 1
                bar.update(len(requests))
    decisions = sum(map(len, plays))
    return Choosing(plain_seconds / sampled, tuple(own / decisions for own in seconds), backends[0].tokens_computed - before)


def new_tokens(tokenizer: Any, plays: Sequence[Play]) -> tuple[int, int]:
    """Return the number of new tokens, and to how many tokens they attend, all of them together.

    New are the tokens that each prompt adds to the prompt before, and those of its candidates as a trie.
    """
    count, attended = 0, 0
    for play in plays:
        earlier: list[int] = []
        for request in play:
            prompt = tokens_of(tokenizer, request)
            common = next(
                (i for i, (a, b) in enumerate(zip(prompt, earlier, strict=False)) if a != b), min(len(prompt), len(earlier))
            )
            names = [tokenizer(name, add_special_tokens=False)["input_ids"] for name in request.choices or ()]
            candidates = {tuple(name[: i + 1]) for name in names for i in range(len(name))}
            count += len(prompt) - common + len(candidates)
            attended += sum(range(common + 1, len(prompt) + 1)) + sum(len(prompt) + len(name) for name in candidates)
            earlier = prompt
    return count, attended


def gigaflops(dtype: torch.dtype) -> float:
    """Return the machine's GFLOP/s in a matrix product of the model's size."""
    layer, inputs = FusedLinear(torch.nn.Linear(576, 1536), dtype), torch.randn(512, 576, dtype=dtype)
    with torch.inference_mode():
        best = min(timed(lambda: [layer(inputs) for _ in range(40)]) for _ in range(10))
    return 40 * 2 * 512 * 576 * 1536 / best / 1e9


def gigabytes() -> float:
    """Return the gigabytes that the machine reads from memory in a second."""
    numbers = torch.ones(2**27)  # 512 MiB
    return 4 * numbers.nbytes / min(timed(lambda: [numbers.sum() for _ in range(4)]) for _ in range(3)) / 1e9


def choices(config: Config, tokenizer: Any, model: Any) -> list[tuple[str, str, str]]:
    """Return the rows on ``choose``."""
    plays, types = prompts_of_expert(config.episodes), (torch.float32, torch.bfloat16)
    decisions, (fresh, attended) = sum(map(len, plays)), new_tokens(tokenizer, plays)
    layers, width = model.config.num_hidden_layers, model.config.num_attention_heads * model.config.head_dim
    operations = 2 * sum(p.numel() for p in model.parameters()) * fresh / decisions, 4 * layers * width * attended / decisions
    rows_of_work = [
        (f"GFLOP a decision: {what}", f"{number / 1e9:.1f}", "")
        for what, number in zip(("layers and logits", "attention"), operations, strict=True)
    ]

    def plain(request: Request) -> int:
        return generate(model, tokens_of(tokenizer, request), 15)

    plain(plays[0][0])  # warms up
    one = choose([backend(tokenizer, dtype) for dtype in types], plays, 1, plain, config.together)
    many = choose([backend(tokenizer, dtype) for dtype in types], plays, config.together, plain, 1)
    rows = [("decisions", f"{decisions}", ""), *rows_of_work]
    asked = {(config.together, 0): "at least 8", (config.together, 1): "at least 14"}
    for together, measured in ((1, one), (config.together, many)):
        rows.append((f"straightforward, beside {together} at once, s a decision", f"{measured.plain:.2f}", ""))
        for index, (dtype, seconds) in enumerate(zip(types, measured.ours, strict=True)):
            name = f"{together} at once, {str(dtype).removeprefix('torch.')}"
            rows.append((f"`choose`, {name}, s a decision", f"{seconds:.3f}", ""))
            rows.append(
                (f"{name} / straightforward, decisions/s", f"{measured.plain / seconds:.1f}", asked.get((together, index), ""))
            )
    rows.append((f"{config.together} at once / one at a time, float32", f"{one.ours[0] / many.ours[0]:.2f}", "at least 1.3"))
    for together, measured in ((1, one), (config.together, many)):
        rows.append((f"tokens computed / tokens new, {together} at once", f"{measured.computed / fresh:.3f}", "at most 1.15"))
    for dtype in types:
        name, rate = str(dtype).removeprefix("torch."), gigaflops(dtype)
        rows.append((f"measured GFLOP/s, {name}", f"{rate:.0f}", ""))
        floor = sum(operations) / rate / 1e9
        rows.append((f"floor, {name}: GFLOP a decision / GFLOP/s, s a decision", f"{floor:.3f}", ""))
        rows.append((f"at the floor, {name} / straightforward, decisions/s", f"{many.plain / floor:.1f}", ""))
    return rows


def words(config: Config, tokenizer: Any, model: Any) -> list[tuple[str, str, str]]:
    """Return the rows on answers in words: tokens a second, one answer at a time, without the time for reading the prompt."""
    contenders: dict[str, Callable[[Request, int], int]] = {
        "transformers": lambda request, most: generate(model, tokens_of(tokenizer, request), most)
    }
    for name, dtype in (("ours, float32", torch.float32), ("ours, bfloat16", torch.bfloat16)):
        own = backend(tokenizer, dtype)
        contenders[name] = lambda request, most, own=own: own.answer([Request(request.messages, max_tokens=most)])[0].tokens_out
    if LlamaCpp.installed():
        engine = LlamaCpp(torch.get_num_threads())
        contenders["llama.cpp, 4-bit weights"] = lambda request, most: engine.generate(tokens_of(tokenizer, request), most)
    tokens, seconds = dict.fromkeys(contenders, 0), dict.fromkeys(contenders, 0.0)
    requests = [request for play in prompts_of_expert(config.text_episodes, "reasoning") for request in play]
    for request in tqdm(requests, desc="in words", unit=" answers"):
        for name, contender in contenders.items():
            reading = timed(lambda contender=contender, request=request: contender(request, 1))
            start = time.perf_counter()
            tokens[name] += contender(request, config.text_tokens) - (name == "transformers")
            seconds[name] += (
                time.perf_counter() - start - (reading if name == "transformers" else 0)
            )  # the others remember the prompt
    rates = {name: tokens[name] / seconds[name] for name in contenders}
    rows = [(f"tokens/s in words, {name}", f"{rate:.1f}", "") for name, rate in rates.items()]
    rows.append(("ours, float32 / transformers", f"{rates['ours, float32'] / rates['transformers']:.2f}", "at least 1.8"))
    for name in ("ours, float32", "ours, bfloat16"):
        ahead = f"{rates[name] / rates['llama.cpp, 4-bit weights']:.2f}" if LlamaCpp.installed() else "`xllamacpp` is not installed"
        rows.append((f"{name} / llama.cpp", ahead, "more than 1"))
    memory = gigabytes()
    weights = 4 * sum(parameter.numel() for parameter in model.parameters()) / 1e9
    return [
        *rows,
        ("measured GB/s", f"{memory:.0f}", ""),
        ("most passes/s, float32: measured GB/s / weights", f"{memory / weights:.0f}", ""),
    ]


class Leaves(TransformersBackend):
    """Keeps what it is asked."""

    requests: Sequence[Request] = ()

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer as ever."""
        self.requests = [*self.requests, *requests]
        return super().answer(requests)


def turns_of_expert(policy: Policy, episodes: int, steps: int) -> list[Turn]:
    """Return the turns of the expert's episodes after a number of steps, or before the last step of a shorter one."""
    turns = []
    for seed in range(episodes):
        env = policy.wrap(gym.make(ENV_ID, fold="test"))
        obs, info = env.reset(seed=seed)
        path = info["gold_path"][:-1][:steps]
        for action in path:
            obs, *_ = env.step(policy.spec.encode(action, obs))
        turns.append(Turn(obs, np.random.default_rng(seed), f"{seed}", len(path)))
    return turns


def searches(config: Config, tokenizer: Any, model: Any) -> list[tuple[str, str, str]]:
    """Return the rows on a policy that looks ahead."""
    return [row for dtype in (torch.float32, torch.bfloat16) for row in search(config, tokenizer, model, dtype)]


def search(config: Config, tokenizer: Any, model: Any, dtype: torch.dtype) -> list[tuple[str, str, str]]:
    """Return the rows on a policy that looks ahead by PUCT in the middle of episodes that are played together.

    Reading anew is a plain pass over a leaf's whole prompt, without its actions; one leaf of eight stands for all.
    """
    name, spec = str(dtype).removeprefix("torch."), text_spec(gym.make(ENV_ID))
    leaves = Leaves(load(dtype), tokenizer, name, optimise=True)
    player = LLMPolicy(leaves, spec, strategy="chat", mode="choose", history="all")
    given = {**DEFAULTS.settings, "lookahead": "puct", "simulations": config.simulations}
    policy, seconds, simulations, computed = LookAhead(player, SearchSettings.of(given)), 0.0, 0, 0
    anew: list[float] = []
    whole: list[int] = []
    for steps in range(6, 6 * config.searched_steps + 1, 6):
        turns, decisions = turns_of_expert(policy, config.together, steps), list[Decision]()
        player.decide(turns)  # in an episode the path so far was read in earlier decisions
        leaves.requests, computed = (), computed - leaves.tokens_computed
        seconds += timed(lambda turns=turns, decisions=decisions: decisions.extend(policy.decide(turns)))
        computed += leaves.tokens_computed
        simulations += sum(1 + sum((decision.visits or {}).values()) for decision in decisions)
        for request in tqdm(leaves.requests[::8], desc=f"leaves after {steps} steps, {name}", unit=" prompts"):
            tokens = tokens_of(tokenizer, request)
            whole.append(len(tokens))
            with torch.inference_mode():
                anew.append(timed(lambda tokens=tokens: model(torch.tensor([tokens]), logits_to_keep=1)))
    rate, plain = simulations / seconds, len(anew) / sum(anew)
    return [
        (f"simulations/s, {config.together} episodes at once, {name}", f"{rate:.1f}", ""),
        (f"{name} / reading each leaf's whole prompt anew in float32", f"{rate / plain:.1f}", "at least 10"),
        (
            f"tokens computed a simulation, {name} (a whole prompt: {sum(whole) / len(whole):.0f})",
            f"{computed / simulations:.0f}",
            "",
        ),
    ]


PARTS = {"choose": choices, "words": words, "search": searches}
"""By their names on the command line."""


def main() -> None:
    """Measure parts, print the table and write ``results/inference.json`` and ``.md``."""
    config = options(Config, __doc__)
    for name in config.names:
        check_choice("part", name, PARTS)
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    model = load(torch.float32)
    parts = dict(earlier("inference").get("parts", {}))
    for name in config.names or PARTS:
        rows = PARTS[name](config, tokenizer, model)
        parts[name] = {"command": command(), "config": asdict(config), "rows": rows, "ran_on": environment_record()}
    parts = {name: parts[name] for name in PARTS if name in parts}
    shown = [row for part in parts.values() for row in part["rows"]]
    write("inference", table(("figure", "measured", "asked"), shown), {"parts": parts})


if __name__ == "__main__":
    run(main)
