"""Levels as rows; verl and SkyRL, which read them, in an environment of their own: see ``tests/bridges/levels_tests.py``."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import pytest
from bridges.own_python import run_tests

from gym_text import EngineError, UsageError
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import begin, level_rows, write_levels
from gym_text_policies.environments import environment_maker
from gym_text_policies.prompts import STRATEGIES, Prompt

GOTO = "BabyAIText-v0?task=goto"
TALK = "TextArenaTwoPlayers-v0?game=SimpleNegotiation-v0&opponent=scripted:[Deny]"
"""A game that takes any words."""


def test_a_row_names_its_level_and_begins_its_episode(tmp_path):
    first, other = level_rows("BabyAIText-v0?task=goto", "dev", [3, 4])
    assert {key: first[key] for key in ("id", "fold", "seed", "strategy")} == {
        "id": "BabyAIText-v0?task=goto dev 3",
        "fold": "dev",
        "seed": 3,
        "strategy": "chat",
    }
    assert [message["role"] for message in first["prompt"]] == ["system", "user"] and first["prompt"] != other["prompt"]
    for mistake, message in (
        ({"environment": "BabyAIText-v0?fold=test"}, "Leave the fold out"),
        ({"fold": "validation"}, "expected one of 'train', 'dev', 'test'"),
        ({"seeds": [-1]}, "seed: expected an integer from 0"),
        ({"strategy": "mine.jinja"}, "strategy: expected one of"),
        ({"strategy": "few_shot"}, "shows no examples"),
        ({"environment": "TextWorldText-v0?file=mine.z8"}, "expected arguments that only choose a game"),
        ({"library": "trl"}, "expected one of 'verl', 'skyrl', 'nemo_gym'"),
        ({"file": tmp_path / "x.json"}, r"name ends in \.parquet"),
        ({"library": "nemo_gym"}, r"name ends in \.jsonl"),
    ):
        given = {"file": tmp_path / "x.parquet", "library": "verl", "environment": "BabyAIText-v0", "fold": "dev", "seeds": [0]}
        with pytest.raises(UsageError, match=message):
            write_levels(**given | mistake)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("environment", [GOTO, "CookingWorldText-v0", "SimonSaysText-v0", "LunarLanderLLM-v2"])
def test_an_episode_of_a_row_begins_with_the_rows_messages_in_whatever_order_the_levels_were_written(environment):
    rows = level_rows(environment, "dev", [5, 0, 5])
    assert rows[0] == rows[2] and rows[0]["prompt"] != rows[1]["prompt"]
    for row in rows:
        game = begin(row)
        assert game.chat() == row["prompt"]
        game.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"environment": "their_games:Theirs-v0"},
            r"expected one that ships .* as in --import their_games\.",
        ),
        ({"environment": f"their_games:{GOTO}"}, "expected one that ships"),
        ({"environment": "TextArenaTwoPlayers-v0?game=Nim-v0&opponent=their_games:player"}, "only choose a game; got opponent="),
        ({"environment": "TextWorldText-v0?file=theirs.jinja"}, "only choose a game; got file="),
        ({"environment": "Hopper-v5?frame_skip=1000000000"}, "only choose a game; got frame_skip="),
        ({"environment": f"{GOTO}&render_mode=human"}, "only choose a game; got render_mode="),
        ({"environment": ["BabyAIText-v0"]}, "environment: expected one of"),
        ({"fold": ["dev"]}, "fold: expected one of"),
        ({"strategy": "theirs.jinja"}, "strategy: expected one of"),
        ({"strategy": ["chat"]}, "strategy: expected one of"),
        ({"seed": 3.7}, "seed: expected an integer"),
        ({"seed": True}, "seed: expected an integer"),
        ({"seed": "x"}, "seed: expected an integer"),
        ({"seed": -1}, "seed: expected an integer"),
    ],
)
def test_a_row_from_elsewhere_names_a_level_and_neither_code_nor_a_file(their_games, wrong, message):
    Path("theirs.jinja").write_text("{% block system %}{% endblock %}{% block user %}{% endblock %}")
    row = {"environment": GOTO, "fold": "dev", "seed": 3}
    with pytest.raises(UsageError, match=message):
        begin({**row, **wrong})
    assert their_games not in sys.modules


def test_the_user_may_allow_a_rows_module(their_games):
    row = {"environment": "their_games:Theirs-v0?level=BabyAI-GoToObj-v0", "fold": "dev", "seed": 3}
    for name in (row["environment"], row["environment"].removeprefix("their_games:")):
        game = begin({**row, "environment": name}, imports=[their_games])
        assert game.chat()[0]["role"] == "system"
        game.close()
    with pytest.raises(UsageError, match="--import their_games"):
        begin(row)  # that it is imported by now permits nothing
    (written,) = level_rows(row["environment"], "dev", [3])
    assert written["environment"] == row["environment"], "who writes the rows names the module, and so allows it"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_played_only_where_its_prompts_are_whole(strategy):
    prompt = Prompt(strategy)
    if prompt.uses_examples or prompt.uses_names:
        message = "shows no examples" if prompt.uses_examples else f"strategy '{strategy}': expected a game that lists its actions"
        with pytest.raises(UsageError, match=message):
            Conversation(environment_maker(TALK), 3, strategy)
    else:
        Conversation(environment_maker(TALK), 3, strategy).close()


@pytest.mark.parametrize("strategy", ["chat", "words"])
def test_an_empty_answer_is_no_action_where_a_game_takes_any_words(strategy):
    game = Conversation(environment_maker(TALK), 3, strategy)
    before = game.messages()
    for answer in ("", " \n", "<think>Hm.</think>\n"):
        assert "Name exactly one of these actions: any words" in game.play(answer)
    assert (game.steps, game.unusable, game.messages()) == (0, 3, before)
    game.play("[Offer: 1 Wheat -> 1 Ore]")
    assert (game.actions, game.unusable) == (["[Offer: 1 Wheat -> 1 Ore]"], 3)
    game.close()


@pytest.mark.parametrize("most", [0, -1, 2.5, True, "5", None])
def test_a_number_of_unusable_answers_that_is_none_is_refused(most):
    with pytest.raises(UsageError, match="max_unusable: expected an integer from 1"):
        Conversation(environment_maker(GOTO), 3, max_unusable=most)


class Broken(gym.Wrapper):
    """A game whose reset fails, or whose observation lacks what a prompt shows."""

    def __init__(self, env, breaks):
        super().__init__(env)
        self.breaks, self.closed = breaks, 0

    def reset(self, **arguments):
        if self.breaks == "reset":
            raise EngineError("The engine is gone.")
        obs, info = self.env.reset(**arguments)
        return {key: value for key, value in obs.items() if key != "text"}, info

    def close(self):
        self.closed += 1
        super().close()


@pytest.mark.parametrize(("breaks", "error"), [("reset", EngineError), ("render", UsageError)])
def test_a_game_that_cannot_begin_is_closed(breaks, error):
    env = Broken(environment_maker(GOTO)(), breaks)
    with pytest.raises(error):
        Conversation(lambda: env, 3)
    assert env.closed == 1


class Waiting(gym.Wrapper):
    """A game whose steps last until `go` is set; `closed_within` notes whether it was closed within a step."""

    def __init__(self, env):
        super().__init__(env)
        self.begun, self.go, self.stepping, self.closed_within = threading.Event(), threading.Event(), False, None

    def step(self, action):
        self.stepping = True
        self.begun.set()
        assert self.go.wait(60)
        self.stepping = False
        return self.env.step(action)

    def close(self):
        self.closed_within = self.stepping
        super().close()


def test_who_no_longer_waits_for_a_step_closes_the_game_after_it():
    env = Waiting(environment_maker(GOTO)())
    game = Conversation(lambda: env, 3)
    with ThreadPoolExecutor(2) as pool:
        step = pool.submit(game.play, "turn left")
        assert env.begun.wait(60)
        close = pool.submit(game.close)
        with pytest.raises(TimeoutError):
            close.result(0.2)
        env.go.set()
        close.result(60)
    assert step.result() and env.closed_within is False


def test_verl_and_skyrl_read_our_levels_and_play_them():
    run_tests("levels")
