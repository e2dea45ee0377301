"""From config dataclasses to command-line options, and the command line as a whole."""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from gym_text_policies import cli
from gym_text_policies.commands.options import add_fields


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


def test_inherited_fields_are_explained(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    printed = " ".join(capsys.readouterr().out.split())
    assert "none takes all." in printed and "100 % is 1. Default: 0.5." in printed and "Default: 64 64." in printed


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    config, _ = cli.COMMANDS[name].load()
    assert str(config.__doc__).split()[0] in capsys.readouterr().out


def test_help_loads_no_model_library():
    script = "import sys; from gym_text_policies import cli\n"
    script += "try: cli.main(['--help'])\nexcept SystemExit: print('modules', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert {"torch", "transformers", "jpype", "scipy", "matplotlib", "yaml", "shtab"} & loaded == set()
    assert all(name in done.stdout for name in cli.COMMANDS)


def test_a_misspelt_command_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bnch"])
    assert stopped.value.code == 2
    assert "Did you mean 'bench'" in capsys.readouterr().err


def test_a_misspelt_option_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["bench", "--llm-sedes=3"])
    assert stopped.value.code == 2
    assert "Did you mean --llm-seeds?" in capsys.readouterr().err


def test_shells_can_complete(capsys):
    pytest.importorskip("shtab")
    assert cli.main(["completion", "bash"]) == 0
    assert "--llm-seeds" in capsys.readouterr().out


def test_ctrl_c_is_130_and_a_closed_pipe_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(cli, "complete", lambda config: (_ for _ in ()).throw(KeyboardInterrupt))
    assert cli.main(["completion", "bash"]) == 130
    assert "What is done is kept" in capsys.readouterr().err
    monkeypatch.setattr(cli, "complete", lambda config: (_ for _ in ()).throw(PermissionError(13, "Permission denied", "runs")))
    assert cli.main(["completion", "bash"]) == 1
    assert "Permission denied: 'runs'" in capsys.readouterr().err
