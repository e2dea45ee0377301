"""The environment of a stored episode, made again: a record names what is played, and never what is imported, asked or read."""

import contextlib
import inspect
import sys

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text.box2d import import_box2d
from gym_text.errors import GymTextError
from gym_text.registration import HEAVY, WORDS
from gym_text_policies.environments import _parameters, playable_ids
from gym_text_policies.environments.stored import check_plain, make_stored_environment
from gym_text_policies.policy import environment_config

import_box2d()


def record(env_id, **more):
    return {"id": env_id, "kwargs": {}, "wrappers": [], "max_episode_steps": 9, **more}


def test_a_record_imports_no_module_that_the_program_has_not_imported(their_games):
    theirs = record("Theirs-v0", module=their_games)
    with pytest.raises(UsageError, match=r"Theirs-v0: expected one that ships .* Import their_games in Python first\."):
        make_stored_environment(theirs)
    with pytest.raises(UsageError, match="ships"):
        make_stored_environment(record("their_games:Theirs-v0", module=their_games))
    assert their_games not in sys.modules
    __import__(their_games)
    with make_stored_environment(theirs) as env:
        assert environment_config(env)["module"] == their_games


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("TextArenaTwoPlayers-v0", {"game": "Nim-v0", "opponent": "their_games:player"}),
        ("TextArenaTwoPlayers-v0", {"game": "Nim-v0", "opponent": "openai:gpt-6-luna"}),
        ("TextWorldText-v0", {"file": "/etc/passwd"}),
        ("Hopper-v5", {"xml_file": "/etc/passwd"}),
        ("Hopper-v5", {"width": 10**9}),
        ("FrozenLake-v1", {"desc": ["F" * 1000] * 1000}),
        ("BabyAIText-v0", {"task": "x" * 10_000}),
    ],
)
def test_arguments_that_name_a_policy_or_a_file_or_are_heavy_are_refused(their_games, env_id, arguments):
    with pytest.raises(UsageError, match=f"environment {env_id}: expected arguments"):
        make_stored_environment(record(env_id, kwargs=arguments))
    assert their_games not in sys.modules


def test_what_chooses_a_game_may_stand_in_a_record():
    check_plain("TextArenaTwoPlayers-v0", {"game": "Nim-v0", "opponent": "random", "player": None})
    check_plain("FrozenLake-v1", {"desc": ["SF", "FG"], "map_name": "4x4", "reward_schedule": [1, 0, 0]})
    with make_stored_environment(record("BabyAIText-v0", kwargs={"task": "goto", "fold": "dev"})) as env:
        assert env.unwrapped.fold == "dev"


def test_each_argument_that_can_be_a_text_is_known_to_choose_a_game():
    """A new argument that names a file or a player is refused until somebody decides about it here."""
    reaching = {"file", "xml_file", "default_camera_config", "render_mode", *HEAVY}
    read = {}
    for env_id in playable_ids(gymnasium=True):
        with contextlib.suppress(GymTextError, ImportError, gym.error.Error):
            read[env_id] = _parameters(env_id)
    assert {"BabyAIText-v0", "TextArenaText-v0", "FrozenLake-v1"} <= read.keys()
    for env_id, parameters in read.items():
        for one in parameters:
            kind = one.annotation if isinstance(one.annotation, str) else getattr(one.annotation, "__name__", "")
            number = kind.partition(" |")[0] in ("int", "float", "bool", "_empty") or kind.startswith("tuple")
            assert number or one.kind is inspect.Parameter.VAR_KEYWORD or one.name in {*WORDS, *reaching, "player"}, (env_id, one)
