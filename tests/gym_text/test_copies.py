"""Forks: copies of an environment in the middle of an episode, which go on as it would and leave it alone."""

import threading
import weakref

import gymnasium as gym
import numpy as np
import pytest
from experts import ENV_IDS
from forks import check_forks
from gymnasium.wrappers import RecordEpisodeStatistics

from gym_text import UsageError
from gym_text.box2d import import_box2d
from gym_text.copies import fork
from gym_text.wrappers import DescribeObservation, EncodeText, ExchangeNames, GoldAction, History, Picture

FEWER = {"ScienceWorldText-v0": (8, 2)}
"""Steps and places of ScienceWorld, where a step takes as long as a hundred of the others; they have 60 steps and four places."""
MORE = [
    *(("BabyAIText-v0", {"level": f"BabyAI-{level}-v0"}) for level in ("KeyInBox", "BossLevel", "OpenDoorDebug", "PickupAbove")),
    ("BabyAIText-v0", {"level": "BabyAI-PutNextS5N2Carrying-v0"}),
    ("BabyAIText-v0", {"task": "pick_up_seq_go_to", "num_dists": 4}),
    ("CookingWorldText-v0", {"actions": "index", "expert": "path"}),
]
"""More environments, whose games have further kinds of state, or other actions."""


@pytest.mark.parametrize(("env_id", "arguments"), [*((name, {}) for name in ENV_IDS), *MORE])
def test_forks_go_on_as_the_environment_does_and_leave_it_alone(env_id, arguments, make):
    arguments = {"expert": "off"} | arguments  # plans would take most of the time
    check_forks(make(env_id, **arguments), make(env_id, **arguments), *FEWER.get(env_id, (60, 4)))


def test_a_closed_fork_leaves_no_game_behind(make):
    env = make("SortingText-v0", expert="off")
    env.reset(seed=0)
    twin = fork(env)
    game = weakref.ref(twin.unwrapped._game)
    twin.close()
    assert game() is None


# ---------------------------------------------------------------- wrappers


class Large:
    """Something that all copies may share."""

    def __deepcopy__(self, memo):
        return self


class Notes(gym.Wrapper):
    """A user's wrapper: it keeps a list, a generator, the environment itself and something large."""

    def __init__(self, env):
        super().__init__(env)
        self.drawn, self.rng, self.base, self.large = [], np.random.default_rng(0), env.unwrapped, Large()

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.drawn.append(self.rng.random())
        return obs | {"drawn": tuple(self.drawn), "same": self.base is self.unwrapped}, *rest


def wrapped(env):
    env = ExchangeNames(env, ("carrot", "red apple", "block of cheese", "red hot pepper"))
    return Notes(RecordEpisodeStatistics(History(History(env, None, whole=True), 5)))


def test_a_fork_has_copies_of_all_wrappers(make):
    original, unforked = (wrapped(make("CookingWorldText-v0", max_episode_steps=30)) for _ in range(2))
    check_forks(original, unforked, 60, 3)
    copied = fork(original)
    assert copied.large is original.large and copied.drawn is not original.drawn
    assert copied.observation_space is original.observation_space
    assert copied.get_wrapper_attr("text_spec") == original.get_wrapper_attr("text_spec")


@pytest.mark.parametrize("wrapper", [Picture, EncodeText])
def test_a_fork_draws_and_encodes_as_the_environment_does(wrapper, make):
    env = wrapper(make("BabyAIText-v0", render_mode="rgb_array"))
    env.reset(seed=0)
    copied = fork(env)
    assert copied.unwrapped.render_mode == "rgb_array"
    np.testing.assert_equal(copied.step(2)[0], env.step(2)[0])


def test_a_fork_gives_no_hints(make):
    env = GoldAction(make("BabyAIText-v0"))
    obs, info = env.reset(seed=0)
    obs, *_, info = fork(env).step(env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs))
    assert obs["gold_action"] == "" and not {"gold_action", "gold_path", "gold_steps"} & info.keys()


# ---------------------------------------------------------------- environments that others made


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_described_environments_are_copied(env_id, make):
    check_forks(DescribeObservation(make(env_id)), DescribeObservation(make(env_id)), 60, 3)


def test_environments_whose_copies_begin_anew_are_refused(make):
    import_box2d()
    env = DescribeObservation(make("LunarLander-v3"))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"LunarLander.*begin anew.*Give its class a method fork"):
        fork(env)


def test_what_cannot_be_copied_is_named(make):
    env = Notes(make("BabyAIText-v0"))
    env.large = threading.Lock()
    with pytest.raises(UsageError, match=r"Notes\.large cannot be copied.*lock.*__deepcopy__"):
        fork(env)
