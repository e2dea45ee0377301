"""A run spread over a Ray cluster of two nodes gives what a run in this process gives, whatever dies meanwhile."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import gymnasium as gym
import psutil
import pytest
from episodes import without_seconds

from gym_text import UsageError
from gym_text.errors import ClusterError
from gym_text_policies import EpisodeStore, cli
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.engines import cluster
from gym_text_policies.run.engines.jobs import EpisodeJob, LocalEngine
from gym_text_policies.run.engines.play_options import EpisodeOptions

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
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")]))
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
            if "ray::" in "".join(child.cmdline()):
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


def test_a_level_that_kills_every_worker_stops_the_run_in_one_sentence(two_nodes, monkeypatch):
    monkeypatch.setattr(cluster, "_RETRIES", 1)
    job = EpisodeJob("test_ray:DeadlyText-v0", {}, PolicyConfig("random"), num_envs=1)
    played = []
    with (
        EpisodeOptions(engine="ray", workers=1).make_engine() as engine,
        pytest.raises(ClusterError, match="seed 3, policy random; 2 tries failed"),
    ):
        played += engine.play([(job, range(4))])


def test_a_mistake_is_the_same_error_as_without_a_cluster(two_nodes):
    with EpisodeOptions(engine="ray", workers=1).make_engine() as engine:
        for make in (engine.identify, LocalEngine().identify):
            with pytest.raises(UsageError, match="Did you mean 'strategy'"):
                make(EpisodeJob(GOTO, {}, PolicyConfig.of("scripted:go", stratgy="chat")))


def test_a_killed_worker_and_a_lost_node_cost_their_unfinished_episodes_a_retry(two_nodes):
    job = EpisodeJob(GOTO, {}, PolicyConfig("random"), num_envs=2)
    (node,) = two_nodes.worker_nodes
    played = []
    with EpisodeOptions(engine="ray", workers=2).make_engine() as engine:
        for episode in engine.play([(job, range(200))]):
            played.append(episode)
            if len(played) == 1:
                wait_until(lambda: len(processes()) == 2 and processes(node))
                os.kill(next(pid for pid in processes() if pid not in processes(node)), signal.SIGKILL)
            elif len(played) == 80:
                two_nodes.remove_node(node, allow_graceful=False)
    assert without_seconds(played, by="key") == without_seconds(LocalEngine().play([(job, range(200))]), by="key")
