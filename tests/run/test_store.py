"""Stored episodes are whole or absent, and found again."""

import contextlib
import dataclasses
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.files.run_folders import RunFolder


def episode(key: str, error: str | None = None) -> Episode:
    step = Step({"text": f"Zeile „{key}“\n"}, Decision("go"), 1.0, True, False, True, False, 1.0, True)
    return Episode(key, {"id": "Env-v0"}, {"kind": "test"}, 0, (step,), {"text": "end"}, error)


def test_a_last_line_that_is_no_whole_record_is_said_and_cut_off(tmp_path, caplog):
    store = EpisodeStore(tmp_path)
    store.append(episode("a"))
    store.close()
    whole = store.path.read_bytes()
    for torn in (b'{"key": "b", "err', json.dumps(episode("b").to_json()).encode(), b'{"key": "b"\n', b"{}\n", b"\xff\xfe"):
        store.path.write_bytes(whole + torn)
        caplog.clear()
        with caplog.at_level(logging.WARNING), EpisodeStore(tmp_path) as again:
            assert len(again) == 1 and store.path.read_bytes() == whole + torn  # a reader leaves it: it may be on its way
            assert "the last line is no whole record and is left out" in caplog.text
            again.append(episode("c"))
        assert [e.key for e in EpisodeStore(tmp_path).episodes()] == ["a", "c"]


def test_a_broken_line_inside_the_file_is_an_error_and_nothing_is_lost(tmp_path):
    store = EpisodeStore(tmp_path)
    store.append(episode("a"))
    text = b"not an episode\n" + store.path.read_bytes()
    store.path.write_bytes(text)
    with pytest.raises(UsageError, match="line 1"):
        EpisodeStore(tmp_path)
    assert store.path.read_bytes() == text


def test_the_last_record_of_a_key_counts(tmp_path):
    store = EpisodeStore(tmp_path)
    store.append(episode("a", error="PolicyError: no answer"))
    assert store.has("a") and not store.has("a", retry_errors=True)
    store.append(episode("a"))
    assert store.has("a", retry_errors=True)
    assert [e.error for e in EpisodeStore(tmp_path).episodes()] == [None]


def test_a_folder_of_another_configuration_is_refused_and_the_keys_named(tmp_path):
    EpisodeStore(tmp_path, {"fold": "test", "modes": ("text",)})
    EpisodeStore(tmp_path, {"fold": "test", "modes": ["text"]})
    EpisodeStore(tmp_path, {"fold": "test"})  # what a later version compares
    with pytest.raises(UsageError, match=r"fold: stored 'test', given 'train'"):
        EpisodeStore(tmp_path, {"fold": "train", "modes": ["text"]})


WRITER = """
import sys
from gym_text_policies import EpisodeStore
store = EpisodeStore(sys.argv[1], {"fold": "test"})
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_run_into_one_folder_is_refused_until_the_first_has_ended_however(tmp_path):
    first = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=rf"expected a folder that no other run writes into; process {first.pid} on .* does"):
            EpisodeStore(tmp_path, {"fold": "test"})
        reader = EpisodeStore(tmp_path)
        with pytest.raises(StoreError, match="no other run"):
            reader.append(episode("a"))
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    reader.append(episode("a"))
    assert [e.key for e in reader.episodes()] == ["a"]


def test_a_store_that_is_closed_lets_another_write_and_sees_what_it_wrote(tmp_path):
    with EpisodeStore(tmp_path, {"fold": "test"}) as first:
        first.append(episode("a"))
    with EpisodeStore(tmp_path, {"fold": "test"}) as second:
        second.append(episode("b"))
    assert [e.key for e in first.episodes()] == ["a"]
    first.append(episode("c"))
    assert [e.key for e in first.episodes()] == ["a", "b", "c"]


def test_a_full_disk_is_an_error_and_what_is_stored_stays_whole(tmp_path):
    store = EpisodeStore(tmp_path)
    store.append(episode("a"))
    whole = store.path.read_bytes()
    long = dataclasses.replace(episode("b"), error="x" * 100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 50_000, limits[1]))  # a disk with room for half of the record
    try:
        with pytest.raises(StoreError, match=r"What was stored before is whole\. Make room"):
            store.append(long)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.path.read_bytes() == whole
    store.append(long)
    store.close()
    assert list(EpisodeStore(tmp_path).episodes()) == [episode("a"), long]


def test_a_folder_that_cannot_be_written_can_be_read(tmp_path):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # tmp_path lies in a folder that is closed to others
    try:
        with EpisodeStore(folder) as store:
            store.append(episode("a"))
        folder.chmod(0o555)
        if os.geteuid() == 0:
            try:
                os.seteuid(65534)  # permissions do not bind root
            except OSError:
                pytest.skip("this root cannot be anyone else")
        assert [e.key for e in EpisodeStore(folder).episodes()] == ["a"]
        for write in (lambda: EpisodeStore(folder).append(episode("b")), lambda: EpisodeStore(folder / "new", {})):
            with pytest.raises(StoreError, match="Name a folder that can be written"):
                write()
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o755)
        for file in (*folder.iterdir(), folder):
            file.unlink() if file != folder else file.rmdir()


def test_records_are_found_fast_and_read_with_care(tmp_path):
    keys = [f"{i:032x}" for i in range(3)]
    with EpisodeStore(tmp_path, {}) as store:
        store.append(episode(keys[0]))
        store.append(episode(keys[1], error='PolicyError: he said ", "error": null}'))
        store.append(episode(keys[2]))
    assert [store.has(key, retry_errors=True) for key in keys] == [True, False, True]
    again = EpisodeStore(tmp_path)
    assert [again.has(key, retry_errors=True) for key in keys] == [True, False, True]
    damaged = store.path.read_bytes().replace(b'"steps": [{', b'"steps": [}{')
    store.path.write_bytes(damaged)
    with pytest.raises(UsageError, match="expected an episode"):
        list(EpisodeStore(tmp_path).episodes())


def test_a_folder_in_which_nothing_was_made_belongs_to_nobody(tmp_path):
    RunFolder(tmp_path, {"model": "mistyped"}).close()
    with RunFolder(tmp_path, {"model": "right"}):
        (tmp_path / "made.txt").write_text("something")
    with pytest.raises(UsageError, match="these keys differ"):
        RunFolder(tmp_path, {"model": "another"})
    RunFolder(tmp_path, {"model": "right"}).close()
    assert (tmp_path / "config.json").exists()


@pytest.mark.parametrize("fault", ["another configuration", "no object", "a broken line"])
def test_a_refused_folder_is_free_although_the_error_is_kept(tmp_path, fault):
    with EpisodeStore(tmp_path, {"fold": "test"}) as store:
        store.append(episode("a"))
    broken = {"no object": ("config.json", "7"), "a broken line": ("episodes.jsonl", "{}\n{}\n")}
    if fault in broken:
        name, text = broken[fault]
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as kept:  # as in a notebook, whose last error holds all frames
        EpisodeStore(tmp_path, {"fold": "dev" if fault == "another configuration" else "test"})
    RunFolder(tmp_path).lock()
    assert kept.value.__traceback__ is not None


@pytest.mark.parametrize("name", ["episodes.jsonl", "config.json"])
def test_a_pipe_in_place_of_a_file_is_one_sentence(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match="expected a regular file; it is a pipe"):
        EpisodeStore(tmp_path, {"a": 1})


@pytest.mark.parametrize("name", [".lock", "episodes.jsonl"])
def test_no_link_is_written_through(tmp_path, name):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with contextlib.suppress(StoreError, UsageError), EpisodeStore(folder, {"a": 1}) as store:
        store.append(episode("a"))
    assert victim.read_text() == ""
