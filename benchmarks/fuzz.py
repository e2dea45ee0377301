"""Fuzzing at length: the properties of tests/test_fuzz.py on many more random inputs, by hypothesis and by atheris.

atheris (https://github.com/google/atheris) finds inputs that reach new branches of the parsers; it is used where it is installed.
It sees branches only of modules that it has itself imported, so nothing of this project is imported at the top of this file.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

TESTS = Path(__file__).parent.parent / "tests"
PARSERS = (
    "test_an_answer_is_an_action_that_can_be_played_or_none",
    "test_any_value_is_an_action_of_a_spec_or_an_error_of_ours",
    "test_a_name_of_an_environment_is_read_or_an_error_of_ours",
    "test_a_stored_line_is_an_episode_or_an_error_that_names_it",
    "test_a_file_of_variants_is_read_or_an_error_of_ours",
    "test_a_file_of_an_experiment_is_read_or_an_error_of_ours",
)


@dataclass(frozen=True)
class Config:
    """How long to try."""

    only: tuple[Literal["hypothesis", "atheris"], ...] = ("hypothesis", "atheris")
    """Tools to run; the results of the other stay as they are."""
    examples: int = 2000
    """Inputs for each property, by hypothesis."""
    seconds: int = 20
    """Seconds for each parser, by atheris."""


@dataclass(frozen=True)
class Tried:
    """Result of trying one property."""

    property: str
    by: str
    inputs: int
    """By atheris, those it ran; by hypothesis, those it was asked for, or none if the test was skipped."""
    seconds: float
    found: str
    """The failure; empty if there is none."""
    branches: int = 0
    """By atheris: places of the code that the inputs have reached (`cov` of libFuzzer)."""


def main() -> None:
    """Try all properties, print what was found, and write it to the results."""
    from helpers.harness import options

    config = options(Config, __doc__)
    tried = []
    for one in by_all(config):
        reached = f", {one.branches} branches" if one.branches else ""
        failure = f": {one.found}" if one.found else ""
        print(f"{one.property}, {one.by}: {one.inputs} inputs{reached}, {one.seconds:.0f} s{failure}", flush=True)
        tried.append(one)
    write(config, tried)
    if any(one.found for one in tried):
        sys.exit(1)


def by_all(config: Config) -> Iterator[Tried]:
    """Try all properties by hypothesis, and the parsers by atheris."""
    if "hypothesis" in config.only:
        yield from by_hypothesis(config.examples)
    if "atheris" not in config.only:
        return
    if importlib.util.find_spec("atheris"):
        folder = tempfile.mkdtemp(prefix="fuzz-")
        print(f"Inputs that fail are left in {folder}.", flush=True)
        for name in PARSERS:
            yield by_atheris(name, config.seconds, folder)
    else:
        print("atheris is not installed: the parsers are fuzzed by hypothesis alone.")


def by_hypothesis(examples: int) -> list[Tried]:
    """Run the tests on more inputs than they have in the suite, and on others each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={path}", TESTS / "test_fuzz.py"]
        subprocess.run(command, env={**os.environ, "FUZZ_EXAMPLES": str(examples)}, stdout=subprocess.DEVNULL, check=False)
        return [read_case(case, examples) for case in ElementTree.parse(path).getroot().iter("testcase")]


def read_case(case: ElementTree.Element, examples: int) -> Tried:
    """Read what pytest says about one test; a skipped one has tried nothing."""
    inputs = 0 if case.find("skipped") is not None else examples
    failures = [f"{part.get('message')}\n{part.text}" for part in case if part.tag in ("failure", "error")]
    return Tried(case.attrib["name"], "hypothesis", inputs, float(case.attrib["time"]), "\n".join(failures))


def by_atheris(name: str, seconds: int, folder: str) -> Tried:
    """Run one parser in a process of its own, which atheris ends; an input that fails is left in the folder."""
    command = [sys.executable, __file__, "atheris", name, str(seconds), folder]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    inputs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    branches = [int(count) for count in re.findall(r"\bcov: (\d+)", done.stderr)]
    found = (done.stderr or "it failed without a word")[-5000:] if done.returncode or not inputs else ""
    return Tried(name, "atheris", int(inputs[1]) if inputs else 0, seconds, found, max(branches, default=0))


def fuzz_one(name: str, seconds: str, folder: str) -> None:
    """Try a parser on inputs that atheris finds; this does not return."""
    import atheris

    blind = sorted({"gym_text", "gym_text_policies"} & set(sys.modules))
    if blind:
        raise RuntimeError(f"expected nothing of this project to be imported before atheris can watch it; got {', '.join(blind)}")
    sys.path.insert(0, str(TESTS))
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/{name}-", "-print_final_stats=1"]
    with atheris.instrument_imports(include=["gym_text", "gym_text_policies"]):
        test = getattr(importlib.import_module("test_fuzz"), name)
        atheris.Setup([sys.argv[0], *options], test.hypothesis.fuzz_one_input)
        atheris.Fuzz()


def write(config: Config, tried: list[Tried]) -> None:
    """Write the table and the record. Earlier results of the other tool are kept."""
    from helpers import harness

    before = harness.earlier("fuzz").get("tried", [])
    kept = [Tried(**one) for one in before if one["by"] not in config.only]
    tried = sorted([*kept, *tried], key=lambda one: one.by, reverse=True)
    rows = (
        (
            *(one.property.removeprefix("test_").replace("_", " "), one.by, one.inputs or "skipped", one.branches or ""),
            *(f"{one.seconds:.0f}", "a failure" if one.found else "nothing"),
        )
        for one in tried
    )
    lines = harness.table(("property", "by", "inputs", "branches", "s", "found"), rows)
    total = sum(one.inputs for one in tried)
    tools = ", ".join(f"{name} {version(name)}" for name in dict.fromkeys(one.by for one in tried))
    notes = [
        f"{total} inputs in all; {tools}. Inputs of hypothesis are those it was asked for; branches are what atheris saw reached.",
    ]
    command = "`python benchmarks/fuzz.py`"
    if kept:
        command += f"; the rows of {' and '.join(config.only)} anew with `--only {' '.join(config.only)}`"
    record = {"config": dataclasses.asdict(config), "tried": [dataclasses.asdict(one) for one in tried]}
    harness.write("fuzz", "\n".join([command, "", lines, "", *notes]), record)


if __name__ == "__main__":
    fuzz_one(*sys.argv[2:]) if sys.argv[1:2] == ["atheris"] else main()
