"""Fuzzing at length: the properties of tests/test_fuzz.py on many more random inputs, by atheris where it is installed.

atheris (https://github.com/google/atheris) finds inputs that reach new branches of the parsers; without it hypothesis draws them.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings

from gym_text_policies.options import add_fields

TESTS = Path(__file__).parent.parent / "tests"
PARSERS = (
    "test_an_answer_is_an_action_that_can_be_played_or_none",
    "test_any_value_is_an_action_of_a_spec_or_an_error_of_ours",
    "test_a_name_of_an_environment_is_read_or_an_error_of_ours",
)
FILES = (
    "test_a_stored_line_is_an_episode_or_an_error_that_names_it",
    "test_a_file_of_variants_is_read_or_an_error_of_ours",
)


@dataclass(frozen=True)
class Config:
    """How long to try."""

    examples: int = 2000
    """Inputs for each property, by hypothesis."""
    seconds: int = 60
    """Seconds for each parser, by atheris."""
    parser: str = ""
    """Fuzz this one alone, by atheris; it ends the process."""


def main() -> None:
    """Try all properties; a failure is an exception with the input that caused it."""
    options = argparse.ArgumentParser(description=__doc__)
    add_fields(options, Config)
    config = Config(**vars(options.parse_args()))
    sys.path.insert(0, str(TESTS))
    if config.parser:
        by_atheris(config)
    for name in (*PARSERS, *FILES):
        start = time.perf_counter()
        by_hypothesis(name, config.examples)
        print(f"{name}: {config.examples} inputs, {time.perf_counter() - start:.0f} s", flush=True)
    if importlib.util.find_spec("atheris"):
        for name in PARSERS:
            subprocess.run([sys.executable, __file__, "--parser", name, "--seconds", str(config.seconds)], check=True)
    else:
        print("atheris is not installed: the parsers were fuzzed by hypothesis alone.")


def test_of(name: str) -> Any:
    """Return a property of tests/test_fuzz.py."""
    import test_fuzz

    return getattr(test_fuzz, name)


def by_hypothesis(name: str, examples: int) -> None:
    """Try a property on random inputs."""
    test = test_of(name)
    test._hypothesis_internal_use_settings = settings(  # hypothesis has no public way to set them for a test that is made
        test._hypothesis_internal_use_settings, max_examples=examples, derandomize=False
    )
    with tempfile.TemporaryDirectory() as folder:
        test(**({"tmp_path": Path(folder)} if name in FILES else {}))


def by_atheris(config: Config) -> None:
    """Try a parser on inputs that atheris finds; this does not return."""
    import atheris

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={config.seconds}"], test_of(config.parser).hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
