"""Answers on disk: plain data that several processes share; what is damaged, foreign or hostile is one sentence."""

import json
import os
import sqlite3
import struct
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gym_text.errors import StoreError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.cache import _TABLE, AnswerCache, key_of_request
from gym_text_policies.records import Tokens

ANSWER = Answer("go north", finish="stop", tokens_in=30, tokens_out=3, cost=0.5, reference="e7")
LIKELY = Answer(
    probabilities={"a": 0.25, "b": 0.75}, probability_kind="likelihood", tokens_in=9, tokens={"a": Tokens((1, 2), (3,), (-0.5,))}
)


def get(folder, key="k", answer=ANSWER):
    """Return what the cache of a folder says of a key, and whether it had to ask."""
    asked = []
    cache = AnswerCache(folder)
    try:
        return cache.get(key, lambda: asked.append(key) or answer), bool(asked)
    finally:
        cache.close()


def write(path, value, key="k"):
    """Write a row past the cache."""
    with sqlite3.connect(path) as table:
        table.execute(_TABLE) if not path.stat().st_size else None
        table.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, value))
    table.close()


@pytest.mark.parametrize("answer", [ANSWER, LIKELY])
def test_an_answer_is_read_again_by_another_run_and_costs_nothing(tmp_path, answer):
    assert get(tmp_path / "new" / "folder", answer=answer) == (answer, True)
    again, asked = get(tmp_path / "new" / "folder")
    assert not asked and (again.tokens_cached, again.cost, again.reference) == (answer.tokens_in, 0.0, None)
    kept = (answer.text, answer.finish, answer.probabilities, answer.tokens)
    assert (again.text, again.finish, again.probabilities, again.tokens) == kept


@pytest.mark.parametrize(
    ("text", "finish"), [("", "stop"), (" \n", None), ("go nor", "length"), ("I cannot go", "refusal"), ("go", "content_filter")]
)
def test_what_is_no_whole_answer_is_asked_again(tmp_path, text, finish):
    for _ in range(2):
        assert get(tmp_path, answer=Answer(text, finish=finish, tokens_in=5))[1]


CHAT = ({"role": "user", "content": "A red ball."},)
OF_EARLIER_VERSIONS = {
    "641f5657041b40384e7edd56fa1e94b989442335c0d84aba779f5d65350cb6c7": Request(CHAT, max_tokens=7, temperature=0.5, seed=3),
    "3e3c647f09620572f5499629e3a0bf31f4ce5f85dd8070c777bc0741c27a3f84": Request(
        CHAT, schema={"type": "object"}, episode="7", tokens=True, read=(1, 2)
    ),
    "924a918d33cb96e5ee731755b8ec195b9ffd5910e16e72d8ca739519017b48ed": Request(CHAT, ("go", "wait")),
}


@pytest.mark.parametrize("key", OF_EARLIER_VERSIONS)
def test_a_request_of_an_earlier_version_keeps_its_key_and_each_new_setting_changes_it(key):
    config, request = {"backend": "openai", "model": "m", "server": "lab"}, OF_EARLIER_VERSIONS[key]
    assert key_of_request(config, request) == key
    new = {"think": False, "think_tokens": 9, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "tool": {"name": "act"}, "picture": b"PNG"}
    keys = {key_of_request(config, replace(request, **{name: value})) for name, value in new.items()}
    assert len(keys | {key}) == len(new) + 1
    assert key_of_request(config, replace(request, picture=b"another")) not in keys


def test_an_answer_of_an_earlier_version_is_read_and_one_without_a_thought_is_stored_in_its_form(tmp_path):
    stored = {
        **{"text": "go north", "finish": "stop", "probabilities": None, "probability_kind": None, "tokens_in": 30, "tokens_out": 3},
        **{"tokens_cached": 0, "turns_dropped": 0, "cost": 0.5, "reference": "e7", "tokens": None},
    }
    get(tmp_path)
    with sqlite3.connect(tmp_path / "answers.sqlite") as table:
        ((text,),) = table.execute("SELECT answer FROM answers")
    table.close()
    assert json.loads(text) == stored
    write(tmp_path / "answers.sqlite", json.dumps(stored), "old")
    again, asked = get(tmp_path, "old")
    assert not asked and (again.text, again.reasoning, again.tokens_reasoning) == ("go north", None, 0)


def test_a_thought_is_stored_with_its_answer(tmp_path):
    thought = Answer("go", reasoning="A wall.", finish="stop", tokens_in=9, tokens_out=8, tokens_reasoning=6, thought_cut=True)
    get(tmp_path, answer=thought)
    again, asked = get(tmp_path)
    assert not asked and again == replace(thought, tokens_cached=9)


def test_a_call_of_a_tool_is_stored_and_an_answer_without_words_and_call_is_not(tmp_path):
    call = Answer("", arguments='{"action": "go"}', finish="stop", tokens_in=9, tokens_out=8)
    get(tmp_path, answer=call)
    assert get(tmp_path) == (replace(call, tokens_cached=9), False)
    get(tmp_path, "empty", replace(call, arguments=None))
    assert get(tmp_path, "empty")[1]


def test_a_journal_that_another_process_removes_meanwhile_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([folder / "answers.sqlite-journal"]))
    assert get(tmp_path)[1]


def test_several_processes_write_at_the_same_time(tmp_path):
    script = (
        "import sys; from gym_text_policies.backends.base import Answer\n"
        "from gym_text_policies.backends.providers.cache import AnswerCache\n"
        "cache = AnswerCache(sys.argv[1])\n"
        "for i in range(30): cache.get(f'{sys.argv[2]} {i}', lambda: Answer('x', tokens_in=1))\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "ab"]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert not any(get(tmp_path, f"{name} {i}")[1] for name in "ab" for i in (0, 29))


def test_threads_share_one_cache(tmp_path):
    cache, failed = AnswerCache(tmp_path), []

    def work(number):
        try:
            for i in range(40):
                text = f"{number} {i}"
                assert cache.get(text, lambda text=text: Answer(text, tokens_in=1)).text == text
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    cache.close()
    assert failed == []


class Bomb:
    """Something that runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


RECORD = asdict(ANSWER)


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        json.dumps(RECORD | {"more": 1}),
        json.dumps(RECORD | {"text": ["go north"]}),
        json.dumps(RECORD | {"finish": "whenever"}),
        json.dumps(RECORD | {"tokens_in": -5}),
        json.dumps(RECORD | {"tokens_in": "many"}),
        json.dumps(RECORD | {"tokens_out": float("nan")}),
        json.dumps(RECORD | {"tokens_out": 10**400}),
        json.dumps(RECORD | {"cost": float("inf")}),
        json.dumps(RECORD | {"text": None}),
        json.dumps(RECORD | {"text": "\ud800"}),
        json.dumps(RECORD | {"probabilities": {"a": float("nan")}}),
        json.dumps(RECORD | {"probabilities": {"a": 0.5}}),
        json.dumps(RECORD | {"tokens": [1]}),
        json.dumps(RECORD | {"tokens": {"a": {"prompt": ["x"], "said": [], "log_probs": []}}}),
    ],
)
def test_a_row_that_is_no_answer_is_one_sentence(tmp_path, value):
    get(tmp_path, "other")
    write(tmp_path / "answers.sqlite", value)
    with pytest.raises(StoreError, match=r"answers.sqlite: expected an answer; got .*Remove the file"):
        get(tmp_path)


def test_a_damaged_file_and_another_database_are_one_sentence(tmp_path):
    path = tmp_path / "answers.sqlite"
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match=r"damaged or another.*Remove the file"):
        get(tmp_path)
    path.unlink()
    get(tmp_path)
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096)
    with pytest.raises(StoreError, match=r"damaged or another.*Remove the file"):
        get(tmp_path)
    for statement in (
        "CREATE TABLE answers (key TEXT, answer BLOB)",
        f"{_TABLE}; CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
        "CREATE VIEW answers AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS key, x AS answer FROM n",
    ):
        path.unlink()
        with sqlite3.connect(path) as table:
            table.executescript(statement)
        table.close()
        with pytest.raises(StoreError, match=r"got another database.*Remove the file"):
            get(tmp_path)


def test_a_folder_that_cannot_be_made_or_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written.*Name a folder"):
        AnswerCache(tmp_path / "file" / "cache")
    with pytest.raises(StoreError, match=r"cannot be written.*Name a folder"):
        AnswerCache(f"{tmp_path}/a\0b")
    (tmp_path / "cache" / "answers.sqlite").mkdir(parents=True)
    with pytest.raises(StoreError, match="got a link, a folder or a device"):
        AnswerCache(tmp_path / "cache")


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_no_link_is_followed_and_no_pipe_is_waited_for(tmp_path):
    victim = tmp_path / "victim"
    victim.touch()
    for name, make in (("answers.sqlite", os.symlink), ("answers.sqlite-journal", os.symlink), ("answers.sqlite", None)):
        folder = tmp_path / f"{name} {make}"
        folder.mkdir()
        make(victim, folder / name) if make else os.mkfifo(folder / name)
        with pytest.raises(StoreError, match="got a link, a folder or a device"):
            AnswerCache(folder)
    assert victim.read_bytes() == b""


def test_a_journal_from_elsewhere_removes_no_file(tmp_path):
    """SQLite removes the file that a journal of several databases names in its last bytes."""
    victim, path = tmp_path / "victim", tmp_path / "cache" / "answers.sqlite"
    get(path.parent)
    victim.write_text("precious")
    name = os.fsencode(victim)
    page = path.read_bytes()[:4096]
    checksum = (7 + sum(page[place] for place in range(4096 - 200, 0, -200))) % 2**32
    header = struct.pack(">8sIIIII", bytes.fromhex("d9d505f920a163d7"), 1, 7, path.stat().st_size // 4096, 512, 4096)
    rows = header.ljust(512, b"\0") + struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    locking = struct.pack(">I", 2**30 // 4096 + 1)
    end = struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    path.with_name("answers.sqlite-journal").write_bytes(rows + locking + name + end)
    with pytest.raises(StoreError, match=r"journal of answers.sqlite alone.*Remove the file"):
        get(path.parent)
    assert victim.read_text() == "precious"
