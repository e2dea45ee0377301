"""The command line as a whole."""

import subprocess
import sys

import pytest

from gym_text_policies import cli


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


def test_options_are_not_abbreviated(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "--seed", "3"])  # not --seeds, which would start the whole default run
    assert "got --seed. Did you mean --seeds?" in capsys.readouterr().err
