"""`DescribeObservation` and the descriptions that ship, against the environments that they describe."""

import contextlib
import copy
import functools
import json
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence
from test_spec import as_json, conforms

from gym_text import Action, Field, MissingDependencyError, Quantity, TextSpec, UsageError
from gym_text.box2d import import_box2d
from gym_text.descriptions import DESCRIBED, find_description
from gym_text.spaces import FreeText
from gym_text.wrappers import DescribeObservation
from gym_text_policies import cli, load_policy, rollout
from gym_text_policies.environments import make_environment

with contextlib.suppress(MissingDependencyError):  # else the tests that need it are skipped
    import_box2d()
IDS = [
    *("Acrobot-v1", "Blackjack-v1", "CartPole-v1", "CliffWalking-v1", "FrozenLake-v1", "LunarLander-v3"),
    *("LunarLanderContinuous-v3", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3",
]
"""An environment for each description; LunarLander has two kinds of actions."""


@pytest.fixture(params=IDS)
def described(request, make):
    """Return each described environment, with and without its words."""
    return DescribeObservation(make(request.param)), make(request.param)


def wrapped(make, env_id, **arguments):
    return DescribeObservation(make(env_id, **arguments))


def after(env, name, steps=1, seed=0):
    """Return the observation before and after an action was taken some times."""
    before, _ = env.reset(seed=seed)
    for _ in range(steps):
        obs, *_ = env.step(env.text_spec.encode(name, before))
    return before["observation"], obs["observation"]


# ---------------------------------------------------------------- all of them


def test_every_described_class_is_among_them():
    assert {str(gym.registry[name].entry_point).rpartition(":")[2] for name in IDS} == set(DESCRIBED)


def test_fields_and_quantities_are_those_of_the_space(described):
    env, plain = described
    own = plain.observation_space
    assert set(env.text_spec.fields) == set(env.observation_space) == {"text", "goal", "observation"}
    assert env.observation_space["observation"] == own
    quantities = env.text_spec.fields["observation"].quantities
    if isinstance(own, gym.spaces.Box):
        low, high = own.low, own.high
    else:
        parts = getattr(own, "spaces", [own])
        low, high = [0] * len(parts), [part.n - 1 for part in parts]
    assert np.allclose([quantity.low for quantity in quantities], low, atol=1e-4)
    assert np.allclose([quantity.high for quantity in quantities], high, atol=1e-4)
    assert len({quantity.name for quantity in quantities}) == len(quantities)


def test_an_episode_is_that_of_the_bare_environment_in_words(described):
    env, plain = described
    spec, rng = env.text_spec, np.random.default_rng(0)
    schema = json.loads(json.dumps(env.get_observation_schema(), allow_nan=False))
    obs, info = env.reset(seed=1)
    bare, _ = plain.reset(seed=1)
    assert info["score"] == 0 and not info["success"] and not info["failure"]
    total = 0.0
    for _ in range(40):
        assert obs in env.observation_space
        assert data_equivalence(obs["observation"], bare, exact=True)
        assert obs["text"] and obs["goal"] == spec.goal
        numbers = {"observation": list(bare) if isinstance(bare, tuple) else bare}
        assert conforms(as_json(obs | numbers), schema)
        action = spec.encode(str(rng.choice(spec.names(obs))), obs)
        assert action in env.action_space
        obs, reward, terminated, truncated, info = env.step(action)
        bare, *outcome, _ = plain.step(action)
        assert [reward, terminated, truncated] == outcome
        total += reward
        assert info["score"] == pytest.approx(total)
        if terminated or truncated:
            break


def test_names_of_actions_come_back_and_say_what_they_mean(described):
    env, _ = described
    spec, (obs, _) = env.text_spec, env.reset(seed=0)
    schema = env.get_action_schema()
    assert len(spec.names(obs)) == len(set(spec.names(obs)))
    for action in spec.actions:
        assert spec.decode(spec.encode(action.name, obs), obs) == action.name
        assert action.meaning and conforms(action.name, schema)
    if spec.encoding == "discrete":
        assert [spec.encode(action.name, obs) for action in spec.actions] == list(range(env.action_space.n))
    else:
        spelled = ", ".join(["0.25"] * spec.size)
        assert spec.encode(spelled, obs).tolist() == [0.25] * spec.size
        assert spec.decode(spec.encode(spelled, obs), obs) == spelled
    assert spec.reward and spec.goal and env.get_goal_description() == spec.goal


# ---------------------------------------------------------------- each of them


@pytest.mark.parametrize(("env_id", "width"), [("FrozenLake-v1", 4), ("FrozenLake8x8-v1", 8)])
def test_on_the_lake_words_and_moves_are_those_of_the_map(env_id, width, make):
    env = wrapped(make, env_id, is_slippery=False)
    steps = {"left": -1, "down": width, "right": 1, "up": -width}
    names = {"F": "safe ice", "S": "the start", "H": "a hole", "G": "the goal"}
    board = "".join(tile.decode() for tile in env.unwrapped.desc.ravel())
    assert "\n".join(board[i : i + width] for i in range(0, len(board), width)) in env.text_spec.goal
    moves = env.unwrapped.P
    for tile in range(width * width):
        said = env._describe(tile)
        assert said.startswith(f"You stand in row {tile // width}, column {tile % width}, on {names[board[tile]]}. ")
        if board[tile] in "SF":
            for number, action in enumerate(env.text_spec.actions):
                way = action.name.removeprefix("move ")
                ((_, there, _, _),) = moves[tile][number]
                lies = re.search(rf"{way.capitalize()}: ([a-z ]+)\.", said)[1]
                assert (there, lies) == (tile, "the edge") or (there, lies) == (tile + steps[way], names[board[there]])


def test_a_slippery_lake_says_how_slippery(make):
    assert "always goes where you want" in wrapped(make, "FrozenLake-v1", is_slippery=False).text_spec.goal
    assert "with probability 0.8," in wrapped(make, "FrozenLake-v1", success_rate=0.8).text_spec.goal
    assert "with probability 0.33," in wrapped(make, "FrozenLake-v1").text_spec.goal


def test_reaching_the_goal_is_success_and_a_hole_is_failure(make):
    env = wrapped(make, "FrozenLake-v1", is_slippery=False, reward_schedule=(7, 1, 1))
    for way, ends in (("down down right right down right", (True, False)), ("down right", (False, True))):
        obs, _ = env.reset(seed=0)
        for step in way.split():
            obs, *_, info = env.step(env.text_spec.encode(f"move {step}", obs))
        assert (info["success"], info["failure"]) == ends


def test_on_the_cliff_words_and_moves_are_those_of_the_map(make):
    env = wrapped(make, "CliffWalking-v1")
    steps = {"up": -12, "right": 1, "down": 12, "left": -1}
    for cell in range(37):
        for number, action in enumerate(env.text_spec.actions):
            way = action.name.removeprefix("move ")
            ((_, there, reward, over),) = env.unwrapped.P[cell][number]
            lies = re.search(rf"{way.capitalize()}: ([a-z ]+)\.", env._describe(cell))[1]
            expected = {"the edge": cell, "free": cell + steps[way], "the cliff": 36, "the goal": 47, "the start": 36}[lies]
            assert there == expected
            assert (lies == "the cliff") == (reward == -100) and (lies == "the goal") == over
    assert "1/3" in wrapped(make, "CliffWalking-v1", is_slippery=True).text_spec.goal


def test_an_environment_without_a_limit_gets_one():
    for env_id, limit in (("CliffWalking-v1", 200), ("Blackjack-v1", None), ("CartPole-v1", 500)):
        env = make_environment(env_id)
        assert env.spec.max_episode_steps == limit
        env.close()


def test_in_the_taxi_every_state_is_said_and_every_free_way_goes(make):
    env = wrapped(make, "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3")
    city, number = env.unwrapped, {action.name: i for i, action in enumerate(env.text_spec.actions)}
    rows = {"south": 1, "north": -1, "east": 0, "west": 0}
    columns = {"south": 0, "north": 0, "east": 1, "west": -1}
    said = {state: env._describe(state) for state in range(500)}
    assert len(set(said.values())) == 500
    for state, words in said.items():
        row, column, passenger, _ = city.decode(state)
        assert f"in row {row}, column {column}." in words and ("in the taxi" in words) == (passenger == 4)
        free = words.partition("Free ways: ")[2].rstrip(".").split(", ")
        for way in rows:
            there = list(city.decode(city.P[state][number[f"move {way}"]][0][1]))[:2]
            assert there == ([row + rows[way], column + columns[way]] if way in free else [row, column])


def test_a_delivery_is_success(make):
    env = wrapped(make, "Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3")
    obs, _ = env.reset(seed=0)
    env.unwrapped.s = env.unwrapped.encode(0, 0, 4, 0)
    *_, reward, terminated, _, info = env.step(env.text_spec.encode("drop off", obs))
    assert (reward, terminated, info["success"]) == (20, True, True)


def test_blackjack_is_said_and_won_by_its_reward(make):
    env, seen = wrapped(make, "Blackjack-v1"), set()
    for seed in range(60):
        obs, info = env.reset(seed=seed)
        total, dealer, ace = obs["observation"]
        assert f"sum to {total}, {'with' if ace else 'without'} an ace" in obs["text"]
        assert ("shows an ace" if dealer == 1 else f"card of value {dealer}.") in obs["text"]
        _, reward, terminated, _, info = env.step(env.text_spec.encode("stick", obs))
        assert terminated and info["success"] == (reward > 0) and info["failure"] == (reward <= 0)
        seen.add(reward)
    assert seen == {-1, 0, 1}


def test_cart_pole_is_pushed_as_named_and_its_sides_are_true(make):
    env = wrapped(make, "CartPole-v1")
    for name, sign in (("push left", -1), ("push right", 1)):
        before, obs = after(env, name, steps=5)
        assert np.sign(obs[1] - before[1]) == sign
        assert np.sign(obs[2] - before[2]) == -sign  # the pole lags behind the cart
    assert env._describe([-0.5, 0.25, 0.1, -1.5]) == (
        "cart_position -0.5 m, cart_velocity 0.25 m/s, pole_angle 0.1 radians, pole_angular_velocity -1.5 radians/s."
    )


def test_a_pole_that_stands_to_the_limit_is_success(make):
    assert not wrapped(make, "CartPole-v1").text_spec.reward.startswith("-1")
    assert wrapped(make, "CartPole-v1", sutton_barto_reward=True).text_spec.reward.startswith("-1")
    env = wrapped(make, "CartPole-v1", max_episode_steps=20)
    obs, _ = env.reset(seed=0)
    over = False
    while not over:
        obs, _, terminated, truncated, info = env.step(int(obs["observation"][2] + obs["observation"][3] > 0))
        over = terminated or truncated
    assert truncated and info["success"] and not info["failure"]
    env.reset(seed=0)
    while not terminated:
        *_, terminated, _, info = env.step(0)
    assert info["failure"] and not info["success"]


def test_acrobot_turns_as_named(make):
    env = wrapped(make, "Acrobot-v1")
    spin = {name: after(env, name, steps=1)[1][5] for name in ("torque negative", "no torque", "torque positive")}
    assert spin["torque negative"] < spin["no torque"] < spin["torque positive"]


def test_pendulum_turns_as_named(make):
    env = wrapped(make, "Pendulum-v1")
    velocity = {action.name: after(env, action.name)[1][2] for action in env.text_spec.actions}
    assert list(velocity) == sorted(velocity, key=velocity.get)  # from clockwise to counter-clockwise


@pytest.mark.parametrize(("env_id", "flag"), [("MountainCar-v0", "0.5"), ("MountainCarContinuous-v0", "0.45")])
def test_cars_are_pushed_as_named_and_know_their_flag(env_id, flag, make):
    env = wrapped(make, env_id)
    velocity = [float(after(env, action.name)[1][1]) for action in env.text_spec.actions]
    assert velocity == sorted(velocity)
    assert f"at position {flag}" in env.text_spec.goal
    assert f"{float(flag) + 0.5:.3f} from the flag" in env._describe(np.array([-0.5, 0.0]))


def test_engines_of_the_continuous_lander_push_as_named(make):
    env = wrapped(make, "LunarLanderContinuous-v3")
    drift = after(env, "do nothing", 3)[1]
    assert after(env, "fire main engine", 3)[1][3] > drift[3]
    assert after(env, "fire left engine", 3)[1][2] < drift[2] < after(env, "fire right engine", 3)[1][2]
    both = after(env, "fire main and left engine", 3)[1]
    assert both[3] > drift[3] and both[2] < drift[2]


# ---------------------------------------------------------------- the wrapper


def test_folds_shift_the_seed_and_never_meet(make):
    plain, folded = make("CartPole-v1"), DescribeObservation(make("CartPole-v1"), fold="test")
    assert np.array_equal(folded.reset(seed=3)[0]["observation"], plain.reset(seed=3_000_003)[0])
    first = [folded.reset()[0]["text"] for _ in range(3)]
    folded.reset(seed=3)
    assert [folded.reset()[0]["text"] for _ in range(3)] == first and len(set(first)) == 3


def test_a_spec_of_ones_own_gives_words_to_any_environment(make):
    spec = TextSpec(
        "Swing.",
        {"text": Field("words"), "goal": Field("task"), "observation": Field("it", (Quantity("x", "", -1, 1, "m"),) * 3)},
        (Action("nothing", "no torque", 0.0),),
        "box",
        low=-2.0,
        high=2.0,
    )
    env = DescribeObservation(make("Pendulum-v1"), spec)
    obs, _ = env.reset(seed=0)
    assert obs["goal"] == "Swing." and re.fullmatch(r"x [-.\d]+ m, x [-.\d]+ m, x [-.\d]+ m\.", obs["text"])
    spoken = DescribeObservation(make("Pendulum-v1"), spec, describe=lambda obs: f"x is {obs[0]:.1f}")
    assert spoken.reset(seed=0)[0]["text"].startswith("x is ")
    (episode,) = rollout(
        lambda: DescribeObservation(gym.make("Pendulum-v1", max_episode_steps=3), spec), load_policy("random", env), [0]
    )
    assert episode.length == 3 and episode.environment["wrappers"][0][0] == "DescribeObservation"


class Gadget(gym.Env):
    """Shows a dict."""

    observation_space = gym.spaces.Dict({"dial": gym.spaces.Box(0, 1, (2,)), "lamp": gym.spaces.Discrete(2)})
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"dial": np.array([0.5, 0.25], np.float32), "lamp": 1}, {}


def test_an_observation_that_is_a_dict_keeps_its_keys():
    fields = {
        "text": Field("words"),
        "goal": Field("task"),
        "dial": Field("dial", (Quantity("a", "", 0, 1), Quantity("b", "", 0, 1))),
        "lamp": Field("lamp", (Quantity("lamp", "", 0, 1),), is_scalar=True),
    }
    spec = TextSpec("Look.", fields, (Action("wait", ""), Action("press", "")), "discrete")
    env = DescribeObservation(Gadget(), spec)
    obs, _ = env.reset()
    assert obs["text"] == "a 0.5, b 0.25.\nlamp 1." and set(obs) == {"text", "goal", "dial", "lamp"}
    assert obs in env.observation_space


TEXT, WAYS = FreeText(40), (Action("go north", ""), Action("go south", ""))


def speaking(space, said, fields=None):
    """Return a class of environments that always say the same."""

    class Hall(gym.Env):
        observation_space, action_space = space, gym.spaces.Discrete(2)
        text_spec = None if fields is None else TextSpec("Leave the hall.", fields, WAYS, "discrete")

        def reset(self, *, seed=None, options=None):
            return copy.copy(said), {}

        def step(self, action):
            return copy.copy(said), 0.0, False, False, {}

    return Hall


@pytest.mark.parametrize(
    ("space", "said", "fields"),
    [
        (TEXT, "A hall.", {}),
        (gym.spaces.Dict(text=TEXT), {"text": "A hall."}, {"text": Field("words")}),
        (gym.spaces.Dict(text=TEXT, goal=TEXT), {"text": "A hall.", "goal": "Leave the hall."}, {}),
        (gym.spaces.Dict(room=TEXT, bag=TEXT), {"room": "A hall.", "bag": "A lamp."}, {"room": Field("it"), "bag": Field("yours")}),
    ],
)
def test_an_environment_that_speaks_is_played_by_its_own_words(space, said, fields, monkeypatch):
    monkeypatch.setitem(gym.registry, "Hall-v0", EnvSpec("Hall-v0", speaking(space, said, fields), max_episode_steps=2))
    make = functools.partial(make_environment, "Hall-v0", fold="test")
    assert make().reset(seed=0)[0] in make().observation_space
    (episode,) = rollout(make, load_policy("scripted:go north", make()), [0])
    prompt = episode.steps[-1].decision.messages[-1]["content"]
    assert episode.length == 2 and prompt.startswith("Task: Leave the hall.\n\nA hall.\n")
    assert ("A lamp." in prompt) == ("bag" in said)
    with pytest.raises(UsageError, match=r"expected an environment with a text_spec, and Dict .* which has no goal"):
        load_policy("random", gym.make("Hall-v0"))


@pytest.mark.parametrize(
    ("env", "spec", "message"),
    [
        (Gadget, None, "expected a TextSpec, as this package does not describe .*Gadget.* Give its class an attribute text_spec"),
        (lambda: gym.make("CartPole-v1"), TextSpec("", {"text": Field("")}, (), "discrete"), "expected the keys"),
        (
            lambda: speaking(gym.spaces.MultiBinary(2), np.zeros(2, np.int8))(),
            TextSpec("", {"observation": Field("")}, WAYS, "discrete"),
            "expected describe=, which says the observation in words",
        ),
    ],
)
def test_what_cannot_be_described_is_said(env, spec, message):
    with pytest.raises(UsageError, match=message):
        DescribeObservation(env(), spec)


def test_a_spec_that_does_not_fit_is_refused(make):
    import dataclasses

    cart, pendulum = find_description(make("CartPole-v1")).spec, find_description(make("Pendulum-v1")).spec
    for env_id, spec, message in (
        ("CartPole-v1", dataclasses.replace(cart, actions=cart.actions[:1]), "a name for each action, from 0, of"),
        ("Pendulum-v1", dataclasses.replace(pendulum, high=1.0, actions=()), "size, low and high, .* of"),
        ("Pendulum-v1", dataclasses.replace(pendulum, size=2, actions=()), "size, low and high, .* of"),
        ("Acrobot-v1", dataclasses.replace(pendulum), "expected 6 quantities"),
    ):
        with pytest.raises(UsageError, match=message):
            DescribeObservation(make(env_id), spec)


# ---------------------------------------------------------------- by name


def test_bench_plays_gymnasium_ids_and_says_what_was_meant(tmp_path, capsys):
    asked = [*f"bench --folder {tmp_path} --episodes 3 --llm-episodes 1 --modes text --models".split(), "scripted:move right"]
    assert cli.main([*asked, "--environments", "FrozenLake-v1?is_slippery=False", "CliffWalking-v1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("scripted:move right, text") == 2 and "gold" not in printed
    assert cli.main([*asked, "--environments", "FrozenLak-v1"]) == 2
    assert "Did you mean 'FrozenLake-v1'" in capsys.readouterr().err
    asked[2] = str(tmp_path / "another")
    assert cli.main([*asked, "--environments", "FrozenLake-v1?is_slipery=False"]) == 2
    assert "Did you mean 'is_slippery'" in capsys.readouterr().err


def test_several_numbers_are_read_out_of_an_answer(make):
    from gym_text_policies.policies.parsing import parse_action

    spec = wrapped(make, "LunarLanderContinuous-v3").text_spec
    assert parse_action("I set 0.5 and then -1.", spec, {}) == "0.5, -1.0"
    assert parse_action("main 1, side 0", spec, {}) == "fire main engine"
    assert parse_action("0.5", spec, {}) is None and parse_action("5, 5", spec, {}) is None
