"""A recorded episode, played again."""

import dataclasses

import gymnasium as gym
import pytest

from gym_text_policies import load_policy, rollout
from gym_text_policies.files.json_data import plain
from gym_text_policies.report.replay import replay


def make_env(**arguments):
    return gym.make("BabyAIText-v0", max_episode_steps=12, **arguments)


@pytest.fixture(scope="module")
def episode():
    with make_env() as env:
        return next(rollout(make_env, load_policy("gold", env), [0]))


def test_the_states_are_the_recorded_ones_and_the_rewards_add_up(episode):
    states = [(state.number, plain(state.obs), state.reward_so_far) for state in replay(episode, make_env)]
    assert [number for number, *_ in states] == list(range(episode.length + 1))
    assert [obs for _, obs, _ in states] == [*(step.observation for step in episode.steps), episode.last_observation]
    assert states[-1][2] == pytest.approx(episode.total_reward) and states[0][2] == 0


def test_another_return_is_a_warning(episode, caplog):
    last = dataclasses.replace(episode.steps[-1], reward=7.0)
    assert list(replay(dataclasses.replace(episode, steps=(*episode.steps[:-1], last)), make_env))
    assert "expected the recorded return of 7" in caplog.text


def test_an_environment_that_draws_nothing_is_shown_as_text(episode):
    drawn = {state.picture().shape for state in replay(episode, lambda: make_env(render_mode="rgb_array"))}
    texts = {state.picture().shape for state in replay(episode, make_env)}
    assert texts == {(480, 720, 3)} and not drawn & texts
