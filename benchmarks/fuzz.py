"""Fuzzing at length: the properties of tests/test_fuzz.py on many more random inputs, by hypothesis and by atheris.

atheris (https://github.com/google/atheris) finds inputs that reach new branches of the parsers; it is used where it is installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from gym_text_policies.options import add_fields

RESULTS = Path(__file__).parent / "results"
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

    examples: int = 2000
    """Inputs for each property, by hypothesis."""
    seconds: int = 20
    """Seconds for each parser, by atheris."""
    parser: str = ""
    """Fuzz this one alone, by atheris; it ends the process."""


@dataclass(frozen=True)
class Tried:
    """What came out of one property."""

    property: str
    by: str
    inputs: int
    seconds: float
    found: str
    """The failure; empty if there is none."""


def main() -> None:
    """Try all properties, print what was found, and write it to the results."""
    options = argparse.ArgumentParser(description=__doc__)
    add_fields(options, Config)
    config = Config(**vars(options.parse_args()))
    if config.parser:
        fuzz_one(config)
    tried = []
    for one in by_all(config):
        print(f"{one.property}, {one.by}: {one.inputs} inputs, {one.seconds:.0f} s{': ' * bool(one.found)}{one.found}", flush=True)
        tried.append(one)
    write(config, tried)
    if any(one.found for one in tried):
        sys.exit(1)


def by_all(config: Config) -> Iterator[Tried]:
    """Try all properties by hypothesis, and the parsers by atheris."""
    yield from by_hypothesis(config.examples)
    if importlib.util.find_spec("atheris"):
        for name in PARSERS:
            yield by_atheris(name, config.seconds)
    else:
        print("atheris is not installed: the parsers are fuzzed by hypothesis alone.")


def by_hypothesis(examples: int) -> list[Tried]:
    """Run the tests on more inputs than they have in the suite, and on others each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={path}", TESTS / "test_fuzz.py"]
        subprocess.run(command, env={**os.environ, "FUZZ_EXAMPLES": str(examples)}, stdout=subprocess.DEVNULL, check=False)
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    found = ["\n".join(part.text or "" for part in case) for case in cases]
    return [
        Tried(case.attrib["name"], "hypothesis", examples, float(case.attrib["time"]), failure)
        for case, failure in zip(cases, found, strict=True)
    ]


def by_atheris(name: str, seconds: int) -> Tried:
    """Run one parser in a process of its own, which atheris ends."""
    command = [sys.executable, __file__, "--parser", name, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    inputs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    return Tried(name, "atheris", int(inputs[1]) if inputs else 0, seconds, done.stderr[-5000:] if done.returncode else "")


def fuzz_one(config: Config) -> None:
    """Try a parser on inputs that atheris finds; this does not return."""
    import atheris

    sys.path.insert(0, str(TESTS))
    with atheris.instrument_imports(include=["gym_text", "gym_text_policies"]), tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where the input is left that causes a failure
        test = getattr(importlib.import_module("test_fuzz"), config.parser)
        atheris.Setup([sys.argv[0], f"-max_total_time={config.seconds}", "-print_final_stats=1"], test.hypothesis.fuzz_one_input)
        atheris.Fuzz()


def write(config: Config, tried: list[Tried]) -> None:
    """Write the table and the record."""
    RESULTS.mkdir(exist_ok=True)
    lines = ["| property | by | inputs | s | found |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.property.removeprefix('test_').replace('_', ' ')} | {one.by} | {one.inputs} | {one.seconds:.0f} "
        f"| {'a failure' if one.found else 'nothing'} |"
        for one in tried
    ]
    total = sum(one.inputs for one in tried)
    tools = ", ".join(f"{name} {version(name)}" for name in dict.fromkeys(one.by for one in tried))
    text = "\n".join(["`python benchmarks/fuzz.py`", "", *lines, "", f"{total} inputs in all; {tools}.", ""])
    (RESULTS / "fuzz.md").write_text(text)
    record = {"config": dataclasses.asdict(config), "tried": [dataclasses.asdict(one) for one in tried]}
    (RESULTS / "fuzz.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
