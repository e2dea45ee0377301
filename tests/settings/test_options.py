"""From config dataclasses to command-line options."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from gym_text_policies.commands.parser import add_fields


@dataclass(frozen=True)
class Base:
    """What both have."""

    seeds: int | None = None
    """How many; none takes all."""


@dataclass(frozen=True)
class Options(Base):
    """One field of each type."""

    runs: tuple[str, ...] = ()
    """Folders."""
    rate: float = 0.5
    """100 % is 1."""
    history: int | Literal["all"] = 0
    """Steps."""
    mode: Literal["text", "json"] = "text"
    """How."""
    layers: tuple[int, ...] = (64, 64)
    """Sizes."""
    quiet: bool = False
    """Say nothing."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment."""
    place: str = field(default="here", metadata={"positional": True})
    """Where."""


def parse(*words):
    parser = argparse.ArgumentParser()
    add_fields(parser, Options)
    return Options(**vars(parser.parse_args(words)))


def test_every_type_of_field_is_an_option():
    assert parse() == Options()
    words = "there --seeds 3 --runs a b --rate 1e-3 --history all --mode json --layers 8 --quiet --kwargs n=2 s=x"
    given = parse(*words.split())
    assert given == Options(3, ("a", "b"), 0.001, "all", "json", (8,), True, {"n": 2, "s": "x"}, "there")
    assert parse("--seeds", "none", "--history", "4", "--no-quiet") == Options(history=4)


@pytest.mark.parametrize("words", [("--history", "few"), ("--seeds", "1.5"), ("--mode", "txt"), ("--kwargs", "n")])
def test_a_wrong_value_is_refused_with_what_was_expected(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(*words)
    assert stopped.value.code == 2
    assert words[0] in capsys.readouterr().err
