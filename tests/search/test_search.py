"""A search: its run folder, its configuration and its command."""

import json
import math
import shlex
import signal
import subprocess
import sys
import time

import pytest
from searches import CAR, config

from gym_text import UsageError
from gym_text_policies import cli, load_policy
from gym_text_policies.environments import make_environment
from gym_text_policies.search import search


def test_a_killed_search_goes_on_without_repeating(tmp_path):
    options = ["--optimiser", "random", "--environment", "CartPole-v1", "--num-rollouts", "5", "--folder"]
    command = [sys.executable, "-m", "gym_text_policies.cli", "search", *options, str(tmp_path / "a"), "--evaluations"]
    process = subprocess.Popen([*command, "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "a" / "evaluations.jsonl"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    before = log.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    done = whole.count(b"\n")
    assert done >= 3
    with log.open("ab") as file:
        file.write(b'{"torn')
    assert cli.main(["search", *options, str(tmp_path / "a"), "--evaluations", str(done + 2)]) == 0
    assert log.read_bytes().startswith(whole)
    indices = [json.loads(line)["index"] for line in log.read_bytes().splitlines()]
    assert indices == list(range(done + 2))
    assert cli.main(["search", *options, str(tmp_path / "b"), "--evaluations", str(done + 2)]) == 0
    strip = lambda path: [json.loads(line)["returns"] for line in path.read_bytes().splitlines()]  # noqa: E731
    assert strip(log) == strip(tmp_path / "b" / "evaluations.jsonl")


def test_one_command_searches_and_its_policy_is_played_by_bench(tmp_path, capsys):
    (tmp_path / "search.yaml").write_text(
        f"environment: {CAR}?max_episode_steps=150\noptimiser: random then cma\nevaluations: 12\nbounds: [-7, 7]\nbias: false\n"
        f"num_rollouts: 2\nfolder: {tmp_path / 'run'}\n"
    )
    assert cli.main(["search", str(tmp_path / "search.yaml"), "--evaluations", "14"]) == 0
    printed = capsys.readouterr().out
    assert "Best of 14 evaluations" in printed and "w_position" in printed
    record = json.loads((tmp_path / "run" / "policy.json").read_text())
    assert set(record["parameters"]) == {"w_position", "w_velocity"} and record["environment"] == f"{CAR}?max_episode_steps=150"
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["bounds"] == [-7, 7] and "optimum" not in stored
    words = shlex.split(printed.partition("Evaluate the best policy: gym-text ")[2].splitlines()[0])
    assert words == ["bench", "--models", str(tmp_path / "run" / "policy.json"), "--environments", f"{CAR}?max_episode_steps=150"]
    assert cli.main([*words, "--episodes", "1", "--folder", str(tmp_path / "bench")]) == 0
    assert "policy.json" in capsys.readouterr().out


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    search(config(folder=str(tmp_path)))
    with pytest.raises(UsageError, match="num_rollouts: stored 3, given 4"):
        search(config(folder=str(tmp_path), num_rollouts=4))


def test_a_policy_of_another_environment_is_refused(tmp_path):
    search(config(folder=str(tmp_path), evaluations=1))
    with pytest.raises(UsageError, match=f"expected a policy for CartPole-v1.*found on '{CAR}"):
        load_policy(str(tmp_path / "policy.json"), make_environment("CartPole-v1"))
    whole = json.loads((tmp_path / "policy.json").read_text())
    broken = [
        json.dumps(whole | {"parameters": dict.fromkeys(whole["parameters"], odd)}) for odd in (10**400, math.nan, math.inf, "x")
    ]
    for text in ("{", "[" * 100_000, *broken):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(UsageError, match=r"expected the policy\.json of a search"):
            load_policy(str(tmp_path / "broken.json"), make_environment(CAR))


@pytest.mark.parametrize(("old", "new"), [('"returns": [', '"returns": [NaN, '), ('"lengths": [', '"lengths": [{}, ')])
def test_a_stored_evaluation_of_other_values_is_named(tmp_path, old, new):
    search(config(folder=str(tmp_path), evaluations=1))
    path = tmp_path / "evaluations.jsonl"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=r"evaluations\.jsonl, .*expected"):
        search(config(folder=str(tmp_path), evaluations=2))
