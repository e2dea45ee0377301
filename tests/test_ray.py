"""A run spread over a Ray cluster of two nodes gives what a run in this process gives, whatever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import gymnasium as gym
import psutil
import pytest
from episodes import without_seconds
from provider_server import Fault, ProviderServer, running

from gym_text import UsageError
from gym_text.errors import ClusterError
from gym_text_policies import EpisodeStore, cli
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.engines import ray as cluster
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.options import EngineOptions, PlayOptions
from gym_text_policies.engines.work import Work
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import Run

GOTO = "BabyAIText-v0?task=goto"


MEMORY = 80 * 2**20
"""Bytes of a node's object store, the least that Ray takes."""


class DeadlyGame(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """A game whose level 3 kills the process."""

    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed=None, options=None):
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)


gym.register("DeadlyText-v0", lambda fold=None: DeadlyGame(gym.make("BabyAIText-v0")))


@pytest.fixture(scope="module")
def nodes():
    """Start a node, and connect to it."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        here = Path(__file__).parent
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]))
        from ray.cluster_utils import Cluster

        try:
            one = Cluster(True, head_node_args={"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False})
        except Exception as error:
            pytest.skip(f"Ray does not start on this machine: {error}")
        try:
            ray.init(address=one.address, log_to_driver=False, logging_level="ERROR")
            yield one
        finally:
            ray.shutdown()
            one.shutdown()


@pytest.fixture
def two_nodes(nodes):
    """Start the second node where there is none, or no more."""
    if len(nodes.list_all_nodes()) == 1:
        nodes.add_node(num_cpus=1, object_store_memory=MEMORY)
    return nodes


def processes(node=None):
    """Return the ids of the processes that play, on one node or on all."""
    raylets = [process.process.pid for process in node.all_processes["raylet"]] if node else [os.getpid()]
    children = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
    found = []
    for child in children:
        with suppress(psutil.Error):  # it has ended since
            if "_Worker" in "".join(child.cmdline()):
                found.append(child.pid)
    return found


def wait_until(condition):
    """Wait until a condition holds, at most for five minutes."""
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited for five minutes")


def test_the_table_equals_that_of_the_local_engine(two_nodes, tmp_path, capsys):
    tables = {}
    for engine in ("local", "ray"):
        options = f"--engine {engine} --workers 2 --modes choose --episodes 5 --llm-episodes 3 --num-envs 2".split()
        where = ["--environments", "CookingWorldText-v0", "--folder", str(tmp_path / engine)]
        assert cli.main(["bench", *where, *options, "--models", "scripted:go forward"]) == 0, capsys.readouterr().err
        rows = json.loads((tmp_path / engine / "table.json").read_text())["rows"]
        tables[engine] = [{name: value for name, value in row.items() if name != "seconds_per_decision"} for row in rows]
    assert tables["ray"] == tables["local"]
    assert [row["episodes"] for row in tables["ray"]] == [5, 3, 5]
    local, spread = (EpisodeStore(tmp_path / engine).episodes() for engine in ("local", "ray"))
    assert without_seconds(spread, by="key") == without_seconds(local, by="key")


def test_a_policy_looks_ahead_in_the_processes_of_the_cluster(two_nodes):
    job = EpisodeJob(f"{GOTO}&max_episode_steps=3", {}, PolicyConfig("random", lookahead="puct", simulations=4), num_envs=2)
    with EngineOptions(engine="ray", workers=2).make_engine() as engine:
        spread = list(engine.play([(job, range(4))]))
    assert without_seconds(spread, by="key") == without_seconds(LocalEngine().play([(job, range(4))]), by="key")
    assert all(episode.simulator_steps for episode in spread)


def test_a_level_that_kills_every_worker_stops_the_run_in_one_sentence(two_nodes, monkeypatch):
    monkeypatch.setattr(cluster, "_MOST_DEATHS", 1)
    job = EpisodeJob("test_ray:DeadlyText-v0", {}, PolicyConfig("random"), num_envs=1)
    played = []
    with (
        EngineOptions(engine="ray", workers=1).make_engine() as engine,
        pytest.raises(ClusterError, match="seed 3, policy random; 2"),
    ):
        played += engine.play([(job, range(4))])


def test_training_data_are_the_same(two_nodes, tmp_path):
    pytest.importorskip("datasets", reason="datasets is not installed")
    rows = []
    for engine in ("local", "ray"):
        config = CollectConfig(str(tmp_path / engine), (GOTO,), ("6",), noise=0.3, engine=engine, workers=2)
        rows.append(collect(config))
    assert rows[0] == rows[1] and len(rows[0]) > 3


def test_a_mistake_is_the_same_error_as_without_a_cluster(two_nodes):
    with EngineOptions(engine="ray", workers=1).make_engine() as engine:
        for make in (engine.identify, LocalEngine().identify):
            with pytest.raises(UsageError, match="Did you mean 'strategy'"):
                make(EpisodeJob(GOTO, {}, PolicyConfig.of("scripted:go", stratgy="chat")))


def test_seeds_are_handed_out_in_ever_smaller_parts():
    job = EpisodeJob(GOTO, {}, PolicyConfig("random"), num_envs=2)
    work = Work([job, job], [deque(range(100)), deque(range(5))])
    parts = list(iter(lambda: work.take(3), None))
    assert [(place, seed) for place, seeds in parts for seed in seeds] == [(0, s) for s in range(100)] + [(1, s) for s in range(5)]
    sizes = [len(seeds) for _, seeds in parts]
    assert max(sizes) == sizes[0] == 9 and sizes[-1] == 1


def test_a_killed_worker_and_a_lost_node_cost_their_unfinished_episodes_a_retry(two_nodes, caplog):
    job = EpisodeJob(GOTO, {}, PolicyConfig("random"), num_envs=2)
    (node,) = two_nodes.worker_nodes
    played = []
    with EngineOptions(engine="ray", workers=2).make_engine() as engine:
        for episode in engine.play([(job, range(200))]):
            played.append(episode)
            if len(played) == 1:
                wait_until(lambda: len(processes()) == 2 and processes(node))
                os.kill(next(pid for pid in processes() if pid not in processes(node)), signal.SIGKILL)
            elif len(played) == 80:
                two_nodes.remove_node(node, allow_graceful=False)
    assert "a worker was lost" in caplog.text
    assert without_seconds(played, by="key") == without_seconds(LocalEngine().play([(job, range(200))]), by="key")


def test_a_worker_asks_a_provider_once_before_anything_is_played(two_nodes, tmp_path):
    with running(ProviderServer()) as server, EngineOptions(engine="ray", workers=2).make_engine() as engine:
        server.faults.append(Fault(404, "no such model"))
        policy = PolicyConfig.of("openai:m", base_url=f"{server.url}/v1", retries=0)
        rows = [PlanRow("row", environment, policy, range(2)) for environment in (GOTO, f"{GOTO}&max_episode_steps=4")]
        with EpisodeStore(tmp_path, {}) as store:
            with pytest.raises(UsageError, match="asked before the run, it failed: openai:m: HTTP 404: no such model"):
                Run(rows, store, engine, PlayOptions()).play()
            assert (len(server.requests), len(store)) == (1, 0)
            Run(rows, store, engine, PlayOptions()).play()
        assert len(store) == 4 and sum("yes or no" in json.dumps(body) for _, _, body in server.requests) == 2


LOST = """
import psutil
from gym_text.errors import ClusterError
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.options import EngineOptions, PlayOptions
from gym_text_policies.policies.config import PolicyConfig

job = EpisodeJob("BabyAIText-v0?task=goto", {}, PolicyConfig("random"), num_envs=1)
with EngineOptions(engine="ray", workers=1).make_engine() as engine:
    try:
        for episode in engine.play([(job, range(10**6))]):
            for child in psutil.Process().children() if not episode.seed else ():
                if child.name() == "raylet":
                    child.kill()
    except ClusterError as error:
        print(error)
"""


def test_a_run_whose_own_node_has_ended_ends_in_a_sentence():
    pytest.importorskip("ray", reason="Ray is not installed")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # names of sockets must be short
        own = {"RAY_TMPDIR": folder, "PYTHONPATH": str(Path(__file__).parent.parent), "RAY_ADDRESS": "local"}
        ran = subprocess.run([sys.executable, "-c", LOST], env=os.environ | own, capture_output=True, text=True, timeout=300)
    assert "Ray: expected a cluster that goes on; this machine's node has ended." in ran.stdout, ran.stdout + ran.stderr


def test_a_cluster_that_does_not_answer_is_waited_for_no_longer_than_is_said(monkeypatch):
    monkeypatch.setattr(cluster, "_ANSWER", 0.05)
    assert cluster._in_time(lambda: time.sleep(1)) is None and cluster._in_time(lambda: [1]) == [1]
