"""Sokoban: levels, texts, deadlocks compared with brute force, and the expert."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
import pytest

from gym_text.sokoban.describe import around, draw, grid, words
from gym_text.sokoban.expert import solve
from gym_text.sokoban.levels import SIZES, make_level, third
from gym_text.sokoban.rooms import MOVES, Room, bits

ENV_ID = "SokobanText-v0"
CORRIDOR = """
#######
#@$-.-#
#--$--#
#.----#
#######
"""
KNOWN = """\
# # # # # # #
# # # # - - #
# # # # - - #
# # # # - - #
# - $ - - + #
# - - - - - #
# # # # # # #"""
"""Level 0 of the small size."""


def read(text):
    """Return the room of a drawing, its boxes and its player."""
    rows = text.split()
    cells = {sign: sum(1 << n for n, each in enumerate("".join(rows)) if each in sign) for sign in ("#", ".*+", "$*", "@+")}
    everything = (1 << len(rows) * len(rows[0])) - 1
    return Room(len(rows[0]), len(rows), everything & ~cells["#"], cells[".*+"]), cells["$*"], cells["@+"]


def steps_to_win(room, boxes, player):
    """Return for each position that can be reached the fewest pushes to a win, by brute force; lost positions are left out."""
    seen, before = {(boxes, player)}, {}
    queue = [(boxes, player)]
    for position in queue:
        for step in room.steps:
            after = room.moved(*position, step)
            if after is not None:
                before.setdefault(after, []).append(position)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
    fewest = {position: 0 for position in queue if position[0] == room.goals}
    ring = list(fewest)
    while ring:
        further = []
        for position in ring:  # grows while it is read: a walk costs no push
            for earlier in before.get(position, ()):
                if earlier not in fewest:
                    pushed = earlier[0] != position[0]
                    if pushed:
                        further.append((earlier, fewest[position] + 1))
                    else:
                        fewest[earlier] = fewest[position]
                        ring.append(earlier)
        ring = []
        for position, pushes in further:
            if position not in fewest:
                fewest[position] = pushes
                ring.append(position)
    return queue, fewest


def played(room, boxes, player, names):
    """Play moves; return the boxes and the number of pushes."""
    pushes = 0
    for name in names:
        after, player = room.moved(boxes, player, room.steps[MOVES.index(name)])
        pushes, boxes = pushes + (after != boxes), after
    return boxes, pushes


def contents(size, numbers):
    """Return what is in the levels of these numbers."""
    levels = [make_level(size, number) for number in numbers]
    return [(level.room.floor, level.room.goals, level.boxes, level.player) for level in levels]


@pytest.mark.parametrize("size", SIZES)
def test_the_expert_wins_every_level_within_the_limit_whose_boxes_are_all_off_goals(size):
    for number in range(2_000_000, 2_000_015):
        level = make_level(size, number)
        assert level.boxes.bit_count() == SIZES[size].boxes and not level.boxes & level.room.goals
        path = solve(level.room, level.boxes, level.player)
        boxes, pushes = played(level.room, level.boxes, level.player, path)
        assert boxes == level.room.goals and level.room.bound(level.boxes) <= pushes
        assert len(path) <= gym.spec(ENV_ID).max_episode_steps


@pytest.mark.parametrize(("size", "number"), [("small", 0), ("medium", 1_000_003)])
def test_plans_have_the_fewest_pushes_and_what_is_called_lost_is_lost_by_brute_force(size, number):
    level = make_level(size, number)
    positions, fewest = steps_to_win(level.room, level.boxes, level.player)
    assert len(fewest) < len(positions)
    lost = [position for position in positions if level.room.is_lost(position[0])]
    assert lost and not set(lost) & fewest.keys()
    for position in positions[:: 1 + len(positions) // 150]:
        path = solve(level.room, *position)
        assert (path is None) == (position not in fewest)
        if path is not None:
            assert played(level.room, *position, path) == (level.room.goals, fewest[position])


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("##### #$--# #-@.# #####", True),  # in a corner
        ("###### #-$$-# #@-..# ######", True),  # two side by side at a wall
        ("###### #--$-# #-@-$# #..--# ######", True),  # along walls without a goal
        ("######## #------# #-.$$--# #--$$@-# #.-..--# ########", True),  # a square of four
        ("###### #-**-# #@---# ######", False),  # as frozen, but done
        (CORRIDOR, False),
    ],
)
def test_deadlocks_are_recognised(text, lost):
    room, boxes, _ = read(text)
    assert room.is_lost(boxes) is lost


def test_levels_are_equal_in_two_processes_and_in_any_order():
    numbers = [*range(4), *range(3_000_000, 3_000_004)]
    here = {size: contents(size, reversed(numbers))[::-1] for size in SIZES}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert {size: pool.submit(contents, size, numbers).result() for size in SIZES} == here


def test_a_known_level_stays_as_it_is():
    level = make_level("small", 0)
    assert grid(level.room, level.boxes, level.player) == KNOWN


@pytest.mark.parametrize("size", SIZES)
def test_folds_share_no_level_and_a_turned_or_mirrored_level_stays_in_its_fold(size):
    for fold in range(3):
        for number in range(8):
            level = make_level(size, (1 + fold) * 1_000_000 + number)
            rows = grid(level.room, level.boxes, level.player).replace(" ", "").split()
            for _ in range(4):
                rows = ["".join(row) for row in zip(*rows[::-1], strict=True)]
                for view in (rows, [row[::-1] for row in rows]):
                    room, boxes, player = read("\n".join(view))
                    assert third(type(level)(room, boxes, player)) == fold


def test_the_texts_say_where_everything_is():
    room, boxes, player = read(CORRIDOR)
    assert grid(room, boxes, player).replace(" ", "") == CORRIDOR.strip()
    assert around(room, boxes, player) == "Up: wall. Down: floor. Left: wall. Right: box, beyond it floor."
    assert words(room, boxes, player).splitlines() == [
        "You are in row 1, column 1.",
        "Box: row 1, column 2, 1 step right.",
        "Box: row 2, column 3, 1 step down and 2 steps right.",
        "Goal: row 1, column 4, 3 steps right.",
        "Goal: row 3, column 1, 2 steps down.",
        "Floor: row 1, columns 1 2 3 4 5; row 2, columns 1 2 3 4 5; row 3, columns 1 2 3 4 5. All else is wall.",
    ]
    boxes, player = room.moved(*room.moved(boxes, player, 1), 1)
    assert words(room, boxes, player).splitlines()[1] == "Box: row 1, column 4, 1 step right, on a goal."
    assert grid(room, boxes, player).splitlines()[1] == "# - - @ * - #"


@pytest.mark.parametrize("view", ["grid", "words"])
def test_texts_of_the_largest_rooms_lie_in_the_space(view, make):
    env = make(ENV_ID, size="large", view=view, expert="off")
    for seed in range(20):
        assert env.reset(seed=seed)[0] in env.observation_space


def test_the_score_is_the_share_of_boxes_on_goals_and_a_wrong_push_fails(make):
    env, scores = make(ENV_ID, size="large", fold="dev", expert="off"), set()
    rng, ends = np.random.default_rng(0), []
    for seed in range(30):
        obs, info = env.reset(seed=seed)
        over = False
        while not over:
            name = obs["valid_actions"][rng.integers(len(obs["valid_actions"]))]
            obs, _, terminated, truncated, info = env.step(MOVES.index(name))
            room, game = env.unwrapped._level.room, env.unwrapped
            assert info["score"] == pytest.approx((game._boxes & room.goals).bit_count() / 3)
            scores.add(round(3 * info["score"]))
            over = terminated or truncated
        ends.append(info["failure"])
    assert any(ends) and {0, 1} <= scores


def test_a_move_without_effect_is_not_valid_and_changes_nothing(make):
    env = make(ENV_ID, size="small")
    obs, _ = env.reset(seed=0)
    blocked = next(action for action, name in enumerate(MOVES) if name not in obs["valid_actions"])
    after, reward, *_, info = env.step(blocked)
    assert after == obs and reward == 0 and info["action_was_valid"] is False


@pytest.mark.parametrize("size", SIZES)
def test_the_expert_replans_after_any_moves_that_leave_the_level_winnable(size, make):
    env, replanned = make(ENV_ID, size=size, fold="train", expert="replan", max_episode_steps=400), 0
    for seed in range(5):
        rng, (obs, info) = np.random.default_rng(seed), env.reset(seed=seed)
        over = False
        for _ in range(12):
            obs, _, over, _, info = env.step(MOVES.index(obs["valid_actions"][rng.integers(len(obs["valid_actions"]))]))
            if over:
                break
        replanned += "gold_action" in info
        while "gold_action" in info:
            left = info["gold_steps"]
            obs, _, over, _, info = env.step(MOVES.index(info["gold_action"]))
            assert over or info["gold_steps"] == left - 1
        assert info["success"] or info["failure"] or solve(env.unwrapped._level.room, *_position(env)) is None
    assert replanned >= 2


def _position(env):
    return env.unwrapped._boxes, env.unwrapped._player


def test_the_picture_tells_boxes_goals_and_the_player_apart():
    room, boxes, player = read("###### #@$.*# #-+--# ######".replace("+", "."))
    picture = draw(room, boxes, player)
    colours = {tuple(picture[row * 40 + 20, column * 40 + 20]) for row, column in map(room.cell, bits(room.floor))}
    assert picture.shape == (160, 240, 3) and len(colours) == 5
