"""The values of the states that a level's episodes reached, by examples that were worked out by hand."""

import math
from types import SimpleNamespace

import pytest
from training_data import Corridor

from gym_text import UsageError
from gym_text.text_env import Outcome
from gym_text_policies.environments import environment_maker
from gym_text_policies.training.state_values import action_values, reached_states, state_of, target_probabilities, with_floor
from gym_text_policies.training.targets import UNIFORM_SHARE

ACTIONS = ("left", "right", "stay")


class Line(Corridor):
    """Places in a line, from 0 on. At the last place the game is won. Some other places end it for nothing."""

    def __init__(self, *, pits=(), **arguments):
        super().__init__(**arguments)
        self.pits = pits

    def _play(self, action):
        self.place = max(0, self.place + action - 1) if action != 2 else self.place
        self.place += action == 1
        won = self.place == self.length
        over = won or self.place in self.pits
        return Outcome({"text": f"Place {self.place}.", "goal": "Walk."}, float(won), over, success=won)


class Moody(Line):
    """A line that begins at another place each time."""

    starts = 0

    def _start(self, seed):
        Moody.starts += 1
        return super()._start(seed) | {"text": f"Place {Moody.starts}."}


def walk(env, actions, prior=(0.25, 0.25, 0.5)):
    """Play actions, and return the episode as `reached_states` needs it."""
    obs, _ = env.reset(seed=0)
    steps = []
    for action in actions:
        steps.append(SimpleNamespace(observation=obs, decision=SimpleNamespace(action=action)))
        obs = env.step(env.text_spec.encode(action, obs))[0]
    candidates = tuple(dict(zip(ACTIONS, prior, strict=True)) for _ in steps)
    return SimpleNamespace(environment="Line-v0", episode=SimpleNamespace(seed=0, steps=steps), candidates=candidates)


def named(values):
    """Return values by the number of the place."""
    return {name.split("Place ")[1][0]: of_actions for name, of_actions in values.items()}


def test_copies_try_each_other_action_once_in_each_state_and_the_game_goes_on_as_it_did():
    env = Line(length=3)
    states, steps = reached_states(env, [walk(env, ["stay", "right", "left", "stay"]), walk(env, ["right", "right", "right"])])
    tried = 3 * 2  # in each of three states the two actions that are not taken at first
    again = {("0", "right"), ("1", "left"), ("1", "right")}
    places = named(states)
    found = {(place, action): state.consequences[action] for place, state in places.items() for action in ACTIONS}
    assert {key for key, consequences in found.items() if len(consequences) > 1} <= again | {("0", "stay")}
    assert steps == 7 + tried
    where = {key: one[0].next_state and named({one[0].next_state: 0}).popitem()[0] for key, one in found.items()}
    assert where == {
        **{("0", "left"): "0", ("0", "right"): "1", ("0", "stay"): "0"},
        **{("1", "left"): "0", ("1", "right"): "2", ("1", "stay"): "1"},
        **{("2", "left"): "1", ("2", "right"): None, ("2", "stay"): "2"},
    }
    assert found["2", "right"][0].reward == 1


def test_one_win_gives_values_to_the_states_of_all_episodes_of_its_level():
    env = Line(length=3)
    lost, won = walk(env, ["right", "left", "stay"]), walk(env, ["right", "right", "right"])
    values = named(action_values(reached_states(env, [lost, won])[0], 0.5, 1e-3))  # nearly the best way
    assert values["2"] == pytest.approx({"left": 0.25, "right": 1, "stay": 0.5}, abs=0.01)
    assert values["1"] == pytest.approx({"left": 0.125, "right": 0.5, "stay": 0.25}, abs=0.01)
    assert values["0"] == pytest.approx({"left": 0.125, "right": 0.25, "stay": 0.125}, abs=0.01)


def test_a_copy_shows_a_reward_that_no_episode_had():
    env = Line(length=2)
    values = named(action_values(reached_states(env, [walk(env, ["right", "stay", "left"])])[0], 0.5, 1e-3))
    assert values["1"]["right"] == 1 and values["0"]["right"] == pytest.approx(0.5, abs=0.01)


def test_the_temperature_leads_from_the_best_way_to_the_value_of_the_prior():
    env = Line(length=1, pits=())
    states = reached_states(env, [walk(env, ["stay"], prior=(0.2, 0.3, 0.5))])[0]
    share = (1 - UNIFORM_SHARE) * 0.3 + UNIFORM_SHARE / 3  # of "right", which wins; else one stays
    for temperature in (0.1, 1.0):
        value = 0.0
        for _ in range(200):
            value = temperature * math.log(share * math.exp(1 / temperature) + (1 - share) * math.exp(0.9 * value / temperature))
        (of_actions,) = action_values(states, 0.9, temperature).values()
        assert of_actions == pytest.approx({"left": 0.9 * value, "right": 1, "stay": 0.9 * value}, abs=1e-3)
    (of_actions,) = action_values(states, 0.9, 1e4).values()
    assert of_actions["stay"] == pytest.approx(0.9 * share / (1 - 0.9 * (1 - share)), abs=1e-3), "that of the prior"


def test_an_action_that_leads_out_of_what_was_reached_is_not_known():
    env = Line(length=9)
    states = reached_states(env, [walk(env, ["stay"])])[0]
    assert named(action_values(states, 0.9, 0.1)) == {"0": {"left": 0, "stay": 0}}
    assert named(action_values(reached_states(env, [walk(env, ["right"])])[0], 0.9, 0.1))["0"].keys() == {"left", "stay"}


def test_targets_are_the_old_probabilities_by_advantage_and_the_unknown_keep_theirs():
    prior = {"left": 0.6, "right": 0.3, "stay": 0.1}
    floored = with_floor(prior)
    assert sum(floored.values()) == pytest.approx(1) and floored["stay"] == pytest.approx(0.98 * 0.1 + 0.02 / 3)
    targets = target_probabilities(prior, {"left": 0.2, "right": 0.5}, 0.1)
    assert targets["right"] / targets["left"] == pytest.approx(floored["right"] / floored["left"] * math.exp(3))
    assert targets["stay"] == floored["stay"] and sum(targets.values()) == pytest.approx(1)
    never_drawn = target_probabilities({"left": 1.0, "right": 0.0}, {"left": 0.0, "right": 1.0}, 0.1)
    assert never_drawn["right"] > 0.99
    for values in ({}, {"left": 0.2}, {"left": 0.2, "stay": 0.2}):
        assert target_probabilities(prior, values, 0.1) == pytest.approx(floored), "none is worth more than another"


def test_a_game_that_goes_another_way_the_second_time_is_refused():
    env = Moody(length=3)
    with pytest.raises(UsageError, match="Line-v0: expected an environment that plays an episode twice in the same way"):
        reached_states(env, [walk(env, ["right"])])


def test_in_babyai_copies_tell_what_the_game_itself_would_answer():
    env = environment_maker("BabyAIText-v0?task=pickup", fold="train", expert="off")()
    spec, actions = env.get_wrapper_attr("text_spec"), ["turn left", "go forward", "go forward", "turn right", "go forward"]
    obs, _ = env.reset(seed=0)
    names, steps = [action.name for action in spec.actions], []
    for action in actions:
        steps.append(SimpleNamespace(observation=obs, decision=SimpleNamespace(action=action)))
        obs = env.step(spec.encode(action, obs))[0]
    walked = SimpleNamespace(
        environment="BabyAI", episode=SimpleNamespace(seed=0, steps=steps), candidates=(dict.fromkeys(names, 1 / 6),) * len(steps)
    )
    states, played = reached_states(env, [walked])
    assert played == len(actions) + 5 * len(states)
    for number, step in enumerate(steps):
        for action, (consequence, *_) in states[state_of(step.observation)].consequences.items():
            obs, _ = env.reset(seed=0)
            for taken in [*actions[:number], action]:
                obs, reward, terminated, *_ = env.step(spec.encode(taken, obs))
            assert (consequence.reward, consequence.next_state) == (reward, None if terminated else state_of(obs))
    env.close()
