"""Trimming: a win without the actions that it did not take."""

import re

import pytest
from training_data import GOTO

from gym_text import UsageError
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
    words = set()
    for name in names:
        if name not in spec.names(obs):
            return False, words
        words |= set(re.findall(r"\w+", obs["text"].lower()))
        obs, _, _, _, info = env.step(spec.encode(name, obs))
    return info["success"], words


def test_what_is_left_wins_tells_as_much_and_no_action_of_it_can_be_left_out():
    def make_env(expert="off"):
        return ExchangeNames(maker(COOKING, expert)(), FOODS)

    shorter, env = 0, make_env()
    for episode in noisy_wins(lambda: make_env("replan"), range(2), 0.3):
        kept = trimmed(episode, make_env)
        names, (_, read) = actions(kept), play(env, episode.seed, actions(episode))
        shorter += episode.length - kept.length
        won, words = play(env, episode.seed, names)
        assert won and words >= read >= {"directions"}, "the recipe is not needed to win"
        assert kept.outcome == "won" and kept.key == episode.key
        for number in range(len(names)):
            won, words = play(env, episode.seed, names[:number] + names[number + 1 :])
            assert not won or not read <= words, f"{names[number]} of {names}"
    assert shorter > 10


def test_in_babyai_turns_there_and_back_are_left_out():
    episodes = noisy_wins(maker(GOTO, "replan"), range(6), 0.6)
    kept = [trimmed(episode, maker(GOTO)) for episode in episodes]
    assert sum(episode.length - one.length for episode, one in zip(episodes, kept, strict=True)) > 10
    assert all(one.outcome == "won" for one in kept)


def test_collect_learns_what_wins_took_with_the_prompts_of_an_episode_without_the_rest(tmp_path):
    config = CollectConfig(str(tmp_path), (COOKING,), ("3",), model="gold", noise=0.3, trim=True)
    rows = collect(config)
    won = {
        episode.key: trimmed(episode, maker(COOKING)) for episode in EpisodeStore(tmp_path).episodes() if episode.outcome == "won"
    }
    assert {row.episode for row in rows} == set(won)
    for row in rows:
        said = [(message["content"], label) for message, label in zip(row.messages, row.labels, strict=True) if label]
        assert said == [(action, action) for action in actions(won[row.episode])]
        texts = [message["content"] for message in row.messages if message["role"] == "user"]
        assert texts == [step.observation["text"].strip() for step in won[row.episode].steps]


def test_labels_of_the_expert_are_not_trimmed(tmp_path):
    with pytest.raises(UsageError, match="trim: expected labels='own'"):
        CollectConfig(str(tmp_path), (COOKING,), labels="expert", trim=True)
