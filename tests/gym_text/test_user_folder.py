"""The folder of what takes long to make: the user's, or a temporary one where there is no home."""

import os
import subprocess
import sys

import pytest

from gym_text.user_folder import cache_folder, user_folder

SCRIPT = """
import logging, pwd, os
logging.basicConfig(level=logging.WARNING)
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
from gym_text.user_folder import cache_folder, user_folder
from gym_text.textworld.level_files import games_folder
from gym_text_policies.files.user_cache import recall, remember
folder = cache_folder("games", "local")
remember("kind", {"a": 1}, 2)
assert folder == games_folder() and recall("kind", {"a": 1}) == 2
folder.mkdir()
print(user_folder("local"), folder)
"""


def run(folder, **environment):
    """Run the script in a folder, with this environment and without a user's entry; return what it printed and what it logged."""
    cleared = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "GYM_TEXT_GAMES")}
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, cwd=folder, env=cleared | {"PYTHONPATH": path} | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_a_home_keeps_what_was_made(tmp_path):
    (user, folder), told = run(tmp_path, HOME=str(tmp_path))
    assert (user, folder, told) == (f"{tmp_path}/.cache/gym-text", f"{tmp_path}/.cache/gym-text/games", "")
    assert os.path.isdir(folder)


@pytest.mark.parametrize("environment", [{}, {"HOME": "/proc/nowhere"}, {"XDG_CACHE_HOME": "/proc/nowhere", "HOME": "/proc"}])
def test_without_a_home_a_temporary_folder_does_and_one_sentence_says_so(tmp_path, environment):
    (*_, folder), told = run(tmp_path, **environment)
    assert told.count("cannot be written") == 1 and "XDG_CACHE_HOME can name another folder." in told
    assert folder.rpartition("/")[0] in told and not os.path.exists(folder)  # it went with the process
    assert list(tmp_path.iterdir()) == []  # and no folder is called ~


def test_what_lies_in_a_cache_that_cannot_be_written_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "gym-text" / "made").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder("made", "local") == user_folder("local") / "made"
    assert not cache_folder("other", "local").is_relative_to(tmp_path)
