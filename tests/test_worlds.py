"""A search in copies of the game in which what the player has not seen is drawn anew."""

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.policies.worlds import drawn_worlds
from gym_text_policies.records import Turn


def make_env():
    return gym.make("BabyAIText-v0", task="goto", max_episode_steps=4, expert="off")


def test_worlds_look_alike_differ_in_the_unseen_and_share_the_simulations():
    env = gym.make("BabyAIText-v0")
    obs, _ = load_policy("random", env, lookahead="puct", worlds=3).wrap(env).reset(seed=2)
    worlds = [*drawn_worlds(Turn(obs, np.random.default_rng(0)), 3, 8), *drawn_worlds(Turn(obs, np.random.default_rng(0)), 1, 1)]
    assert [simulations for _, simulations in worlds] == [3, 3, 2, 1]
    games = [world.obs["fork"]() for world, _ in worlds]
    assert all(world.obs["text"] == obs["text"] for world, _ in worlds)
    grids = [tuple(map(str, game.unwrapped._game.grid.encode().ravel())) for game in games]
    assert len(set(grids[:3])) == 3 and grids[3] == grids[0], "the turn's generator draws them"


def test_the_searches_of_all_worlds_vote_and_their_costs_are_added():
    policy = load_policy("random", make_env(), lookahead="puct", simulations=48, worlds=4)
    assert policy.config["worlds"] == 4
    won = [episode for episode in rollout(make_env, policy, range(12), num_envs=3) if episode.outcome == "won"]
    assert won, "some missions are near and in sight"
    decision = won[0].steps[-1].decision
    assert decision.plan[0] == decision.action and decision.visits.keys() == decision.values.keys()
    assert sum(decision.visits.values()) <= 48 and 1 <= decision.model_calls <= 49
    assert decision.visits[decision.action] == max(decision.visits.values()), "a plan counts as all simulations of its world"
    assert max(decision.values.values()) == decision.values[decision.action] > 0.9
    alone = next(rollout(make_env, policy, [won[0].seed], num_envs=1))
    assert [step.decision.visits for step in alone.steps] == [step.decision.visits for step in won[0].steps]


def test_where_the_unseen_cannot_be_drawn_the_setting_is_refused_and_without_it_nothing_is_new(make):
    env = make("CoinCollectorText-v0")
    policy = load_policy("random", env, lookahead="puct", worlds=2)
    with pytest.raises(UsageError, match=r"worlds: fork: expected unseen=None, as CoinCollectorEnv .* Leave out worlds"):
        policy.decide([Turn(policy.wrap(env).reset(seed=0)[0], np.random.default_rng(0))])
    with pytest.raises(UsageError, match="worlds: expected at most simulations=8; got 9"):
        load_policy("random", env, lookahead="puct", simulations=8, worlds=9)
    assert "worlds" not in load_policy("random", env, lookahead="puct").config
