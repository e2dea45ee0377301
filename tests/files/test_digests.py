"""Files are told apart by their content, which is read once."""

import os
import time
from pathlib import Path

import pytest

from gym_text import UsageError
from gym_text_policies.files import digests
from gym_text_policies.files.digests import file_digest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the user's cache folder, an empty one; files count as settled at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_SETTLED", -60e9)
    return tmp_path / "cache" / "gym-text" / "digests"


@pytest.fixture
def reads(monkeypatch):
    """Return the files that are hashed, in their order."""
    found, usual = [], digests.hashlib.file_digest
    monkeypatch.setattr(digests.hashlib, "file_digest", lambda file, kind: found.append(Path(file.name).name) or usual(file, kind))
    return found


def test_a_file_is_read_once_by_all_processes_of_a_user(tmp_path, reads, cache):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert file_digest(path) == file_digest(path) == "ba7816bf8f01cfea"  # the beginning of SHA-256's published example
    assert file_digest(path) == "ba7816bf8f01cfea" and reads == ["weights"] and len(list(cache.iterdir())) == 1


def test_an_edit_in_place_is_noticed_that_changes_neither_size_nor_time(tmp_path, reads):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    before, stat = file_digest(path), path.stat()
    time.sleep(0.02)  # longer than a file system's clock ticks
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns and file_digest(path) != before


def test_a_digest_of_a_file_that_has_just_changed_is_not_kept(tmp_path, reads, monkeypatch):
    monkeypatch.setattr(digests, "_SETTLED", 2e9)
    (tmp_path / "weights").write_bytes(b"abc")
    assert file_digest(tmp_path / "weights") == file_digest(tmp_path / "weights") and reads == ["weights"] * 2


def test_place_and_times_do_not_count_but_names_within_a_folder_do(tmp_path):
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_bytes(b"abc")
    before = file_digest(folder)
    os.utime(folder / "deep" / "a", (1, 1))
    (folder / ".hidden").write_bytes(b"x")
    folder = folder.rename(tmp_path / "moved")
    assert file_digest(folder) == before
    (folder / "deep" / "a").rename(folder / "deep" / "b")
    assert file_digest(folder) != before


@pytest.mark.parametrize("text", ["", "0123456789ABCDEF", "\udcff"])
def test_a_damaged_record_is_no_record(tmp_path, reads, cache, text):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    file_digest(path)
    (record,) = cache.iterdir()
    record.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert file_digest(path) == "ba7816bf8f01cfea" and reads == ["weights"] * 2
    assert file_digest(path) == "ba7816bf8f01cfea" and reads == ["weights"] * 2, "the record was replaced"


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="no_such: expected a file that can be read; No such file"):
        file_digest(tmp_path / "no_such")
    with pytest.raises(UsageError, match="expected a regular file"):
        file_digest("/dev/null")
