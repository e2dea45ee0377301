"""Config dataclasses within config dataclasses: from Python, the command line and YAML."""

import argparse
import subprocess
from dataclasses import dataclass, field

import pytest

from gym_text import UsageError
from gym_text_policies.commands.options import add_fields
from gym_text_policies.settings.from_file import read_settings
from gym_text_policies.settings.sections import with_sections


@dataclass(frozen=True)
class Learning:
    """How it learns."""

    epochs: int = 1
    """How often."""
    model: str = "smollm2"
    """What."""
    layers: tuple[int, ...] = ()
    """Which."""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"epochs: expected 1 or more; got {self.epochs}.")


@dataclass(frozen=True)
class Rounds:
    """Learn in rounds."""

    rounds: int = 2
    """How many."""
    sft: Learning = field(default=Learning(epochs=5), metadata={"without": ("model",)})
    """How each round learns."""


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_fields(parser, Rounds)
    return Rounds(**with_sections(Rounds, vars(parser.parse_args(words))))


def test_a_section_keeps_its_defaults_where_nothing_is_given():
    assert with_sections(Rounds, {"rounds": 3, "sft.layers": (1, 2)}) == {"rounds": 3, "sft": Learning(5, layers=(1, 2))}
    with pytest.raises(UsageError, match=r"^sft\.epochs: expected 1 or more; got 0"):
        with_sections(Rounds, {"sft.epochs": 0})


def test_options_of_a_section_have_a_dot(capsys):
    assert parsed() == Rounds()
    assert parsed("--sft.layers", "1", "2", "--rounds", "4") == Rounds(4, Learning(5, layers=(1, 2)))
    with pytest.raises(SystemExit):
        parsed("--help")
    printed = " ".join(capsys.readouterr().out.split())
    assert "options of sft: --sft.epochs N How often. Default: 5." in printed and "--sft.model" not in printed


def test_shells_complete_options_of_a_section():
    shtab = pytest.importorskip("shtab")
    parser = argparse.ArgumentParser(prog="x")
    add_fields(parser, Rounds)
    script = shtab.complete(parser, "bash") + '\nCOMP_WORDS=(x --sft.e)\nCOMP_CWORD=1\n_shtab_x x --sft.e x\necho "${COMPREPLY[@]}"'
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60).stdout == "--sft.epochs\n"


def test_a_file_has_sections_and_options_beside_it_replace_single_keys(tmp_path):
    path = tmp_path / "rounds.yaml"
    path.write_text("sft:\n  layers: [1, 2]\n")
    assert read_settings(Rounds, path) == Rounds(2, Learning(5, layers=(1, 2)))
    assert read_settings(Rounds, path, {"sft.epochs": 7, "rounds": 3}) == Rounds(3, Learning(7, layers=(1, 2)))
    path.write_text("sft.epochs: 4")
    with pytest.raises(UsageError, match=r"line 1: got an unknown key 'sft\.epochs'"):
        read_settings(Rounds, path)
    path.write_text("sft:\n  model: x\n  epochs: 0.5\n")
    with pytest.raises(UsageError) as error:
        read_settings(Rounds, path)
    first, second = str(error.value).splitlines()
    assert first == f"{path}, line 2: sft: got an unknown key 'model'. Keys: epochs, layers."
    assert second == f"{path}, line 3: sft.epochs: expected an integer; got 0.5."
