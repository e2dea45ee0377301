"""Experiments: one YAML file in, one run folder out."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text_policies import EpisodeStore, cli, parse_config, run_experiment

PLANTED = "sk-planted-0123456789"


GYM_LLM_KEYS = """\
agent:
    backend: 'scripted'
    model: '{"reflection": "a wall", "action": "turn left"}|go forward'
    temperature: .8
    history: 10
    action_rate: 1

environment:
    name: 'BabyAIText-v0'
    kwargs: null

experiment:
    parent: PARENT
    name: 'baby'
    use_datetime: true
    seed: 3
    save_gif: true
    gif_fps: 30
    num_runs: 1
    verbose: true
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(GYM_LLM_KEYS.replace("PARENT", str(tmp_path / "runs")))
    return path


def read(path):
    return json.loads(path.read_text())


def test_one_file_gives_one_folder_with_all_in_it(config_file, capsys):
    text = config_file.read_text().replace("kwargs: null", "kwargs: {max_episode_steps: 6}")
    config_file.write_text(text)
    assert cli.main(["run", str(config_file)]) == 0
    printed = capsys.readouterr()
    (folder,) = (config_file.parent / "runs").iterdir()
    assert str(folder) in printed.out and "success [95 %]" in printed.out and "seed 3: truncated" in printed.err

    metrics = read(folder / "metrics.json")
    assert (metrics["total_steps"], metrics["avg_steps"], metrics["success"], metrics["truncated"]) == ([6], 6.0, 0.0, 1)
    assert metrics["total_rewards"] == [metrics["avg_reward"]] == [0.0]
    answers = read(folder / "answers" / "seed-3.json")
    assert list(answers) == ["1", "2", "3", "4", "5", "6"]
    assert answers["1"]["reflection"] == "a wall" and answers["1"]["action"] == 0
    assert answers["2"]["action_name"] == "go forward"
    assert "gymnasium" in read(folder / "versions.json")
    from PIL import Image

    with Image.open(folder / "gifs" / "seed-3.gif") as gif:
        assert gif.n_frames == 7 and gif.width > gif.height

    written = parse_config(folder).agent
    assert (written.strategy, written.mode, written.temperature, written.seed) == ("zero_shot", "text", 0.8, None), "complete"
    before = (folder / "episodes.jsonl").read_bytes()
    assert cli.main(["run", str(folder)]) == 0  # plays nothing again
    assert (folder / "episodes.jsonl").read_bytes() == before
    assert cli.main(["run", str(folder), "--set", "experiment.episodes=2", "experiment.save_gif=false"]) == 0
    assert len(EpisodeStore(folder)) == 2
    capsys.readouterr()
    assert cli.main(["run", str(folder), "--set", "agent.history=1"]) == 2
    assert "agent.history: stored" in capsys.readouterr().err


def test_a_batch_has_a_folder_for_each_experiment_and_goes_on(tmp_path):
    config = {
        "agent": {"model": ["random", "gold"]},
        "environment": {"name": "BabyAIText-v0", "kwargs": {"task": "goto"}},
        "experiment": {"episodes": 2, "verbose": False},
    }
    folder = run_experiment(config, tmp_path / "both")
    rows = read(folder / "metrics.json")["rows"]
    assert [row["policy"] for row in rows] == ["random", "gold"] and rows[1]["success"] == 1.0
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"model=random", "model=gold"}
    with pytest.raises(UsageError, match=r"keys differ: agent\.model: stored 'gold', given 'random'\."):
        run_experiment(dict(config, agent={"model": "random"}), folder / "model=gold")
    assert cli.main(["run", str(folder)]) == 0
    assert len((folder / "model=gold" / "episodes.jsonl").read_bytes().splitlines()) == 2


def test_a_policy_that_looks_ahead_runs_from_a_file_and_its_gif_is_played_again(tmp_path, caplog):
    path = tmp_path / "ahead.yaml"
    path.write_text(
        "agent: {model: random, lookahead: puct, simulations: 4, action_rate: 2}\n"
        "environment: {name: BabyAIText-v0, kwargs: {max_episode_steps: 3, expert: replan}}\n"
        "experiment: {save_gif: true, verbose: false}\n"
    )
    folder = run_experiment(path, tmp_path / "run")
    (episode,) = EpisodeStore(folder).episodes()
    decisions = [step.decision for step in episode.steps]
    assert [bool(decision.visits) for decision in decisions] == [True, False, True], "it is asked at every second step"
    assert all(step.gold_action for step in episode.steps), "the game itself has an expert, its copies have none"
    answers = read(folder / "answers/seed-0.json")
    assert answers["1"]["visits"] == decisions[0].visits and answers["1"]["values"] == decisions[0].values
    assert (folder / "gifs/seed-0.gif").stat().st_size > 1000 and "recorded return" not in caplog.text
    assert "random, every 2 steps, looks ahead: 4 simulations †" in (folder / "table.md").read_text()
    run_experiment(folder, folder)
    assert list(EpisodeStore(folder).episodes()) == [episode], "it is found again"
    with pytest.raises(UsageError, match=r"agent\.simulations: stored 4, given 8"):
        run_experiment(parse_config(path, {"agent.simulations": 8}), folder)


IGNORED = re.compile(r"Exception ignored in: .*\nTraceback \(most recent call last\):\n(?:  .*\n)*KeyboardInterrupt: ?\n")
"""What Python says of a Ctrl-C that it drops within a finalizer."""


def wait_for_lines(process, path):
    """Wait until a file of the process has two lines: of records Ctrl-C may take back the last, whose sync may still go on."""
    deadline = time.monotonic() + 300
    while process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def interrupted(process):
    """Send Ctrl-C, again where it was lost (Python drops it within a finalizer), and return stderr."""
    for _ in range(12):
        process.send_signal(signal.SIGINT)
        try:
            return IGNORED.sub("", process.communicate(timeout=20)[1])
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()[1]


def test_ctrl_c_keeps_what_is_done_and_the_folder_goes_on(config_file, tmp_path):
    folder = tmp_path / "stopped"
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from gym_text_policies.cli import console\nconsole()"
    changes = ["experiment.episodes=3000", "experiment.save_gif=false", "environment.kwargs={max_episode_steps: 20}"]
    changes += [f"experiment.parent={tmp_path}", "experiment.name=stopped", "experiment.use_datetime=false"]
    command = [sys.executable, "-c", script, "run", str(config_file), "--set", *changes]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    wait_for_lines(process, folder / "episodes.jsonl")
    error = interrupted(process)
    assert process.returncode == 130, error
    assert "Traceback" not in error and f"gym-text run {folder} goes on" in error
    played = len(EpisodeStore(folder))
    assert played >= 1 and read(folder / "metrics.json")["episodes"] >= played - 1  # one may have been stored at that moment
    assert cli.main(["run", str(folder), "--set", "experiment.episodes=1"]) == 0
    assert read(folder / "metrics.json")["seeds"] == [3]


def test_no_file_of_a_run_has_a_key(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", PLANTED)
    server = ProviderServer()
    server.faults += [None, *[Fault(401, f"bad key {PLANTED}")] * 2]  # it answers the question before the run
    options = {"base_url": f"{server.url}/v1", "retries": 0}
    config = {
        "agent": {"backend": "openai", "model": "gpt", "options": options},
        "environment": {"name": "BabyAIText-v0"},
        "experiment": {"episodes": 2},
    }
    with running(server):
        folder = run_experiment(config, tmp_path / "run")
    assert read(folder / "metrics.json")["error"] == 2
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5 and not [path for path in files if PLANTED in path.read_text()]
    for extra in ({"user": PLANTED}, {"authorization": "x"}):
        config["agent"]["options"]["extra"] = extra
        with pytest.raises(UsageError, match="options: expected no key") as error:
            run_experiment(config, tmp_path / "other")
        assert PLANTED not in str(error.value) and not (tmp_path / "other").exists()
    printed = capsys.readouterr()
    assert PLANTED not in printed.out + printed.err


def test_an_episode_that_is_played_again_has_no_files_of_its_first_attempt(tmp_path):
    config = {
        "agent": {"model": "scripted:go forward|nonsense", "strategy": "zero_shot", "on_invalid": "raise"},
        "environment": {"name": "BabyAIText-v0"},
        "experiment": {"verbose": False, "save_gif": True, "retry_errors": True},
    }
    folder = run_experiment(config, tmp_path / "run")
    assert list(read(folder / "metrics.json")["errors"]) == ["0"]
    files = [folder / "answers" / "seed-0.json", folder / "gifs" / "seed-0.gif"]
    before = [path.read_bytes() for path in files]
    for path in files:
        path.write_text("of the first attempt")
    run_experiment(config, folder)
    assert [path.read_bytes() for path in files] == before


def test_a_run_that_plays_anew_once_goes_on_by_itself_the_next_time(tmp_path):
    config = {"agent": {"model": "random"}, "environment": {"name": "BabyAIText-v0"}, "experiment": {"verbose": False}}
    lines = []
    for fresh in (False, True):
        config["experiment"]["fresh"] = fresh
        folder = run_experiment(config, tmp_path / "run")
        lines.append(len((folder / "episodes.jsonl").read_text().splitlines()))
    run_experiment(folder)
    lines.append(len((folder / "episodes.jsonl").read_text().splitlines()))
    assert lines == [1, 2, 2] and "fresh" not in (folder / "experiment.yaml").read_text()
