"""Servers of decision models: how coherent their answers are (JevBench), how they search (BeelineBench), how fast they are.

``exact``, ``listed`` and ``labels`` are ``gym-text serve`` with that ``--decide``. They and ``transformers serve`` serve the
embedded model in float32. vLLM 0.32 has ``/v1/systemone`` for other architectures only, such as Qwen3's. What is measured is a
section of one result, ``decision_models``, in which only the rows of the measured servers are replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import psutil
from serving import serving
from transformers import AutoTokenizer

from gym_text_policies.backends.local.smollm2 import smollm2_folder
from helpers.harness import command, earlier, table, write

TITLES = {"jevbench": "JevBench 0.1.0", "beelinebench": "BeelineBench 1.0.1", "speed": "Decisions a second"}
JEVBENCH = """
import json, sys, jevbench
url, model, suite = sys.argv[1:]
suite, _, domain = suite.partition("/")
some = {"domains": [domain], "min_n": 1} if domain else {}
report = jevbench.evaluate(jevbench.systemone(url, model=model, timeout=3600.0), suite=suite, cache=":memory:", **some)
figures = {"overall": report.overall, "interval": report.interval, "dimensions": report.dimensions, "relations": report.relations}
print(json.dumps({**figures, "errors": len(report.errors), "requests": report.result.get("requests")}))
"""
BEELINEBENCH = """
[run]
benchmark = "short"
choosers = ["local"]

[chooser.local]
protocol = "jev"
model = {model}
api_base = {url}
max_requests = 200000
max_input_tokens = 1000000000

[benchmark.short]
trials = 10
max_expansions = 30
max_frontier = 26

[benchmark.short.domains.countdown]
heuristic = "nearest_number"
numbers = 4
largest_number = 25
smallest_target = 10
largest_target = 100

[benchmark.short.domains.blocksworld]
heuristic = "h_ff"
blocks = 4
"""
"""The official rules, except for 26 states to choose from, as there are labels, at most 30 explorations and 4 blocks."""
SIZES = [(tokens, options) for tokens in (300, 2000) for options in (5, 26, 100)]
"""Tokens of a state, and options of the question about it."""
STEPS = 2
"""Requests behind the first one, in each of which the state has grown by a step."""


@contextlib.contextmanager
def decision_server(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Serve the embedded model in float32 as a decision model; yield the address and the model's name.

    Args:
        name: A way of ``gym-text serve --decide``, or ``transformers serve``.
        folder: Of the server's log.
    """
    model = str(smollm2_folder()) if name == "transformers serve" else "smollm2"
    arguments = ["transformers", "serve", model, "--dtype", "float32", "--device", "cpu"]
    if name != "transformers serve":
        arguments = ["gym-text", "serve", "--model", model, "--decide", name]
    with serving(arguments, "/health", folder / f"{name}.log", HF_HUB_OFFLINE="1") as url:
        yield url, model


def measure(what: str, names: Sequence[str], python: str, suite: str) -> None:
    """Let JevBench or BeelineBench ask each server, or measure their speed, and write the result.

    Args:
        what: ``jevbench``, ``beelinebench`` or ``speed``.
        names: Of the servers.
        python: The Python of an environment that has the benchmark.
        suite: JevBench's suite; ``SUITE/DOMAIN`` for the tests of one domain.
    """
    if what == "speed":
        speeds(names)
        return
    for name in names:
        with tempfile.TemporaryDirectory() as folder, decision_server(name, Path(folder)) as (url, model):
            start = time.perf_counter()
            if what == "jevbench":
                asked = [python, "-c", JEVBENCH, f"{url}/v1/systemone", model, suite]
                figures = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True, cwd=folder).stdout)
            else:
                figures = searched(python, url, model, Path(folder))
            seconds = {"seconds": time.perf_counter() - start, "load": psutil.getloadavg()[0]}
        write_section(what, {f"{suite}: {name}" if what == "jevbench" else name: figures | seconds}, python)


def searched(python: str, url: str, model: str, folder: Path) -> dict[str, Any]:
    """Return what BeelineBench's ``local`` chooser did with a server in each domain."""
    (folder / "beelinebench.toml").write_text(BEELINEBENCH.format(model=json.dumps(model), url=json.dumps(f"{url}/v1")), "utf-8")
    asked = [python, "-m", "beelinebench", "run", "--chooser", "local"]
    subprocess.run(asked, check=True, cwd=folder, env=os.environ | {"BEELINEBENCH_HOME": str(folder)})
    figures: dict[str, Any] = {}
    for path in sorted(folder.glob("results/*/local/*.jsonl")):
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        arms = {"model": "score", "random": "random_score", "heuristic": "baseline_score", "oracle": "oracle_score"}
        figures[path.name.partition(".")[0]] = {
            **{arm: geometric_mean(record[key] for record in records) for arm, key in arms.items()},
            "solved": mean(record["model_solved"] for record in records),
            "trials": len(records),
            "requests": sum(record["requests"] for record in records),
            "median ms": median(ms for record in records for ms in record["latencies_ms"]),
        }
    return figures


def speeds(names: Sequence[str]) -> None:
    """Measure how fast each server decides. For each request the servers take turns, in the other order at every second one."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    turns = itertools.cycle([names, names[::-1]])
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {name: stack.enter_context(decision_server(name, folder)) for name in names}
        for url, model in servers.values():
            decided(url, model, "Go?", 2)  # what is loaded or compiled at the first request
        for tokens, options in SIZES:
            state = f"Game {tokens} {options}.\n"
            while len(tokenizer(state)["input_ids"]) < tokens:
                state += step(state.count("\n"))
            for number in range(1 + STEPS):
                for name in next(turns):
                    row = rows[name].setdefault(f"{tokens}, {options}", {"cold": [], "a step more": []})
                    row["a step more" if number else "cold"].append(decided(*servers[name], state, options))
                state += step(state.count("\n"))
            write_section("speed", rows)


def per_second(seconds: Sequence[float | None]) -> float | None:
    """Return decisions a second; None if there is none."""
    spent = [each for each in seconds if each is not None]
    return len(spent) / sum(spent) if spent else None


def step(number: int) -> str:
    """Return a line of a state: an action and what is seen then."""
    way = ("north", "east", "south")[number % 3]
    return f"Step {number}: go {way}. You see a door, {number} apples and a key on table {number}.\n"


def decided(url: str, model: str, state: str, options: int) -> float | None:
    """Return the seconds of processor time that a server takes to decide; None if it refuses."""
    criteria = {f"take the {('red', 'blue', 'green')[n % 3]} key from drawer {n}": None for n in range(options)}
    question = {"type": "choice", "instructions": "Which action is best now?", "criteria": criteria}
    body = json.dumps({"model": model, "state": state, "questions": {"next": question}}).encode()
    request = urllib.request.Request(f"{url}/v1/systemone", body, {"Content-Type": "application/json"})
    before = processor_seconds(url)
    try:
        urllib.request.urlopen(request, timeout=3600).close()
    except urllib.error.HTTPError as refused:
        refused.close()
        return None
    return processor_seconds(url) - before


def processor_seconds(url: str) -> float:
    """Return the processor time of the server of an address, all its processes together."""
    port = url.rpartition(":")[2]
    (server,) = [child for child in psutil.Process().children() if port in child.cmdline()]
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def write_section(what: str, rows: dict[str, dict[str, Any]], python: str = "") -> None:
    """Write rows, each with its command, into a section of the result; rows of earlier runs stay where there are no new ones."""
    record = earlier("decision_models")
    asked_by = command().replace(python, "PYTHON") if python else command()
    record[what] = record.get(what, {}) | {name: row | {"command": asked_by} for name, row in rows.items()}
    reports = {"jevbench": coherence_report, "beelinebench": search_report, "speed": speed_report}
    lines = []
    for key, title in TITLES.items():
        if key in record:
            commands = dict.fromkeys(f"`{row['command']}`  " for row in record[key].values())
            lines += [f"## {title}", "", *commands, "", *reports[key](record[key]), ""]
    write("decision_models", "\n".join(lines), record)


def coherence_report(rows: dict[str, Any]) -> list[str]:
    """Return JevBench's scores as two tables in Markdown: of its dimensions, and of each relation."""
    dimensions, relations = (list(next(iter(rows.values()))[key]) for key in ("dimensions", "relations"))

    def score(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f}"

    lines = [
        (
            name,
            score(row["overall"]),
            " to ".join(map(score, row["interval"] or ())),
            *(score(row["dimensions"].get(each)) for each in dimensions),
            f"{row['seconds']:.0f}",
            f"{row['load']:.1f}",
        )
        for name, row in rows.items()
    ]
    each = [(relation, *(score(row["relations"].get(relation)) for row in rows.values())) for relation in relations]
    return [
        table(("suite: server", "overall", "95 %", *dimensions, "seconds", "load"), lines),
        "",
        "The embedded model in float32: the share of tests, in per cent, in which answers agree with one another.",
        "REP: other words for the same; BAT: other questions in a request; MEA: complements, merged and split options; LOG:",
        "bounds, order; CHO: another choice of options. 100 is best. A model that always says one half has much of it, too.",
        "",
        table(("relation", *rows), each),
    ]


def search_report(rows: dict[str, Any]) -> list[str]:
    """Return BeelineBench's scores as a table in Markdown."""
    arms = ("model", "random", "heuristic", "oracle")
    lines = [
        (
            name,
            domain,
            *(f"{row[domain][arm]:.3f}" for arm in arms),
            f"{row[domain]['solved']:.0%}",
            row[domain]["requests"],
            f"{row[domain]['median ms']:.0f}",
            f"{row['load']:.1f}",
        )
        for name, row in rows.items()
        for domain in sorted(row.keys() - {"seconds", "load", "command"})
    ]
    return [
        table(("server", "domain", *arms, "solved", "requests", "ms, median", "load"), lines),
        "",
        "Ten trials of each domain. A score is the explorations of a perfect search as a share of those made, 1 at best; random,",
        "heuristic and oracle choose in the same search. The rules are the official ones, except for 26 states to choose from,",
        "as there are labels, at most 30 explorations, and 4 blocks in place of 7.",
    ]


def speed_report(rows: dict[str, Any]) -> list[str]:
    """Return the speeds as a table in Markdown, each also as a multiple of that of ``transformers serve``."""

    def cell(name: str, size: str, kind: str) -> str:
        speed, other = (per_second(rows.get(each, {}).get(size, {}).get(kind, ())) for each in (name, "transformers serve"))
        return "" if speed is None else f"{speed:.2f}" if other is None else f"{speed:.2f} ({speed / other:.1f})"

    lines = [
        (tokens, options, kind, *(cell(name, f"{tokens}, {options}", kind) for name in rows))
        for tokens, options in SIZES
        for kind in ("cold", "a step more")
    ]
    return [
        table(("tokens of the state", "options", "state", *rows), lines),
        "",
        "Decisions for each second of the server's processor time, one thread; behind it, in brackets, as a multiple of that of",
        "transformers serve. Empty: refused, as there are labels for 62 options, in transformers serve for 26. A step more: the",
        "state of the request before and one line.",
    ]
