"""A person in the terminal, and the list of what can be played."""

import io

import numpy as np
import pytest

from gym_text import Action, Field, TextSpec
from gym_text_policies import EpisodeStore, cli
from gym_text_policies.commands.play import Person
from gym_text_policies.environments import environment_maker
from gym_text_policies.records import Turn


def play(monkeypatch, lines, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return cli.main(["play", *words])


def test_a_person_plays_from_a_pipe_and_the_episode_is_kept(monkeypatch, capsys, tmp_path):
    lines = ["?", "", "dance", "1", "3", "quit"]
    assert play(monkeypatch, lines, "BabyAIText-v0?task=goto", "--folder", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "1 turn left   2 turn right   3 go forward" in printed
    assert "action: expected one of 'turn left'" in printed and "Type an action" in printed
    assert "You left after 2 steps" in printed
    (episode,) = EpisodeStore(tmp_path).episodes()
    assert [step.decision.action for step in episode.steps] == ["turn left", "go forward"]
    assert episode.policy == {"kind": "person"}


def said(env, *lines):
    """Return the first action of a person who types these lines, and all that is shown."""
    shown, typed = [], iter(lines)
    obs, _ = env.reset(seed=0)
    spec = env.get_wrapper_attr("text_spec")
    (decision,) = Person(spec, lambda: next(typed), shown.append).decide([Turn(obs, None)])
    return decision.action, "\n".join(shown)


@pytest.mark.parametrize("env_id", ["MountainCarContinuousLLM-v0", "CookingWorldText-v0"])
def test_a_number_picks_the_item_of_the_list(env_id):
    env = environment_maker(env_id)()
    obs, _ = env.reset(seed=0)
    for number, name in enumerate(env.get_wrapper_attr("text_spec").names(obs), start=1):
        action, shown = said(env, "?", str(number))
        assert action == name and f"{number} {name}" in shown


def test_a_number_that_is_none_of_the_list_is_the_action_itself(make):
    env = make("MountainCarContinuousLLM-v0")
    action, shown = said(env, "hard", "0.35")
    assert env.unwrapped.text_spec.encode(action, {}) == np.float32(0.35) and "expected one of" in shown


def listing(*names):
    """Return the spec of a game of words that lists its actions, and an observation with these."""
    fields = {"text": Field("the answer"), "goal": Field("the task"), "valid_actions": Field("the actions", is_list=True)}
    spec = TextSpec("Play.", fields, (Action("[{move}]", "make a move"),), "text")
    return spec, {"text": "", "goal": "", "valid_actions": names}


@pytest.mark.parametrize(
    ("names", "line", "action"),
    [
        (("[A B]", "[B C]"), "[B A]", "[B A]"),  # the game answers what is no action of its list
        (("+1", "0"), "-1", "-1"),
        (("+1", "-1"), "1", "1"),
        (("take apple", "take apple from shelf"), "Take apple", "take apple"),
    ],
)
def test_a_line_plays_no_action_that_was_not_typed(names, line, action):
    spec, obs = listing(*names)
    (decision,) = Person(spec, lambda: line, lambda text: None).decide([Turn(obs, None)])
    assert decision.action == action


def test_help_costs_no_step(make):
    action, shown = said(make("CookingWorldText-v0"), "help", "look around")
    assert action == "look around" and shown.count("Type an action") == 2


def test_environments_are_listed(capsys):
    assert cli.main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    lander = next(line for line in lines if line.startswith("LunarLanderLLM-v2"))
    assert lander.split()[-3:] == ["Discrete(4)", "1000", "yes"]
    assert any(line.startswith("CookingWorldText-v0") and "Text " in line for line in lines)
    assert not any(line.startswith("FrozenLake") for line in lines)
    assert cli.main(["envs", "frozen"]) == 0
    assert "FrozenLake-v1" in capsys.readouterr().out
    assert cli.main(["envs", "chess"]) == 2
