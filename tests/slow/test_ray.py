"""A run spread over a Ray cluster of two nodes gives what a run in this process gives."""

import json
import os
from pathlib import Path

import pytest
from episodes import without_seconds

from gym_text import UsageError
from gym_text_policies import EpisodeStore, cli
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.engines.jobs import EpisodeJob, LocalEngine
from gym_text_policies.run.engines.play_options import EpisodeOptions

GOTO = "BabyAIText-v0?task=goto"


MEMORY = 80 * 2**20
"""Bytes of a node's object store, the least that Ray takes."""


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


def test_a_mistake_is_the_same_error_as_without_a_cluster(two_nodes):
    with EpisodeOptions(engine="ray", workers=1).make_engine() as engine:
        for make in (engine.identify, LocalEngine().identify):
            with pytest.raises(UsageError, match="Did you mean 'strategy'"):
                make(EpisodeJob(GOTO, {}, PolicyConfig.of("scripted:go", stratgy="chat")))
