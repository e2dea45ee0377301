"""Levels played by verifiers' own evaluation: a tuned model behind llama.cpp's server, and answers given by hand."""

import json
import signal
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

import llama_server
import pytest
from libraries.noting import closers, threads
from serving import serving

from gym_text_policies.bridges.verifiers import LevelsConfig

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "gym_text_policies/training/adapters/babyai-sft"
GOTO = {"environment": "BabyAIText-v0?task=goto", "fold": "test"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the address of a server of the embedded model with the adapter that is tuned on BabyAI's tasks."""
    command = ["python", llama_server.__file__, "--adapter", str(ADAPTER), "--parallel", "2"]
    with serving(command, "/health", tmp_path_factory.mktemp("llama") / "log") as url:
        yield f"{url}/v1"


def evaluate(folder, url, *arguments):
    """Run verifiers' evaluation from its command line; return the episodes that it has written, by their levels' seeds."""
    (command,) = entry_points(group="console_scripts", name="vf-eval")
    given = ["gym-text-verifiers", "--model", "babyai", "--client.base-url", url]
    given += ["--sampling.temperature", "0", "--sampling.max-tokens", "16", "--max-concurrent", "2", "--no-push", "--no-rich"]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:  # in this process: verifiers takes as long to import as these episodes to play
        patch.setenv("HOME", str(folder))
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["vf-eval"])
        command.load()([*given, *arguments])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    (traces,) = folder.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(line) for line in traces.read_text("utf-8").splitlines()]
    return sorted(episodes, key=lambda episode: episode["task"]["data"]["seed"])


def said(trace, role):
    return [node["message"]["content"] for node in trace["nodes"] if node["message"]["role"] == role]


def test_a_tuned_model_wins_in_verifiers_own_evaluation(served, tmp_path):
    episodes = evaluate(tmp_path, served, "--env.taskset.fold", "test", "-n", "2", "-r", "2")
    assert [episode["task"]["data"]["seed"] for episode in episodes] == [0, 0, 1, 1]
    for episode in episodes:
        (trace,) = episode["traces"]
        assert (episode["ok"], trace["stop_condition"], trace["errors"]) == (True, "won", [])
        game = LevelsConfig(**GOTO).game()
        game.begin(episode["task"]["data"]["seed"])
        told = [game.messages()[1], *[game.play(answer) for answer in said(trace, "assistant")]]
        assert (said(trace, "system"), said(trace, "user")) == ([game.messages()[0]], told[:-1])
        metrics = {"success": 1.0, "score": game.score, "steps": float(game.steps), "unusable": 0.0}
        assert trace["metrics"] == metrics and trace["rewards"]["score"]["score"] == game.score > 0.5
    groups = [[said(episode["traces"][0], "user")[0] for episode in episodes[place : place + 2]] for place in (0, 2)]
    assert all(one == other for one, other in groups) and len({one for one, _ in groups}) == 2


def test_a_game_begins_is_played_and_is_closed_outside_of_the_thread_of_verifiers_event_loop(served, tmp_path):
    threads.clear()
    closers.clear()
    (episode,) = evaluate(tmp_path, served, "--env.taskset.environment", "Noting-v0?task=goto", "-n", "1")
    assert episode["ok"] and threads and closers and threading.get_ident() not in threads | closers


def test_a_limit_of_verifiers_ends_an_episode_that_is_still_scored(served, tmp_path):
    (episode,) = evaluate(tmp_path, served, "--env.taskset.fold", "test", "-n", "1", "--env.player.max-turns", "2")
    (trace,) = episode["traces"]
    assert (episode["ok"], trace["stop_condition"]) == (True, "max_turns")
    assert trace["metrics"] == {"success": 0.0, "score": 0.0, "steps": 2.0, "unusable": 0.0}


def test_steps_and_unusable_answers_in_a_row_are_limited():
    game = LevelsConfig(environment="BabyAIText-v0?task=goto&max_episode_steps=2").game()
    game.begin(0)
    for answer, end in (("sing", None), ("turn left", None), ("turn left", "truncated")):
        game.play(answer)
        assert game.end == end
    game.begin(0)
    for answer, end in (*[("sing", None)] * 4, ("", "unusable_answers")):
        game.play(answer)
        assert game.end == end
