"""Faults at length: 20 kills of each kind of run, 1,000 requests to a faulty provider, memory over 10,000 episodes.

Each part writes its own entry of the results and leaves the others as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import split
from typing import Any, Literal

import gymnasium as gym
import psutil
from helpers import harness
from helpers.harness import earlier, options, run, table

from gym_text.mountain_car import MOUNTAIN_CAR_SPEC
from gym_text_policies import EpisodeStore, LLMPolicy, rollout
from gym_text_policies.backends.load import load_backend
from gym_text_policies.policy import text_spec

PARTS = ("bench", "search", "sft", "ppo", "memory", "providers")


@dataclass(frozen=True)
class Config:
    """What to try."""

    only: tuple[Literal["bench", "search", "sft", "ppo", "memory", "providers"], ...] = PARTS
    """Parts to run."""
    kills: int = 20
    """Random moments at which each kind of run is killed."""
    episodes: int = 10_000
    """Episodes of the part memory."""
    requests: int = 1000
    """Requests of the part providers, half of which meet a fault."""
    seed: int = 0
    """Seed of the moments."""


@dataclass(frozen=True)
class Run:
    """A kind of run that can be killed."""

    arguments: list[str]
    """Of `gym-text`; the folder follows."""
    result: Callable[[Path], Any]
    """From the folder to all that has to be equal, without timings."""
    prepare: Callable[[Path], tuple[str, ...]] = lambda folder: ()
    """Makes in a folder what the run needs, and returns the options that name it."""


def episodes_of(folder: Path) -> dict[str, str]:
    """Return a hash of each stored episode without its timings, by key."""
    hashes = {}
    for line in (folder / "episodes.jsonl").read_bytes().splitlines():
        record = json.loads(line)
        for step in record["steps"]:
            step["decision"].pop("seconds", None)
        assert record["key"] not in hashes, "an episode is stored twice"
        hashes[record["key"]] = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    return hashes


def evaluations_of(folder: Path) -> list[Any]:
    """Return the candidates of a search with their results, in the search's order."""
    records = [json.loads(line) for line in (folder / "evaluations.jsonl").read_bytes().splitlines()]
    assert len({record["index"] for record in records}) == len(records), "an evaluation is stored twice"
    return [[record["index"], record["proposal"]["parameters"], record["returns"]] for record in records]


def training_of(folder: Path) -> tuple[dict[str, str], list[Any]]:
    """Return a hash of the trained adapter, and the losses of its steps."""
    curve = json.loads((folder / "adapter" / "training.json").read_text())["curve"]
    return weights_of(folder / "adapter"), [[line["step"], line["loss"]] for line in curve]


def weights_of(folder: Path) -> dict[str, str]:
    """Return a hash of each file of weights in a folder and below."""
    paths = sorted(folder.rglob("*.safetensors"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def learning_of(folder: Path) -> tuple[dict[str, str], list[Any]]:
    """Return hashes of all weights that PPO has made (the best, the last, the optimiser's), and its metrics without timings."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["iteration"] for line in lines] == list(range(len(lines))), "an iteration is missing, or there twice"
    timeless = [{name: value for name, value in line.items() if "seconds" not in name and name != "minutes"} for line in lines]
    assert any(line.get("policy_loss") and line["grad_norm"] for line in lines), "nothing is learnt, so nothing is compared"
    return weights_of(folder), timeless


def prepare_training(folder: Path) -> tuple[str, ...]:
    """Make a small model with random weights, and the data of some expert's episodes."""
    from gym_text_policies.data.collect import CollectConfig, collect

    collect(CollectConfig(str(folder / "data"), ("BabyAIText-v0?task=goto",), ("16",)))
    return "--data", str(folder / "data" / "rows"), *prepare_model(folder)


def prepare_model(folder: Path, said: Sequence[str] = ()) -> tuple[str, ...]:
    """Make a small model with random weights, which says the tokens of some words about equally often and no others."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from gym_text_policies.backends.local.smollm2 import smollm2_folder
    from gym_text_policies.backends.local.tokens import text_tokens

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, **size)
    model = LlamaForCausalLM(config)
    if said:
        tokens = {tokenizer.eos_token_id, *(token for words in said for token in text_tokens(tokenizer, words))}
        with torch.no_grad():
            model.model.embed_tokens.weight[:, 0] = 1.0  # in every state, and beside it the rest is little
            model.lm_head.weight[sorted(tokens), 0] = 2.0
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return "--model", str(folder / "model")


RUNS = {
    "bench": Run(
        split(
            "bench --environments BabyAIText-v0?task=goto CookingWorldText-v0 --models 'scripted:go forward' "
            "--modes text --episodes 150 --llm-episodes 50 --folder"
        ),
        episodes_of,
    ),
    "search": Run(
        split("search --optimiser cma --evaluations 60 --num-rollouts 10 --folder"),
        evaluations_of,
    ),
    "sft": Run(
        split("sft --epochs 20 --max-steps 40 --save-steps 4 --folder"),
        training_of,
        prepare_training,
    ),
    "ppo": Run(
        split(
            "ppo --environments MountainCarContinuousLLM-v0?max_episode_steps=6 --iterations 8 --episodes-per-iteration 4 "
            "--group-size 1 --learning-rate 1e-3 --dev-every 3 --dev-episodes 2 --folder"
        ),
        learning_of,
        lambda folder: prepare_model(folder, [action.name for action in MOUNTAIN_CAR_SPEC.actions]),
    ),
}


def main() -> None:
    """Run the parts, print what came out, and write it to the results."""
    config = options(Config, __doc__)
    for part in config.only:
        others = {"memory": memory, "providers": providers}
        record = kill_and_resume(RUNS[part], config) if part in RUNS else others[part](config)
        kills = f" --kills {config.kills}" if part in RUNS and config.kills != Config.kills else ""
        record["command"] = f"python benchmarks/faults.py --only {part}{kills}"
        write(part, record)


def write(part: str, record: dict[str, Any]) -> None:
    """Put one part into the results."""
    records = earlier("faults") | {part: record}
    records = {name: records[name] for name in PARTS if name in records}
    rows = ((name, one["line"], f"`{one['command']}`") for name, one in records.items())
    harness.write("faults", table(("part", "result", "command"), rows), records)


def kill_and_resume(run: Run, config: Config) -> dict[str, Any]:
    """Kill a run again and again at random moments of its life, let it end, and compare with an undisturbed one.

    Each life lasts a random part of the time in which a resumed run starts and does its share of the work. If a run ends before it
    has been killed often enough, another run follows in a new folder. A run that was never killed does not count.
    """
    rng, kills, lives, kills_of_runs = random.Random(config.seed), 0, [], []
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole"
        run = replace(run, arguments=[run.arguments[0], *run.prepare(Path(scratch)), *run.arguments[1:]])
        undisturbed, expected = live(run, whole), run.result(whole)
        resumed = live(run, whole)  # what starting costs, about
        share = (undisturbed - resumed) / config.kills
        while kills < config.kills:
            folder, before = Path(scratch) / f"killed-{len(kills_of_runs)}", kills
            while kills < config.kills:
                life = rng.uniform(0, 2 * (resumed + share))
                if live(run, folder, life) < life:
                    break
                kills += 1
                print(f"killed {kills} times", file=sys.stderr, flush=True)
                lives.append(round(life, 2))
            else:
                live(run, folder)
            assert run.result(folder) == expected, "the resumed run gives something else"
            kills_of_runs.append(kills - before)
            shutil.rmtree(folder)
    runs = sum(map(bool, kills_of_runs))
    line = f"{kills} kills in {runs} runs of {undisturbed:.1f} s; resumed, all results equal the undisturbed run's"
    counts = {"kills": kills, "runs": runs, "kills_of_runs": kills_of_runs}
    return {"line": line, **counts, "lives": lives, "undisturbed_seconds": undisturbed}


def live(run: Run, folder: Path, life: float | None = None) -> float:
    """Run to the end, or kill the run after `life` seconds; return the seconds that it lived."""
    command = [sys.executable, "-m", "gym_text_policies.cli", *run.arguments, str(folder)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, error = process.communicate(timeout=life)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(error.decode()[-2000:])
    return min(time.perf_counter() - start, life or float("inf")) - 1e-9


def make_goto() -> gym.Env[Any, Any]:
    """Make the environment of the parts memory and providers: ten steps, so that episodes are short."""
    return gym.make("BabyAIText-v0", task="goto", expert="off", max_episode_steps=10)


def memory(config: Config) -> dict[str, Any]:
    """Play and store many episodes of a scripted model, and watch the memory of this process."""
    policy, process = LLMPolicy(load_backend("scripted:turn left"), text_spec(make_goto())), psutil.Process()
    sizes, start = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, EpisodeStore(folder, {}) as store:
        for number, episode in enumerate(rollout(make_goto, policy, range(config.episodes)), start=1):
            store.append(episode)
            if number % 1000 == 0:
                sizes.append(process.memory_info().rss)
        seconds = time.perf_counter() - start
        assert len(store) == config.episodes
    growth = sizes[-1] / sizes[0] - 1
    line = (
        f"{config.episodes} episodes of 10 steps, each synced to disk: {config.episodes / seconds:.0f} episodes/s; "
        f"memory {sizes[0] / 2**20:.0f} MB after the first 1,000, {growth:+.1%} at the end"
    )
    return {"line": line, "growth": growth, "sizes": sizes, "episodes_per_second": config.episodes / seconds}


def providers(config: Config) -> dict[str, Any]:
    """Play until the provider has met its requests, half of them with faults in random order."""
    from concurrency import provider  # of this folder

    outcomes: Counter[str] = Counter()
    seconds = 20 + config.requests
    with provider("--mischief", str(config.requests), "--seconds", str(seconds)) as url, tempfile.TemporaryDirectory() as folder:
        backend = load_backend("openai:m", base_url=f"{url}/v1", retries=1, timeout=3.0)
        policy = LLMPolicy(backend, text_spec(make_goto()))
        seeds = range(config.requests // 3)
        start = time.perf_counter()
        with EpisodeStore(folder, {}) as store:
            for episode in rollout(make_goto, policy, seeds, workers=16, num_envs=1):
                store.append(episode)
                outcomes[episode.outcome] += 1
            seconds = time.perf_counter() - start
            stored = list(store.episodes())
        backend.close()
    assert sorted(episode.seed for episode in stored) == list(seeds), "every episode once"
    assert sum(outcomes.values()) == len(seeds) and set(outcomes) <= {"won", "lost", "truncated", "error"}
    kinds = Counter(str(episode.error).split(": ")[2][:40] for episode in stored if episode.error)
    asked = sum(episode.length + 2 * (episode.error is not None) for episode in stored)  # at least: a second try stands for two
    assert asked >= config.requests, "every fault has happened"
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    first = f"the first {config.requests} requests, {config.requests // 2} of them with faults"
    line = f"{len(seeds)} episodes beside {first}: {told}; none missing, none twice; {seconds:.0f} s"
    return {"line": line, "outcomes": outcomes, "errors": kinds, "seconds": seconds}


if __name__ == "__main__":
    run(main)
