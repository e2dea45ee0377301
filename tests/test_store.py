"""Stored episodes are whole or absent, and found again."""

import json
import logging

import pytest

from gym_text import UsageError
from gym_text_policies import Decision, Episode, EpisodeStore, Step


def episode(key: str, error: str | None = None) -> Episode:
    step = Step({"text": f"Zeile „{key}“\n"}, Decision("go"), 1.0, True, False, True, False, 1.0, True)
    return Episode(key, {"id": "Env-v0"}, {"kind": "test"}, 0, (step,), {"text": "end"}, error)


def test_what_was_stored_is_read_by_another_store(tmp_path):
    store = EpisodeStore(tmp_path / "run")
    for key in ("a", "b"):
        store.append(episode(key))
    again = EpisodeStore(tmp_path / "run")
    assert list(again.episodes()) == [episode("a"), episode("b")]
    assert list(again.episodes(["b", "missing"])) == [episode("b")]
    assert again.has("a") and not again.has("c")


def test_a_torn_last_line_is_cut_off_and_said(tmp_path, caplog):
    store = EpisodeStore(tmp_path)
    store.append(episode("a"))
    whole = store.path.read_bytes()
    for torn in (b'{"key": "b", "err', json.dumps(episode("b").to_json()).encode(), b'{"key": "b"\n', b"\xff\xfe"):
        store.path.write_bytes(whole + torn)
        with caplog.at_level(logging.WARNING):
            again = EpisodeStore(tmp_path)
        assert "not written whole" in caplog.text
        assert len(again) == 1
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
    with pytest.raises(UsageError, match=r"fold: stored 'test', given 'train'"):
        EpisodeStore(tmp_path, {"fold": "train", "modes": ["text"]})
