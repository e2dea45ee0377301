"""TextWorld's games: the official client as the oracle, levels as files, parameters, and the expert."""

import json
import os
import random
import re
import subprocess
import sys

import gymnasium as gym
import pytest
import textworld
from forks import check_forks

from gym_text import EngineError, UsageError
from gym_text.textworld.level_files import FOLDER_VARIABLE, Levels
from gym_text.textworld.session import command_of, plain

COOKING, TREASURE, COIN, TEXT = "TextWorldCooking-v0", "TextWorldTreasureHunter-v0", "TextWorldCoinCollector-v0", "TextWorldText-v0"
GAMES = (COOKING, TREASURE, COIN, TEXT)
SMALL = Levels("tw-coin_collector", {"level": 1})
every_game = pytest.mark.parametrize("game", GAMES)


def words(text):
    """Return the words of a text without the interpreter's status line and question at the end."""
    text = re.sub(r">?\s*-= [^\n]* =-\d+/\d+\s*$", "", text)
    return re.sub(r"Would you like to RESTART[^\n]*", "", text).removesuffix(">").split()


# ---------------------------------------------------------------- the official client


@every_game
def test_each_step_is_what_the_official_client_says(game, make):
    env = make(game, expert="off")
    names = ("feedback", "description", "inventory", "admissible_commands", "score", "max_score", "won", "lost", "objective")
    for seed in range(2):
        obs, _ = env.reset(seed=seed)
        file = env.unwrapped.level_file(env.unwrapped._level_seed(seed))
        client = textworld.start(str(file), textworld.EnvInfos(**dict.fromkeys(names, True)))
        state, rng = client.reset(), random.Random(seed)
        assert words(state.feedback)[-len(obs["text"].split()) :] == obs["text"].split()
        assert obs["goal"] == state.objective
        over, score = False, 0.0
        while not over:
            assert list(obs["valid_actions"]) == state.admissible_commands
            assert (obs["look"].split(), obs["inventory"].split()) == (state.description.split(), state.inventory.split())
            action = rng.choice((*obs["valid_actions"], "sing", "take all", "x me", "get knife"))
            obs, reward, terminated, truncated, _ = env.step(action)
            state, points, done = client.step(action)
            score += reward
            assert obs["text"].split() == words(state.feedback)
            assert score == pytest.approx(points / state.max_score)
            assert terminated == done == bool(state.won or state.lost)
            over = terminated or truncated
        client.close()


@every_game
def test_a_fork_goes_on_as_the_game_does_and_leaves_it_alone(game, make):
    check_forks(make(game, expert="off"), make(game, expert="off"), 20, 2)


SEVERAL = ("look then go east", "look, go east", "go east. look", "inventory THEN look")


@pytest.mark.parametrize("action", ["restart", "save. look", "tw-print max_score", *SEVERAL])
def test_commands_to_the_interpreter_and_several_in_one_line_are_not_understood(action, make):
    env = make(COIN, expert="replan")
    env.reset(seed=0)
    before = env.step("look")[0]
    obs, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["action_was_valid"]) == (0.0, False, False)
    assert "gold_action" in info
    again, *_ = env.step("y")  # were there a question, this would answer it
    assert env.step("look")[0] == before
    assert obs["look"] == again["look"] == before["look"]


def test_texts_are_made_plain():
    assert plain("naïve “café” – 3€") == 'naive "cafe" - 3?'
    assert command_of("take\tthe\nlong knife") == "take the long knife"
    assert command_of("\\x") == "/x", "a backslash begins a command to the interpreter, which would print for ever"
    assert command_of("quit") == command_of("look. undo") == ""


# ---------------------------------------------------------------- levels


@every_game
def test_levels_of_the_folds_never_meet(game, make):
    games = {fold: make(game, fold=fold, num_levels=1000).unwrapped for fold in ("train", "dev", "test")}
    seeds = {fold: {env._level_seed(seed) for seed in range(1200)} for fold, env in games.items()}
    assert all(len(levels) == 1000 for levels in seeds.values())
    assert len(set.union(*seeds.values())) == 3000


def test_cooking_has_other_food_in_each_fold(make):
    folders = {make(COOKING, fold=fold).unwrapped.levels.settings["split"] for fold in ("train", "dev", "test")}
    assert folders == {"train", "valid", "test"}


def test_a_level_is_the_same_whatever_process_makes_it(tmp_path):
    script = (
        "import sys; from gym_text.textworld.level_files import Levels; print(Levels(sys.argv[1], {'level': 11}).file(1000000))"
    )
    made = []
    for seed in ("1", "2"):
        environment = os.environ | {FOLDER_VARIABLE: str(tmp_path / seed), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, "tw-treasure_hunter"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
        assert done.stderr == ""
        (file,) = (tmp_path / seed).rglob("game.json")
        assert done.stdout.strip() == str(file.with_suffix(".z8"))
        made.append(json.loads(file.read_text()))
    assert made[0] == made[1]


def test_a_level_that_could_not_be_finished_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with monkeypatch.context() as broken, pytest.raises(EngineError, match="TextWorld could not compile level 3"):
        broken.setenv("INFORM_HOME", "/nowhere")
        SMALL.file(3)
    assert list(SMALL.folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"expected a folder that can be written; got .*GYM_TEXT_GAMES names another"):
        SMALL.file(3)


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("game", "arguments", "message"),
    [
        (COOKING, {"num_ingredients": 6}, "num_ingredients: expected an integer from 1 to 5; got 6."),
        (COOKING, {"num_ingredients": 2}, "num_to_find: expected at most num_ingredients, which is 2; got 3."),
        (COOKING, {"num_ingredient": 2}, "Did you mean 'num_ingredients'?"),
        (TREASURE, {"level": 31}, "level: expected an integer from 1 to 30; got 31."),
        (COIN, {"level": 160}, "level: expected at most 100 rooms, as TextWorld 1.7 makes no more; got 160, which has 120."),
        (TEXT, {"file": __file__}, "file: expected a story file that ends in .z8"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(game, arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        gym.make(game, **arguments)


def test_any_file_of_textworld_is_played(make, tmp_path):
    made = make(COIN)
    obs, info = made.reset(seed=0)
    file = made.unwrapped.level_file(1_000_000)
    env = make(TEXT, file=str(file))
    assert env.unwrapped.fold_size == 1
    for seed in (0, 5):
        again, more = env.reset(seed=seed)
        assert again == obs and more["gold_path"] == info["gold_path"]
    with pytest.raises(UsageError, match="fold: expected 'train', as a file is one level; got 'test'"):
        gym.make(TEXT, file=str(file), fold="test")
    (tmp_path / "lone.z8").write_bytes(file.read_bytes())
    with pytest.raises(UsageError, match=r"expected lone\.json beside lone\.z8"):
        gym.make(TEXT, file=str(tmp_path / "lone.z8"))


# ---------------------------------------------------------------- the expert


@every_game
@pytest.mark.parametrize("fold", ["train", "test"])
def test_the_expert_wins_by_its_path_and_each_step_is_valid(game, fold, make, follow_gold_action):
    env = make(game, fold=fold)
    for seed in range(2 if fold == "train" else 1):  # Inform takes seconds to compile a level
        obs, info = env.reset(seed=seed)
        rewards, info = follow_gold_action(env, obs, info)
        assert info["success"] and info["score"] == pytest.approx(1)
        assert info["action_was_valid"] and all(reward >= 0 for reward in rewards)


@every_game
def test_the_expert_wins_after_a_detour(game, make, follow_gold_action):
    env, rng = make(game, expert="replan"), random.Random(0)
    obs, info = env.reset(seed=0)
    for _ in range(5):
        harmless = [name for name in obs["valid_actions"] if name.split()[0] in ("go", "look", "open", "examine", "close")]
        obs, *_, info = env.step(rng.choice(harmless))
        assert info["gold_action"] in obs["valid_actions"] and info["gold_steps"] > 0
    assert follow_gold_action(env, obs, info)[1]["success"]


def test_importing_textworld_leaves_signals_and_screen_alone():
    script = (
        "import signal, sys\nbefore = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]\n"
        "import gymnasium, gym_text\nassert 'textworld' not in sys.modules\n"
        "gymnasium.make('TextWorldCoinCollector-v0').reset(seed=0)\n"
        "assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]\n"
        "assert 'spacy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == done.stderr == ""
