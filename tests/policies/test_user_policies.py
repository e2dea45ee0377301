"""Policies of the user's own, by name, in commands and in `load_policy`."""

import json
import subprocess
import sys

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import EpisodeStore, load_policy, rollout
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.run.engine import LocalEngine
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import PlayOptions, Run

GOTO = "BabyAIText-v0?task=goto"
MODULE = """
from gym_text_policies import Decision, Policy
from gym_text_policies.files.digests import file_digest

class Four(Policy):
    config = {"kind": "four"}

    def decide(self, turns):
        return [Decision("turn left") for turn in turns]

class Named(Four):
    def __init__(self, spec, *, seed=0, action="turn left"):
        super().__init__(spec, seed=seed)
        self.action = action

    def decide(self, turns):
        return [Decision(self.action) for turn in turns]

class Unfinished(Policy):
    pass

class Demanding(Four):
    def __init__(self, spec, size):
        super().__init__(spec)

class NoPolicy:
    pass

def forward(obs):
    return 2

def words(obs):
    return "go forward"

class Trained(Four):
    config = {"kind": "trained", "weights": file_digest("weights.bin")}

def trained(obs):
    return 2

trained.config = {"weights": file_digest("weights.bin")}

class Strings(Four):
    def decide(self, turns):
        return ["turn left" for turn in turns]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_policies.py").write_text(MODULE)
    (tmp_path / "weights.bin").write_bytes(b"first")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "own_policies.py"
    sys.modules.pop("own_policies", None)


def make():
    return gym.make("BabyAIText-v0", task="goto", max_episode_steps=4)


@pytest.mark.parametrize(("name", "said"), [("Four", "turn left"), ("forward", "go forward")])
def test_a_class_and_a_function_play_by_their_names(name, said, module):
    policy = load_policy(f"own_policies:{name}", make(), seed=3)
    assert policy.seed == 3 and policy.config["name"] == f"own_policies:{name}" and len(policy.config["source"]) == 16
    (episode,) = rollout(make, policy, [0])
    assert {step.decision.action for step in episode.steps} == {said}
    obs, _ = make().reset(seed=0)
    assert make().action_space.contains(policy(obs))
    noisy = load_policy(f"own_policies:{name}", make(), noise=1.0)
    assert noisy.config["player"] == load_policy(f"own_policies:{name}", make()).config


def test_a_class_takes_options_which_commands_pass_on_and_records_name(module):
    assert PolicyConfig.of("own_policies:Named", action="toggle", dtype="bfloat16").for_any().options == {"action": "toggle"}
    policy = load_policy("own_policies:Named", make(), action="toggle")
    (episode,) = rollout(make, policy, [0])
    assert episode.steps[0].decision.action == "toggle" and policy.config["options"] == {"action": "toggle"}
    for name, expected in (("Named", "expected action; got dtype"), ("forward", "expected no options; got dtype")):
        with pytest.raises(UsageError, match=expected):
            load_policy(f"own_policies:{name}", make(), dtype="bfloat16")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_policies:Fuor", "Did you mean 'Four'"),
        ("own_policies:Unfinished", "Can't instantiate abstract class Unfinished"),
        ("own_policies:Demanding", r"Demanding\(spec, seed=0\) makes; .* got an unexpected keyword argument 'seed'"),
        ("own_policies:NoPolicy", "expected a subclass of Policy, a function or an object; got the class NoPolicy"),
    ],
)
def test_what_is_no_policy_is_named(name, message, module):
    with pytest.raises(UsageError, match=message):
        load_policy(name, make())


def test_strings_in_place_of_decisions_and_a_name_in_place_of_a_maker_are_said(module):
    policy = load_policy("own_policies:Strings", make())
    (episode,) = rollout(make, policy, [0])
    assert "decide: expected a list with a Decision for each of 1 turns; got ['turn left']" in episode.error
    with pytest.raises(UsageError, match="make_env: expected a function without arguments"):
        list(rollout("BabyAIText-v0", policy, [0]))


def test_they_are_rows_of_the_benchmark_beside_the_baselines_asked_for(module):
    words = ["bench", "--models", "own_policies:Four", "own_policies:forward", "random", "--baselines", "gold"]
    words += ["--environments", GOTO, "--episodes", "1", "--folder", "run"]
    run = [sys.executable, "-m", "gym_text_policies.cli", *words]
    done = subprocess.run(run, cwd=module.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads((module.parent / "run/table.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["own_policies:Four", "own_policies:forward", "random", "gold (expert)"]


def test_a_policy_whose_module_was_edited_is_another_one(module):
    before = load_policy("own_policies:Four", make()).config
    module.write_text(MODULE + "# edited: another policy\n")
    sys.modules.pop("own_policies")
    after = load_policy("own_policies:Four", make()).config
    assert {name for name in before if before[name] != after[name]} == {"source"}


@pytest.mark.parametrize("name", ["Trained", "trained"])
def test_weights_that_a_policy_names_in_its_config_are_part_of_what_identifies_it(name, module):
    def key():
        sys.modules.pop("own_policies", None)
        rows = [PlanRow("", GOTO, PolicyConfig(f"own_policies:{name}"), [0])]
        return Run(rows, EpisodeStore(module.parent / "run"), LocalEngine(), PlayOptions()).rows[0].keys[0]

    before = key()
    assert key() == before
    module.with_name("weights.bin").write_bytes(b"other")
    assert key() != before
