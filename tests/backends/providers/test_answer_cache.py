"""Answers on disk: plain data that several processes share; what is damaged or foreign is one sentence."""

import functools
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from provider_server import Fault, ProviderServer, running

from gym_text.errors import StoreError
from gym_text_policies import PolicyError
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.providers.answer_cache import AnswerCache, request_key
from gym_text_policies.records import Tokens

ANSWER = Answer("go north", finish="stop", tokens_in=30, tokens_out=3, cost=0.5, reference="e7")
THOUGHT = Answer("go", reasoning="A wall.", finish="stop", tokens_in=9, tokens_out=8, tokens_reasoning=6, thought_cut=True)
CALL = Answer("", arguments='{"action": "go"}', finish="stop", tokens_in=9, tokens_out=8)
LIKELY = Answer(
    probabilities={"a": 0.25, "b": 0.75}, probability_kind="likelihood", tokens_in=9, tokens={"a": Tokens((1, 2), (3,), (-0.5,))}
)
QUESTION = Request(({"role": "user", "content": "A red ball."},))


def get(folder, key="k", answer=ANSWER):
    """Return what the cache of a folder says of a key, and whether it had to ask."""
    asked = []
    cache = AnswerCache(folder)
    try:
        return cache.get(key, lambda: asked.append(key) or answer), bool(asked)
    finally:
        cache.close()


@pytest.mark.parametrize("answer", [ANSWER, THOUGHT, CALL, LIKELY])
def test_an_answer_is_read_again_by_another_run_and_costs_nothing(tmp_path, answer):
    assert get(tmp_path / "new" / "folder", answer=answer) == (answer, True)
    again = replace(answer, tokens_cached=answer.tokens_in, cost=0.0, reference=None)
    assert get(tmp_path / "new" / "folder") == (again, False)


@pytest.mark.parametrize(
    ("text", "finish"), [("", "stop"), (" \n", None), ("go nor", "length"), ("I cannot go", "refusal"), ("go", "content_filter")]
)
def test_what_is_no_whole_answer_is_asked_again(tmp_path, text, finish):
    for _ in range(2):
        assert get(tmp_path, answer=Answer(text, finish=finish, tokens_in=5))[1]


def test_each_setting_of_a_request_changes_its_key_and_its_episode_does_not():
    config = {"backend": "openai", "model": "m", "server": "lab"}
    changes = [
        *({"max_tokens": 7}, {"temperature": 0.5}, {"seed": 3}, {"choices": ("go", "wait")}, {"schema": {"type": "object"}}),
        *({"tokens": True}, {"read": (1, 2)}, {"think": False}, {"think_tokens": 9}, {"top_p": 0.5}),
        *({"top_k": 3}, {"min_p": 0.1}, {"tool": {"name": "act"}}, {"picture": b"PNG"}, {"picture": b"another"}),
    ]
    keys = {request_key(config, replace(QUESTION, **change)) for change in ({}, *changes)}
    assert len(keys) == 1 + len(changes) and request_key(config | {"model": "n"}, QUESTION) not in keys
    assert request_key(config, replace(QUESTION, episode="7", probabilities=False)) == request_key(config, QUESTION)


def test_the_same_request_is_not_paid_twice(server, backend_of, tmp_path):
    cached = functools.partial(backend_of, server, cache=str(tmp_path), prices={"m": {"input": 2.0, "output": 10.0}})
    backend = cached()
    (first,), (second,) = backend.answer([QUESTION]), backend.answer([QUESTION])
    assert first.cost > 0 == second.cost and second.text == first.text
    assert cached().answer([replace(QUESTION, episode="7")]) == [second], "another run, and another episode, read the same answer"
    assert len(server.requests) == 1
    for _ in range(2):
        (chosen,) = backend.answer([replace(QUESTION, choices=("a", "b"))])
        assert chosen.probabilities == {"a": pytest.approx(2 / 3), "b": pytest.approx(1 / 3)}
    assert len(server.requests) == 2
    for seed in (None, None, 1, 1, 2):
        backend.answer([replace(QUESTION, temperature=1.0, seed=seed)])
    assert len(server.requests) == 6, "sampling is cached with a seed alone"
    server.faults.append(Fault(500, "oops"))
    with pytest.raises(PolicyError):
        backend.answer([replace(QUESTION, max_tokens=3)])
    assert backend.answer([replace(QUESTION, max_tokens=3)])[0].text == "go forward", "a failed request is not cached"


def test_equal_requests_at_the_same_time_are_asked_once(server, backend_of, tmp_path):
    server.latency = lambda number: 0.3
    answers = backend_of(server, cache=str(tmp_path)).answer([QUESTION] * 4)
    assert len(server.requests) == 1 and {answer.text for answer in answers} == {"go forward"}


@pytest.mark.parametrize("provider", ["openai", "ollama", "tensorzero"])
def test_a_named_server_is_known_at_another_address(server, backend_of, provider, tmp_path):
    with running(ProviderServer()) as moved:
        named = {"cache": str(tmp_path), "server": "lab"}
        first, again = backend_of(server, provider, **named), backend_of(moved, provider, **named)
        assert (first.config, first.config["server"]) == (again.config, "lab") and "base_url" not in first.config
        assert first.answer([QUESTION])[0].text == again.answer([QUESTION])[0].text
        assert (len(server.requests), len(moved.requests)) == (1, 0), "its answers are found again"
        assert backend_of(moved, provider, cache=str(tmp_path)).answer([QUESTION])[0].text and len(moved.requests) == 1
    assert "base_url" in backend_of(server, provider).config, "without a name the address counts"


def test_several_processes_write_at_the_same_time(tmp_path):
    script = (
        "import sys; from gym_text_policies.backends.base import Answer\n"
        "from gym_text_policies.backends.providers.answer_cache import AnswerCache\n"
        "cache = AnswerCache(sys.argv[1])\n"
        "for i in range(30): cache.get(f'{sys.argv[2]} {i}', lambda: Answer('x', tokens_in=1))\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in "ab"]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert not any(get(tmp_path, f"{name} {i}")[1] for name in "ab" for i in (0, 29))


def test_a_damaged_file_another_database_and_a_folder_that_cannot_be_made_are_one_sentence(tmp_path):
    path = tmp_path / "answers.sqlite"
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match=r"not a database.*remove it"):
        get(tmp_path)
    path.unlink()
    with sqlite3.connect(path) as table:
        table.execute("CREATE TABLE answers (other TEXT)")
    table.close()
    with pytest.raises(StoreError, match=r"no such column.*remove it"):
        get(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be used.*name another folder"):
        AnswerCache(tmp_path / "file" / "cache")
