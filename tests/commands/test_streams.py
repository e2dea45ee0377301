"""Standard streams of a command: one that cannot show a letter ends nothing."""

import logging
import os
import subprocess
import sys

from gym_text_policies import cli
from gym_text_policies.cli import ShownFormatter, shown
from gym_text_policies.commands import envs

BENCH = ("bench", "--models", "random", "--environments", "BabyAIText-v0?max_episode_steps=2", "--baselines", "none")
BENCH += ("--episodes", "1", "--fold", "none")


def command(folder, *words, **environment):
    """Run a command; return its exit status and what it wrote as bytes."""
    path = os.pathsep.join(sys.path)
    whole = [sys.executable, "-m", "gym_text_policies.cli", *words]
    settings = dict(os.environ, PYTHONPATH=path, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") | environment
    done = subprocess.run(whole, cwd=folder, env=settings, capture_output=True, timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def test_help_and_tables_are_shown_in_any_encoding(tmp_path):
    settings = {"PYTHONIOENCODING": "ascii"}
    status, out, error = command(tmp_path, "bench", "--help", **settings)
    assert (status, error) == (0, b"") and b"max_cost" in out
    status, out, error = command(tmp_path, "bench", "--models", "n\u00e9ant\u2026", "--environments", "BabyAIText-v0", **settings)
    assert status == 2 and b"Traceback" not in error and b"gym-text: " in error


def test_what_somebody_said_does_nothing_to_a_terminal(tmp_path, capsys, monkeypatch):
    said = "one\x1b]0;taken\x07 \x9b31m\rtwo\tthree\nfour"
    assert shown(said) == "one\ufffd]0;taken\ufffd \ufffd31m\ufffdtwo\tthree\nfour"
    monkeypatch.setattr(envs, "run", lambda config: said)
    assert cli.main(["envs"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert cli.main(["bench", "--environments", "\x1b]0;taken\x07"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    record = logging.LogRecord("gym_text", logging.INFO, "", 0, "%s", (said,), None)
    assert ShownFormatter("%(message)s").format(record) == shown(said)
