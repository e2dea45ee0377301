"""`ProcessEngine`: the same episodes by several processes of this machine."""

import logging
import os
import signal

import psutil
import pytest

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.engine import LocalEngine
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import PlayOptions
from gym_text_policies.run.processes import ProcessEngine

GOTO = "BabyAIText-v0?task=goto"


def played(episodes):
    return {(one.seed, one.key): [step.decision.action for step in one.steps] for one in episodes}


def children():
    return [one for one in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(one.cmdline())]


def test_two_processes_play_the_same_episodes_as_one_and_end(tiny_model):
    policies = (PolicyConfig("random"), PolicyConfig(tiny_model, mode="choose"))
    rows = [PlanRow("", f"{GOTO}&max_episode_steps=5", policy, range(7), {"fold": "test"}) for policy in policies]
    local = LocalEngine()
    with PlayOptions(workers=2, num_envs=2).make_engine() as engine:
        assert list(map(engine.identify, rows)) == list(map(local.identify, rows))
        assert played(engine.play(rows)) == played(local.play(rows)) and len(children()) == 2
    assert not children()


TALKING = """
import logging
from gym_text_policies import Decision, Policy

class Odd(Exception):
    def __init__(self, number, text):  # pickles, but its copy cannot be made
        super().__init__(text)

class Leaves:
    def __init__(self):
        self.me = self  # only the garbage collector finds it, at any time

    def __del__(self):
        logging.getLogger("gym_text_policies.own").info("left")

class Talks(Policy):
    config = {}

    def decide(self, turns):
        own, other = logging.getLogger("gym_text_policies.own"), logging.getLogger("other")
        own.info("thinking of %d", len(turns), extra={"odd": Odd(1, "x")})
        other.info("unwanted")
        try:
            raise Odd(1, "beware")
        except Odd:
            other.exception("failed")
        for _ in range(2_000):
            Leaves()
        return [Decision('turn left') for turn in turns]
"""


def test_what_a_process_logs_is_logged_here_if_it_is_wanted(tmp_path, monkeypatch, caplog):
    (tmp_path / "own_talking.py").write_text(TALKING)
    monkeypatch.syspath_prepend(tmp_path)
    row = PlanRow("", f"{GOTO}&max_episode_steps=5", PolicyConfig("own_talking:Talks"), range(8), {"fold": "test"})
    for level, wanted in ((logging.INFO, True), (logging.WARNING, False)):
        caplog.clear()
        with caplog.at_level(level, "gym_text_policies"), ProcessEngine(1, 1) as engine:
            assert len(list(engine.play([row]))) == 8
        assert ("thinking of 1" in caplog.messages) == ("left" in caplog.messages) == wanted
        failed = [message for message in caplog.messages if message.startswith("failed")]
        assert len(failed) == 40 and all("raise Odd" in message for message in failed)
        assert "unwanted" not in caplog.messages


def test_the_seeds_of_a_process_that_dies_are_played_by_others(caplog):
    with ProcessEngine(2, 2) as engine:
        results = engine.play([PlanRow("", GOTO, PolicyConfig("random"), range(40), {"fold": "test"})])
        first = next(results)
        os.kill(children()[0].pid, signal.SIGKILL)
        seeds = [first.seed, *(one.seed for one in results)]
    assert sorted(seeds) == list(range(40)) and "played again" in caplog.text


DEADLY = """
import os, signal
import gymnasium as gym
import gym_text

class Deadly(gym.Wrapper, gym.utils.RecordConstructorArgs):
    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, *, seed=None, options=None):
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)

gym.register("DeadlyGoTo-v0", lambda fold=None: Deadly(gym.make("BabyAIText-v0", max_episode_steps=2)))
"""


def test_an_episode_that_kills_each_process_stops_the_run_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "own_deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(tmp_path)
    row, played = PlanRow("", "own_deadly:DeadlyGoTo-v0", PolicyConfig("random"), range(6)), []
    with ProcessEngine(2, 1) as engine, pytest.raises(RunError, match="seed 3, policy random; 4 ended while it was played"):
        for episode in engine.play([row]):
            played.append(episode.seed)
    assert 3 not in played and len(set(played)) == len(played) > 2


def test_a_mistake_is_the_error_of_one_process(tmp_path):
    with ProcessEngine(2) as engine, pytest.raises(UsageError, match="goto"):
        engine.identify(PlanRow("", "BabyAIText-v0?task=gato", PolicyConfig("random"), [0]))
