"""Files of a folder from elsewhere: read if they are regular and lie in it, written through no link."""

import os
import socket
import threading

import pytest

from gym_text import UsageError
from gym_text_policies.files.safe_files import check_folder, check_regular, is_regular, replacing


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plain").write_text("theirs")
    (folder / "within").symlink_to("plain")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    return folder


def test_a_regular_file_and_a_link_to_one_in_the_folder_may_be_read(folder):
    assert is_regular(folder / "plain", folder) and is_regular(folder / "within", folder)
    assert not is_regular(folder / "none", folder) and check_regular(folder / "none", folder)


@pytest.mark.parametrize(
    ("name", "message"), [("out", "a link out of it"), ("pipe", "it is a pipe"), (".", "it is a folder"), ("/dev/zero", "a device")]
)
def test_pipes_devices_folders_and_links_out_of_the_folder_may_not(folder, name, message):
    assert not is_regular(folder / name, folder)
    with pytest.raises(UsageError, match=message):
        check_regular(folder / name, folder)


def test_a_folder_with_a_pipe_in_it_is_not_given_to_another_library(folder, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"pipe: expected a regular file"):
        check_folder(tmp_path)
    (folder / "pipe").unlink()
    (folder / "round").unlink()
    check_folder(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(folder)  # the path of a socket has to be short
        server.bind("s")
        with pytest.raises(UsageError, match="it is a socket"):
            check_folder(tmp_path)


def test_a_link_in_the_way_of_what_is_written_is_removed_and_its_file_stays(folder, tmp_path):
    (folder / "table.md").symlink_to(tmp_path / "secret")
    with replacing(folder / "table.md") as file:
        file.write(b"new")
    assert (tmp_path / "secret").read_text() == "mine" and (folder / "table.md").read_text() == "new"
    assert not (folder / "table.md").is_symlink()


def test_what_was_not_written_to_its_end_leaves_the_old_file(folder):
    with pytest.raises(KeyboardInterrupt), replacing(folder / "plain") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert (folder / "plain").read_text() == "theirs" and not [*folder.glob("*.partial")]


def test_of_two_writers_at_once_none_shows_half_a_file_and_the_last_to_end_counts(folder):
    begun, ended = threading.Event(), threading.Event()
    shown = []

    def write_slowly():
        with replacing(folder / "plain") as file:
            file.write(b"slow, ")
            file.flush()
            begun.set()
            assert ended.wait(60)
            shown.append((folder / "plain").read_text())
            file.write(b"whole")

    slow = threading.Thread(target=write_slowly)
    slow.start()
    assert begun.wait(60)
    with replacing(folder / "plain") as file:
        file.write(b"fast, whole")
    ended.set()
    slow.join()
    assert shown == ["fast, whole"] and (folder / "plain").read_text() == "slow, whole"
    assert not [*folder.glob("*.partial")]
