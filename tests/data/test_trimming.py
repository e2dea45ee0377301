"""Trimming: a win without the actions that it did not take."""

import dataclasses
import re

import pytest
from training_data import GOTO

from gym_text import UsageError
from gym_text.errors import RunError
from gym_text.wrappers import ExchangeNames
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.trimming import trimmed
from gym_text_policies.environments import environment_maker, fold_arguments
from gym_text_policies.store import EpisodeStore

COOKING = "CookingWorldText-v0"
FOODS = ("carrot", "red apple", "block of cheese", "purple potato", "white onion", "banana")


def maker(name, expert="off"):
    return environment_maker(name, **fold_arguments(name, "train", expert=expert))


def noisy_wins(make_env, seeds, noise):
    """Return what an expert wins whose actions are at random with a probability."""
    played = rollout(make_env, load_policy("gold", make_env(), noise=noise, seed=1), seeds)
    return [episode for episode in played if episode.outcome == "won"]


def actions(episode):
    return [step.decision.action for step in episode.steps]


def play(env, seed, names):
    """Play actions; return whether all are possible and win, and the words that are read before the last one."""
    spec = env.get_wrapper_attr("text_spec")
    obs, info = env.reset(seed=seed)
    words, over = set(), False
    for name in names:
        if over or name not in spec.names(obs):
            return False, words
        words |= set(re.findall(r"\w+", obs["text"].lower()))
        obs, _, over, _, info = env.step(spec.encode(name, obs))
    return info["success"], words


def parts_left_out(make_env, episode):
    """Trim an episode; check that it wins, tells as much, and that no action of it can be left out. Return how many were."""
    env = make_env()
    kept = trimmed(episode, make_env, env.get_wrapper_attr("text_spec"))
    names, (_, read) = actions(kept), play(env, episode.seed, actions(episode))
    won, words = play(env, episode.seed, names)
    assert won and words >= read
    assert kept.outcome == "won" and kept.key == episode.key
    for length in (1, 2):
        for number in range(len(names)):
            won, words = play(env, episode.seed, names[:number] + names[number + length :])
            assert not won or not read <= words, f"{names[number : number + length]} of {names}"
    return episode.length - kept.length


def test_what_is_left_wins_tells_the_recipe_and_no_action_of_it_can_be_left_out():
    def make_env(expert="off"):
        return ExchangeNames(maker(COOKING, expert)(), FOODS)

    wins = noisy_wins(lambda: make_env("replan"), range(2), 0.3)
    assert all("directions" in play(make_env(), win.seed, actions(win))[1] for win in wins), "the recipe is not needed to win"
    assert sum(parts_left_out(make_env, win) for win in wins) > 10


def test_in_babyai_turns_there_and_back_are_left_out():
    assert sum(parts_left_out(maker(GOTO), win) for win in noisy_wins(maker(GOTO, "replan"), range(6), 0.6)) > 10


def test_a_win_that_is_not_one_when_it_is_played_again_is_an_error():
    (win,) = noisy_wins(maker(GOTO, "replan"), range(1), 0)
    make_env = maker(GOTO)
    with pytest.raises(RunError, match="trim: BabyAIText-v0, seed 0: expected a game in which the same actions win again"):
        trimmed(dataclasses.replace(win, steps=win.steps[:-1]), make_env, make_env().get_wrapper_attr("text_spec"))


def test_collect_learns_what_wins_took_with_the_prompts_of_an_episode_without_the_rest(tmp_path):
    config = CollectConfig(str(tmp_path), (COOKING,), ("3",), model="gold", noise=0.3, trim=True)
    rows = collect(config)
    spec, played = maker(COOKING)().get_wrapper_attr("text_spec"), EpisodeStore(tmp_path).episodes()
    won = {episode.key: trimmed(episode, maker(COOKING), spec) for episode in played if episode.outcome == "won"}
    assert {row.episode for row in rows} == set(won)
    for row in rows:
        said = [(message["content"], label) for message, label in zip(row.messages, row.labels, strict=True) if label]
        assert said == [(action, action) for action in actions(won[row.episode])]
        texts = [message["content"] for message in row.messages if message["role"] == "user"]
        assert texts == [step.observation["text"].strip() for step in won[row.episode].steps]


def test_labels_of_the_expert_are_not_trimmed(tmp_path):
    with pytest.raises(UsageError, match="trim: expected labels='own'"):
        CollectConfig(str(tmp_path), (COOKING,), labels="expert", trim=True)
