"""The OpenEnv bridge with the real library: its server, its client, its validator. Runs in the bridge's own environment."""

import asyncio
import json
import os
import random
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest
import requests
from openenv.cli.__main__ import app as openenvs_command
from openenv.core import GenericEnvClient
from openenv.validation.graders import Subject
from openenv.validation.graders.runtime import ObservationSchemaGrader, RewardWellFormedGrader, StateContractGrader
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import load_runtime_plan
from typer.testing import CliRunner
from websockets.sync.client import connect

from gym_text_policies.bridges.openenv import create_app
from gym_text_policies.bridges.serving import serving
from gym_text_policies.commands.serve import app_of
from gym_text_policies.environments import environment_maker
from gym_text_policies.files.json_data import plain

PACKAGE = Path(__file__).parents[2] / "docs" / "openenv_package"
GOTO = "BabyAIText-v0?task=goto"
NONSENSE = "sing a song"


@pytest.fixture(scope="module")
def goto():
    with serving(app_of(GOTO)) as url:
        yield url


@pytest.fixture(scope="module")
def kitchen():
    with serving(app_of("CookingWorldText-v0")) as url:
        yield url


def player(url):
    return GenericEnvClient(base_url=url, message_timeout_s=120).sync()


def socket_to(url):
    return connect(url.replace("http", "ws") + "/ws", max_size=None)


def ask(connection, message):
    connection.send(message if isinstance(message, str | bytes) else json.dumps(message))
    return json.loads(connection.recv(timeout=60))


def chosen(seed, step, names):
    """A player that needs no memory: what it chooses depends on the seed, the step and the valid actions alone."""
    return NONSENSE if step % 5 == 4 else random.Random(f"{seed} {step}").choice(names)


def episode_here(name, seed, steps):
    """Return what an episode is in this process."""
    with environment_maker(name)() as env:
        spec = env.get_wrapper_attr("text_spec")
        obs, info = env.reset(seed=seed)
        record, over = [(plain(list(obs.values())), None, False, 0.0, True)], False
        for step in range(steps):
            action = chosen(seed, step, spec.names(obs))
            if over:
                break
            if action == NONSENSE:  # told, without a step
                record.append((record[-1][0], 0.0, False, record[-1][3], False))
                continue
            obs, reward, terminated, truncated, info = env.step(spec.encode(action, obs))
            over = terminated or truncated
            record.append((plain(list(obs.values())), reward, over, info["score"], info["action_was_valid"]))
    return record


async def episode_there(client, keys, seed, steps):
    """Return what the same episode is over the wire."""
    result, record = await client.reset(seed=seed), []
    for step in range(steps + 1):
        obs = result.observation
        shown = [obs["fields"][key] if key in obs["fields"] else obs[key] for key in keys]
        record.append((shown, result.reward, result.done, obs["score"], obs["action_was_valid"]))
        if result.done or step == steps:
            break
        result = await client.step({"action": chosen(seed, step, obs["valid_actions"])})
    return record


def test_16_clients_at_once_have_the_episodes_of_one_process():
    name, seeds, steps = "CookingWorldText-v0", range(16), 20
    with environment_maker(name)() as env:
        keys = list(env.reset(seed=0)[0])

    async def play(url):
        clients = [GenericEnvClient(base_url=url, connect_timeout_s=120, message_timeout_s=120) for _ in seeds]
        try:
            await asyncio.gather(*(client.connect() for client in clients))
            return await asyncio.gather(*(episode_there(c, keys, seed, steps) for c, seed in zip(clients, seeds, strict=True)))
        finally:
            await asyncio.gather(*(client.close() for client in clients))

    with serving(app_of(name)) as url:
        there = asyncio.run(play(url))
    here = [episode_here(name, seed, steps) for seed in seeds]
    assert there == here
    assert {valid for record in here for *_, valid in record} == {True, False}


@pytest.mark.parametrize("name", [GOTO, "MountainCarContinuousLLM-v0", "CoinCollectorText-v0?actions='index'"])
def test_the_expert_wins_over_the_wire(name):
    with environment_maker(name, fold="test")() as env:
        _, info = env.reset(seed=3)
    with serving(app_of(name)) as url, player(url) as game:
        result = game.reset(split="test", index=3)
        for action in info["gold_path"]:
            assert not result.done
            result = game.step({"action": action})
        assert result.done and result.observation["success"] and result.observation["score"] == game.state()["score"]
        assert game.state()["step_count"] == len(info["gold_path"])
        with pytest.raises(RuntimeError, match="this one has ended"):
            game.step({"action": info["gold_path"][0]})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("step", "Invalid JSON"),
        ({"type": "reset", "data": {"sed": 1}}, "Did you mean 'seed'?"),
        ({"type": "reset", "data": {"split": "test", "index": 1_000_000}}, "index: expected an integer from 0 to 999999"),
        ({"type": "reset", "data": {"index": 1}}, "expected a split beside it"),
    ],
)
def test_a_bad_message_is_told_what_was_expected_and_the_episode_goes_on(goto, message, expected):
    with socket_to(goto) as connection:
        ask(connection, {"type": "reset", "data": {"seed": 0, "episode_id": "mine"}})
        answer = ask(connection, message)
        assert answer["type"] == "error" and expected in answer["data"]["message"] and len(answer["data"]["message"]) < 400
        assert ask(connection, {"type": "step", "data": {"action": "turn left"}})["type"] == "observation"
        assert ask(connection, {"type": "state"})["data"]["episode_id"] == "mine"


def test_one_session_too_many_is_refused_and_a_client_that_vanishes_makes_room():
    with serving(app_of(GOTO, max_sessions=1)) as url:
        with socket_to(url) as first:
            ask(first, {"type": "reset"})
            with socket_to(url) as second:
                answer = json.loads(second.recv(timeout=60))["data"]
                assert answer["code"] == "CAPACITY_REACHED" and "1/1 sessions" in answer["message"]
            first.socket.shutdown(socket.SHUT_RDWR)  # without a word
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket_to(url) as third:
                if ask(third, {"type": "reset"})["type"] == "observation":
                    return
            time.sleep(0.1)
        pytest.fail("the session was not closed")


def test_folds_are_splits_and_levels_are_tasks(kitchen):
    place = f"{kitchen}/CookingWorldText-v0"
    assert [split["name"] for split in requests.get(f"{place}/splits", timeout=60).json()] == ["train", "dev", "test"]
    assert requests.post(f"{place}/num_tasks", json={"split": "dev"}, timeout=60).json() == {"num_tasks": 1000}
    with environment_maker("CookingWorldText-v0")() as env:
        assert len(env.unwrapped._engine().seeds("dev")) == 1000
    assert len(requests.post(f"{place}/tasks", json={"split": "dev"}, timeout=60).json()["tasks"]) == 1000
    wanted = {"split": "test", "start": 2, "stop": 4}
    assert [t["id"] for t in requests.post(f"{place}/task_range", json=wanted, timeout=60).json()["tasks"]] == ["test-2", "test-3"]
    assert requests.post(f"{place}/task", json={"split": "test", "index": 1000}, timeout=60).status_code == 400
    assert "Did you mean 'test'?" in requests.post(f"{place}/num_tasks", json={"split": "tests"}, timeout=60).json()["detail"]
    with player(kitchen) as game, environment_maker("CookingWorldText-v0", fold="test")() as env:
        assert game.reset(split="test", index=5).observation["text"] == env.reset(seed=5)[0]["text"]
        assert game.reset(seed=5).observation["text"] != env.reset(seed=5)[0]["text"]


def test_a_fold_in_the_name_is_the_only_split_and_a_range_is_bounded():
    with serving(app_of(f"{GOTO}&fold=test")) as url, player(url) as game, environment_maker(GOTO, fold="test")() as env:
        assert [split["name"] for split in requests.get(f"{url}/BabyAIText-v0/splits", timeout=60).json()] == ["test"]
        assert game.reset(seed=1).observation["text"] == env.reset(seed=1)[0]["text"]
        with pytest.raises(RuntimeError, match="expected one of 'test'; got 'train'"):
            game.reset(split="train", index=1)
        answer = requests.post(f"{url}/BabyAIText-v0/task_range", json={"split": "test"}, timeout=60)
        assert len(answer.json()["tasks"]) == 1000


def validate(*words):
    return CliRunner().invoke(openenvs_command, ["validate", *map(str, words)])


def test_openenv_validates_a_running_server(goto):
    done = validate("--url", goto, "--timeout", 60)
    assert (done.exit_code, len(re.findall(r"^ +PASS ", done.stdout, re.MULTILINE))) == (0, 6), done.output


def test_openenv_validates_the_package():
    done = validate(PACKAGE, "--level", "static")
    assert done.exit_code == 0 and "Verdict: PASS" in done.stdout, done.output


def test_openenvs_graders_of_a_running_package_pass(kitchen):
    manifest = OpenEnvYamlParser().parse(PACKAGE)
    evidence = collect_runtime_evidence(kitchen, load_runtime_plan(PACKAGE, manifest.execution), episode_timeout_s=60)
    subject = Subject(PACKAGE, manifest, None, None, PACKAGE, runtime_evidence=evidence)
    results = [grader().run(subject) for grader in (RewardWellFormedGrader, ObservationSchemaGrader, StateContractGrader)]
    assert [(result.status.value, result.evidence) for result in results] == [("pass", ["observed runtime contract holds"])] * 3


def test_the_packages_oracle_wins(kitchen):
    assert runpy.run_path(str(PACKAGE / "oracle.py"))["play"](kitchen, 5) == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_the_command_serves_until_it_is_told_to_end(how):
    command = [sys.executable, "-m", "gym_text_policies.cli", "serve", GOTO, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        line = process.stderr.readline()
        with player(line.split()[-1]) as game:
            game.reset(seed=0)
            port = line.split(":")[-1].strip()
            if how == signal.SIGINT:
                second = subprocess.run([*command[:-1], port], capture_output=True, text=True, timeout=300)
                assert second.returncode == 1 and "in use" in second.stderr
            process.send_signal(how)
        assert process.wait(timeout=60) == 130


class WithoutScore(gym.Wrapper):
    """An environment of one's own, whose `info` is empty. Its reward is that of the game, and one more for each step."""

    def reset(self, **arguments):
        return self.env.reset(**arguments)[0], {}

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward + 1, terminated, truncated, {}


def test_the_score_of_an_environment_that_tells_none_is_the_sum_of_its_rewards():
    make = environment_maker(GOTO)
    with serving(create_app(lambda split: WithoutScore(make()), splits=())) as url, player(url) as game:
        assert game.reset(seed=0).observation["score"] == 0
        scores = [game.step({"action": action}).observation["score"] for action in ("turn left", NONSENSE, "turn left")]
        assert scores == [1, 1, 2] and game.state()["score"] == 2
        assert game.reset(seed=0).observation["score"] == game.state()["score"] == 0
