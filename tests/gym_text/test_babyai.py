"""BabyAI: the view in words, the bot, and minigrid's own behaviour kept."""

import logging
import random

import gymnasium as gym
import minigrid  # noqa: F401  registers the levels
import numpy as np
import pytest
from minigrid.core.world_object import Ball, Box, Door, Key, Wall

import gym_text
from gym_text.babyai.describe import View, describe, look

ID = "BabyAIText-v0"
LEVELS = sorted(name for name in gym.registry if name.startswith("BabyAI-"))
TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = range(6)
BOT_FAILS = {"KeyInBox", "OpenDoorsOrderN4Debug"}
"""Levels that minigrid's bot does not solve on seed 0."""


# ---------------------------------------------------------------- the view in words: agent at (3, 6), facing up


@pytest.mark.parametrize(
    ("cells", "unseen", "carrying", "lines"),
    [
        ({}, [], None, []),
        ({(3, 5): Wall()}, [], None, ["a wall 1 step forward"]),
        (
            {(3, 2): Wall(), (0, 6): Wall(), (5, 6): Wall()},
            [],
            None,
            ["a wall 4 steps forward", "a wall 3 steps left", "a wall 2 steps right"],
        ),
        ({(3, 0): Wall(), (2, 0): Wall(), (0, 5): Wall()}, [], None, ["a wall 6 steps forward"]),
        ({(3, 4): Ball("red"), (3, 2): Wall()}, [], None, ["a red ball 2 steps forward"]),
        ({(3, 3): Wall(), (3, 1): Wall(), (3, 5): Ball("red")}, [(3, 5), (3, 3)], None, ["a wall 5 steps forward"]),
        ({(3, 3): Key("blue"), (0, 0): Wall()}, [(3, 3), (0, 0)], None, []),
        (
            {(2, 6): Door("red"), (3, 4): Door("green", is_open=True), (5, 3): Door("grey", is_locked=True)},
            [],
            None,
            [
                "a closed red door 1 step left",
                "a open green door 2 steps forward",
                "a locked grey door 2 steps right and 3 steps forward",
            ],
        ),
        (
            {(4, 5): Box("purple"), (4, 1): Ball("yellow"), (0, 6): Key("grey"), (1, 5): Ball("green")},
            [],
            None,
            [
                "a grey key 3 steps left",
                "a green ball 2 steps left and 1 step forward",
                "a yellow ball 1 step right and 5 steps forward",
                "a purple box 1 step right and 1 step forward",
            ],
        ),
        ({(3, 6): Key("red"), (3, 5): Wall()}, [], Key("red"), ["You carry a red key", "a wall 1 step forward"]),
    ],
    ids=["empty", "wall", "walls", "walls aside", "hidden wall", "unseen first", "unseen", "doors", "order", "carrying"],
)
def test_view_is_described_in_the_published_words(cells, unseen, carrying, lines):
    things = [None if (x, y) in [*unseen, (3, 6)] else cells.get((x, y)) for x in range(7) for y in range(7)]
    assert describe(View(things, []), carrying) == "\n".join(lines)


@pytest.mark.parametrize("level", LEVELS[::12])
def test_what_is_seen_is_what_minigrid_shows(level):
    game, rng = gym.make(level, disable_env_checker=True).unwrapped, random.Random(0)
    for seed in range(2):
        game.reset(seed=seed)
        doors = [thing for thing in game.grid.grid if isinstance(thing, Door)]
        for _ in range(30):
            for door in doors:
                door.is_open = rng.random() < 0.5
            free = [i for i, thing in enumerate(game.grid.grid) if thing is None or thing.can_overlap()]
            game.agent_pos, game.agent_dir = divmod(rng.choice(free), game.width)[::-1], rng.randrange(4)
            grid, visible = game.gen_obs_grid()
            grid.set(3, 6, None)
            assert look(game).things == [grid.get(x, y) for x in range(7) for y in range(7)]
            views = {game.get_view_coords(*cell) for cell in look(game).cells()}
            assert views == {(x, y) for x in range(7) for y in range(7) if visible[x, y]}


# ---------------------------------------------------------------- the expert


def test_expert_wins_every_episode(make, follow_gold_action):
    env = make(ID)
    for seed in range(25):
        rewards, info = follow_gold_action(env, *env.reset(seed=seed))
        assert info["success"] and not info["failure"]
        assert rewards == [0.0] * (len(rewards) - 1) + [pytest.approx(1 - 0.9 * len(rewards) / 64)]


def test_replanning_expert_advises_through_a_long_episode(make):
    env, rng = make(ID, level="BabyAI-BossLevel-v0", expert="replan"), random.Random(0)
    env.reset(seed=105)  # 3456 steps
    for _ in range(2000):
        *_, info = env.step(rng.choice([TURN_LEFT, TURN_RIGHT]))
        assert "gold_action" in info


@pytest.mark.parametrize("level", [*LEVELS[::12], "BabyAI-KeyInBox-v0"])
def test_a_level_plays_and_its_expert_wins_or_is_silent(level, make):
    env = make(ID, level=level)
    spec, (obs, info) = env.get_wrapper_attr("text_spec"), env.reset(seed=0)
    path = info.get("gold_path")
    assert (path is None) == (level.removeprefix("BabyAI-").removesuffix("-v0") in BOT_FAILS)
    for name in path or [action.name for action in spec.actions]:
        assert obs in env.observation_space
        obs, *_, info = env.step(spec.encode(name, obs))
    assert obs in env.observation_space
    assert info["success"] == (path is not None)


# ---------------------------------------------------------------- minigrid's behaviour


def test_dynamics_are_those_of_minigrid(make):
    env, original = make(ID, level="BabyAI-PutNextLocal-v0", expert="off"), make("BabyAI-PutNextLocal-v0")
    rng = random.Random(0)
    for seed in (0, 1):
        obs, _ = env.reset(seed=seed)
        expected, _ = original.reset(seed=seed)
        for _ in range(60):
            assert obs["goal"] == expected["mission"]
            action = rng.randrange(6)
            obs, *ours, _ = env.step(action)
            expected, *theirs, _ = original.step(action)
            assert ours == theirs
            game = env.unwrapped._game
            assert np.array_equal(type(game).gen_obs(game)["image"], expected["image"])


def test_episode_is_truncated_at_the_limit_of_the_level(make):
    env = make(ID)
    env.reset(seed=0)
    ends = [env.step(TURN_LEFT)[2:4] for _ in range(64)]
    assert ends == [(False, False)] * 63 + [(False, True)]


def test_memory_tells_what_was_done_where_all_looked_the_same(make):
    env = make(ID, task="putnext", memory=True, expert="off")
    obs, _ = env.reset(seed=0)
    first = obs["text"]
    for times in (1, 2):
        for _ in range(4):
            obs, *_ = env.step(TURN_LEFT)
        assert obs["text"] == f"{first}\nDone here before: turn left {times}."
    env.step(DROP)
    copied = gym_text.fork(env)
    for action in (TURN_LEFT, TURN_RIGHT):
        assert copied.step(action)[0] == env.step(action)[0]
    assert env.step(DROP)[0]["text"] == f"{first}\nDone here before: drop 2, turn left 3."
    assert env.reset(seed=0)[0]["text"] == first


def test_opening_the_wrong_door_of_a_strict_level_is_a_failure(make):
    env, failures = make(ID, level="BabyAI-OpenDoorDebug-v0", expert="off"), 0
    for seed in range(10):
        rng, over = random.Random(seed), False
        env.reset(seed=seed)
        while not over:
            _, reward, terminated, truncated, info = env.step(rng.choice([TURN_LEFT, TURN_RIGHT, FORWARD, FORWARD, TOGGLE]))
            over = terminated or truncated
            assert (info["success"], info["failure"]) == (terminated and reward > 0, terminated and reward == 0)
        failures += info["failure"]
    assert 0 < failures < 10


def test_rejected_samples_are_logged_and_not_printed(make, capfd, caplog):
    caplog.set_level(logging.DEBUG, logger="gym_text")
    make(ID, level="BabyAI-GoToSeq-v0").reset(seed=1)
    assert "Sampling rejected" in caplog.text
    assert capfd.readouterr() == ("", "")
