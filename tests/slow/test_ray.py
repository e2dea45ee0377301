"""A run spread over a Ray cluster of two nodes gives what a run in this process gives."""

import json
import os
from pathlib import Path

import pytest
from episodes import without_seconds

from gym_text import UsageError
from gym_text_policies import EpisodeStore, cli
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.cluster import RayEngine
from gym_text_policies.run.engine import LocalEngine
from gym_text_policies.run.plan import PlanRow

GOTO = "BabyAIText-v0?task=goto"


MEMORY = 80 * 2**20
"""Bytes of a node's object store, the least that Ray takes."""


KILLED = """
import os, pathlib, signal
import gymnasium as gym
import gym_text

class Killed(gym.Wrapper, gym.utils.RecordConstructorArgs):
    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed=None, options=None):
        once = pathlib.Path(__file__).with_name("killed")
        if seed == 5 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)

gym.register("Killed-v0", lambda fold=None: Killed(gym.make("BabyAIText-v0", max_episode_steps=4)))
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Start a node, and connect to it. The module own_killed has an environment that kills a worker once."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        own = tmp_path_factory.mktemp("own")
        (own / "own_killed.py").write_text(KILLED)
        patch.syspath_prepend(own)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(own), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
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


def test_the_table_equals_that_of_the_local_engine(two_nodes, tmp_path, capsys):
    tables = {}
    for engine in ("local", "ray"):
        options = f"--engine {engine} --workers 2 --modes choose --episodes 5 --llm-episodes 3 --num-envs 2".split()
        where = ["--environments", "CookingWorldText-v0", "--folder", str(tmp_path / engine)]
        assert cli.main(["bench", *where, *options, "--models", "scripted:go forward"]) == 0, capsys.readouterr().err
        rows = json.loads((tmp_path / engine / "table.json").read_text())["rows"]
        tables[engine] = [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]
    assert tables["ray"] == tables["local"]
    assert [row["episodes"] for row in tables["ray"]] == [5, 3, 5]
    local, spread = (EpisodeStore(tmp_path / engine).episodes() for engine in ("local", "ray"))
    assert without_seconds(spread, by="key") == without_seconds(local, by="key")


def test_a_mistake_is_the_same_error_as_without_a_cluster(two_nodes):
    with RayEngine(1) as engine:
        for make in (engine.identify, LocalEngine().identify):
            with pytest.raises(UsageError, match="Did you mean 'strategy'"):
                make(PlanRow("", GOTO, PolicyConfig.of("scripted:go", stratgy="chat"), [0]))


def test_the_seeds_of_a_worker_that_is_killed_are_played_by_others(two_nodes, caplog):
    row = PlanRow("", "own_killed:Killed-v0", PolicyConfig("random"), range(12))
    with RayEngine(2, num_envs=2) as engine:
        seeds = [episode.seed for episode in engine.play([row])]
    assert sorted(seeds) == list(range(12)) and "a worker has died" in caplog.text
