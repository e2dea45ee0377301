"""What each action costs the expert: the steps that it really takes, in copies that leave the game as it is."""

import math

import pytest

from gym_text.errors import UsageError
from gym_text.experts import expert_costs

WORLDS = ("BabyAIText-v0", "SokobanText-v0", "TextCraftText-v0", "MapReaderText-v0", "ArithmeticText-v0", "LunarLanderLLM-v2")


@pytest.mark.parametrize("name", WORLDS)
def test_the_costs_are_the_steps_that_the_expert_takes_to_win(name, make, follow_gold_action):
    env = make(name, expert="replan")
    encode = env.get_wrapper_attr("text_spec").encode

    def after_two_steps():
        obs, info = env.reset(seed=4)
        for _ in range(2):
            obs, *_, info = env.step(encode(info["gold_action"], obs))
        return obs, info

    obs, info = after_two_steps()
    costs = expert_costs(env)
    assert tuple(costs) == env.get_wrapper_attr("text_spec").names(obs) and costs[info["gold_action"]] < math.inf
    for action, cost in list(costs.items())[:6]:
        obs, *_, info = env.step(encode(action, obs))
        rewards, info = follow_gold_action(env, obs, info)
        assert (len(rewards) if info["success"] else math.inf) == cost, action
        obs, _ = after_two_steps()


def test_a_win_costs_nothing_more_and_what_loses_costs_infinitely_much(make):
    env = make("SimonSaysText-v0", expert="replan")
    obs, info = env.reset(seed=0)
    for action in info["gold_path"][:-1]:
        obs, *_ = env.step(action)
    assert expert_costs(env) == {action: 0 if action == info["gold_path"][-1] else math.inf for action in obs["valid_actions"]}


@pytest.mark.parametrize("expert", ["off", "path"])
def test_an_expert_that_does_not_replan_is_refused(make, expert):
    env = make("SokobanText-v0", expert=expert)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"^best actions: expected an environment with expert='replan'; got"):
        expert_costs(env)
