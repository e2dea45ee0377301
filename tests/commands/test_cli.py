"""The command line as a whole."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from provider_server import Fault, ProviderServer, running

from gym_text_policies import cli
from gym_text_policies.commands import envs
from gym_text_policies.commands.parser import EXAMPLES


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_and_examples_that_exist(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    told = capsys.readouterr().out
    assert str(cli.COMMANDS[name].load()[0].__doc__).split()[0] in told
    assert not re.search(r"Default: *\.(\s|$)|\bstr\b|\bint\b|\bfloat\b", told), "choices are named, and nothing empty is"
    program, command, *words = shlex.split(EXAMPLES[name])
    given = vars(cli.make_parser([name]).parse_args([command, *words]))
    kind, _ = cli.COMMANDS[given.pop("command")].load()
    kind(**given)
    assert program == "gym-text" and EXAMPLES[name] in told


def test_help_loads_no_model_library():
    script = "import sys; from gym_text_policies import cli\n"
    script += "try: cli.main(['--help'])\nexcept SystemExit: print('modules', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert {"torch", "transformers", "jpype", "scipy", "matplotlib", "yaml", "gymnasium", "numpy"} & loaded == set()
    assert all(name in done.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bnch", "Did you mean 'bench'"),
        ("bench --llm-sedes=3", "Did you mean --llm-episodes?"),
        ("bench --episode 3", "got --episode. Did you mean --episodes?"),  # it is no abbreviation
    ],
)
def test_what_is_misspelt_is_named(words, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words.split())
    assert told in capsys.readouterr().err


def test_ctrl_c_is_130_and_a_closed_pipe_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(envs, "run", lambda config: (_ for _ in ()).throw(KeyboardInterrupt))
    assert cli.main(["envs"]) == 130
    assert capsys.readouterr().err == "\nStopped.\n"
    monkeypatch.setattr(envs, "run", lambda config: (_ for _ in ()).throw(PermissionError(13, "Permission denied", "runs")))
    assert cli.main(["envs"]) == 1
    assert "Permission denied: 'runs'" in capsys.readouterr().err


def test_modules_of_the_current_folder_are_found_and_a_report_imports_none(tmp_path):
    (tmp_path / "my_games.py").write_text(GAME)

    def command(*words, **settings):
        script = [sys.executable, "-P", "-m", "gym_text_policies.cli", *words]  # -P: the folder is not on the path, as in gym-text
        return subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=300, **settings)

    done = command("envs", "my_games:guess")
    assert [line.split()[0] for line in done.stdout.splitlines()[:2]] == ["id", "my_games:GuessNumber-v0"], done.stderr
    done = command("play", "my_games:GuessNumber-v0", "--folder", "kept", input="1\n0\n")
    assert "You won: return 1 in 2 steps." in done.stdout
    done = command("report", "kept")
    page = (tmp_path / "kept/report.html").read_text("utf-8")
    assert done.returncode == 0 and "1 episode without pictures" in page and "Import my_games in Python first." in page
    assert not list((tmp_path / "kept").glob("pictures/*"))


GAME = """
import gymnasium as gym
from gymnasium import spaces
from gym_text import Action, Field, TextEnv, TextSpec
from gym_text.spaces import FreeText
from gym_text.text_env import Outcome

SPEC = TextSpec(
    goal="Guess the number.",
    fields={"text": Field("the answer to the last guess"), "goal": Field("the task")},
    actions=(Action("0", "guess 0"), Action("1", "guess 1")),
    encoding="discrete",
)

class GuessEnv(TextEnv):
    def __init__(self, *, fold=None, expert="off", render_mode=None):
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.text_spec, self.action_space = SPEC, spaces.Discrete(2)
        self.observation_space = spaces.Dict({"text": FreeText(100), "goal": FreeText(100)})

    def _start(self, seed):
        return {"text": "Guess!", "goal": SPEC.goal}

    def _play(self, action):
        won = action == 0
        return Outcome({"text": "Right." if won else "Lower.", "goal": SPEC.goal}, float(won), terminated=won, success=won)

gym.register("GuessNumber-v0", GuessEnv, max_episode_steps=5)
"""


BENCH = ("bench", "--models", "openai:m", "--modes", "text", "--environments", "BabyAIText-v0?task=goto&max_episode_steps=4")


@pytest.fixture
def command(tmp_path, monkeypatch, capfd, caplog):
    """Return a function that runs a command that asks the server, in an empty folder; it returns the status and what was told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def run(server, *words):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        caplog.clear()
        status = cli.main(words)
        return status, caplog.text + capfd.readouterr().err  # pytest takes the lines of the log from stderr

    return run


def test_a_run_of_errors_alone_exits_with_1_and_says_why(command):
    refusal, why = Fault(404, "no such model"), "3 x PolicyError: openai:m: HTTP 404: no such model"
    collect = ("collect", "--model", "openai:m", "--options", "mode=text", "--environments", "BabyAIText-v0", "--episodes", "3")
    Path("e.yaml").write_text(
        "agent: {model: 'openai:m'}\nenvironment: {name: BabyAIText-v0}\nexperiment: {episodes: 3, parent: runs, name: e}\n"
    )
    for words in ((*BENCH, "--episodes", "0", "--llm-episodes", "3"), collect, ("run", "e.yaml")):
        with running(ProviderServer()) as server:
            server.faults += [None, *[refusal] * 9]
            for _ in range(2):  # the second time all is stored, and nobody is asked
                status, told = command(server, *words)
                assert (status, told.count(why), len(server.requests)) == (1, 1, 4), told
                assert "expected an episode without an error; all 3 ended in one" in told.splitlines()[-1]
                assert "HTTP Request" not in told, "no line for each request"


def test_a_server_that_takes_fewer_actions_than_the_game_has_is_refused_before_anything_is_played(command):
    world = ("--environments", "CookingWorldText-v0", "--episodes", "2", "--threshold", "0")
    with running(ProviderServer()) as server:
        server.faults.append(Fault(400, '{"error": {"message": "A choice has at most 26 options."}}'))
        options = ("mode=choose", "decide=systemone", "rounds=false")
        status, told = command(server, "collect", *world, "--model", "openai:m", "--options", *options)
        assert (status, len(server.requests)) == (2, 1) and "asked before the run, it failed: openai:m: " in told
        assert "at most 26 options" in told
        server.faults.append(Fault(400, '{"error": {"message": "Invalid schema: 1001 enum values"}}'))
        status, told = command(server, "collect", *world, "--model", "openai:m", "--options", "mode=json")
        assert (status, len(server.requests)) == (2, 2) and "1001 enum values" in told and "Mode 'text' sends no schema" in told
        asked = server.requests[1][2]["response_format"]["json_schema"]["schema"]["properties"]["action"]["enum"]
        assert len(asked) > 26, "it was asked about the actions of the first state"


def test_a_server_without_the_model_ends_a_command_before_anything_is_played(command):
    with running(ProviderServer()) as server:
        server.faults.append(Fault(404, "no such model"))
        status, told = command(server, *BENCH)
        assert status == 2 and len(server.requests) == 1
        assert "asked before the run, it failed: openai:m: HTTP 404: no such model" in told
        Path("e.yaml").write_text("environment: {name: BabyAIText-v0}\nexperiment: {episodes: 1, parent: runs, name: f}\n")
        for words in (
            "collect --environments BabyAIText-v0 --episodes 2 --threshold 0 --options mode=text --model openai:{}",
            "run e.yaml --set agent.model=openai:{}",
        ):
            server.faults.append(Fault(404, "no such model"))
            assert command(server, *words.format("wrong").split())[0] == 2
            status, told = command(server, *words.format("m").split())  # the folder is not the wrong model's
            assert status == 0, told


def test_a_reader_that_has_read_enough_is_no_error():
    command = [sys.executable, "-m", "gym_text_policies.cli", "envs", "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listing:
        listing.stdout.close()
    assert listing.returncode == 0
