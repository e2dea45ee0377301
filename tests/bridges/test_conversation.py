"""`Conversation`, the game of all bridges, against `rollout`; that a bridge plays it is tested beside the bridge's library."""

import threading
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest

from gym_text import EngineError, UsageError
from gym_text.errors import StepOrderError
from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.prompts import Prompt
from gym_text_policies.prompts.tools import call_of

GOTO, CAR, COINS = "BabyAIText-v0?task=goto", "MountainCarContinuousLLM-v0", "CoinCollectorText-v0?actions='index'"
TALK = "TextArenaTwoPlayers-v0?game=SimpleNegotiation-v0&opponent=scripted:[Deny]"
"""A game that takes any words."""


@pytest.fixture
def began():
    """Return a function that begins an episode; the games are closed after the test."""
    games = []

    def begin(environment, seed, strategy="chat", **options):
        make = environment if callable(environment) else environment_maker(environment)
        games.append(Conversation(make, strategy, calls=strategy.startswith("tool"), **options))
        games[-1].begin(seed)
        return games[-1]

    yield begin
    for game in games:
        game.close()


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        (GOTO, "turn left"),
        (GOTO, " Turn  LEFT.\n"),
        (GOTO, "turn left or turn right"),
        (GOTO, '{"action": "toggle"}'),
        (GOTO, ""),
        (CAR, "0.25"),
        (CAR, "7"),
        (COINS, "Look around!"),
        (COINS, "look around, then inventory"),
    ],
)
def test_an_answer_plays_the_action_that_rollout_plays(environment, answer, began):
    make = environment_maker(environment, max_episode_steps=1)
    with make() as env:
        policy = LLMPolicy(ScriptedBackend([answer]), env.get_wrapper_attr("text_spec"), strategy="chat", mode="text")
    (episode,) = rollout(make, policy, [3])
    (step,) = episode.steps
    game = began(make, 3)
    assert game.step(answer) == step.decision.valid
    assert game.actions == ([step.decision.action] if step.decision.valid else [])
    assert game.reward == game.score == (step.reward if step.decision.valid else 0.0)


@pytest.mark.parametrize(("mode", "strategy"), [("text", "chat"), ("tool", "tool_short")])
@pytest.mark.parametrize("environment", [GOTO, "CookingWorldText-v0"])
def test_the_texts_are_the_prompts_of_rollout_with_the_whole_history_in_the_models_own_words(environment, mode, strategy, began):
    make = environment_maker(environment, fold="test")
    with make() as env:
        said = [f"`{action}`" for action in env.reset(seed=1)[1]["gold_path"]]
        script = [call_of(words) for words in said] if mode == "tool" else said
        policy = load_policy(ScriptedBackend(script), env, mode=mode, strategy=strategy, history="all", own_words=True)
    (episode,) = rollout(make, policy, [1])
    game = began(make, 1, strategy)
    texts = [message["content"] for message in game.chat()]
    for words, step in zip(said, episode.steps, strict=True):
        assert [message["content"] for message in step.decision.messages if message["role"] != "assistant"] == texts
        texts.append(game.play(words))
    assert (game.end, game.score) == (episode.outcome, episode.total_reward) and game.end == "won"


def test_only_unusable_answers_in_a_row_end_an_episode_after_which_no_step_is_played(began):
    game = began(GOTO, 0)
    for answer in ("sing", "turn left", *["sing"] * 4, "turn left", *["sing"] * 5):
        assert game.end is None
        game.play(answer)
    assert (game.end, game.steps, game.unusable) == ("unusable_answers", 2, 10)
    with pytest.raises(StepOrderError, match=r"an episode that goes on; it has ended: unusable_answers\. Begin one"):
        game.play("turn left")
    assert (game.end, game.steps) == ("unusable_answers", 2)


def test_where_the_strategy_thinks_an_answer_may_be_a_json_object(began):
    game = began(GOTO, 0, "reasoning")
    game.play('{"reasoning": "Not turn left.", "action": "turn right"}')
    game.play("I turn left.")
    assert (game.actions, game.unusable) == (["turn right", "turn left"], 0)
    game.play("Either turn left or turn right.")
    assert (game.steps, game.unusable) == (2, 1)


@pytest.mark.parametrize("strategy", ["chat", "few_shot", "zero_shot"])
def test_a_strategy_is_played_only_where_its_prompts_are_whole(strategy, began):
    prompt = Prompt(strategy)
    if prompt.uses_examples or prompt.needs_names:
        message = "one without examples" if prompt.uses_examples else f"strategy '{strategy}': expected a game that lists"
        with pytest.raises(UsageError, match=message):
            began(TALK, 3, strategy)
    else:
        assert "Actions:" not in began(TALK, 3, strategy).text
    assert prompt.needs_names == (strategy not in ("balrog", "chat", "words", "tool", "tool_short", "unlisted"))


@pytest.mark.parametrize("strategy", ["chat", "tool"])
def test_an_empty_answer_is_no_action_where_a_game_takes_any_words(strategy, began):
    game = began(TALK, 3, strategy)
    before = game.messages()
    for answer in ("", " \n", "<think>Hm.</think>\n"):
        assert game.play(answer) == "That cannot be used, and nothing has happened. Say your action, in any words."
    assert (game.steps, game.unusable, game.messages()) == (0, 3, before)
    game.play("[Offer: 1 Wheat -> 1 Ore]")
    assert (game.actions, game.unusable) == (["[Offer: 1 Wheat -> 1 Ore]"], 3)


def test_another_level_is_played_in_the_same_environment_until_it_is_closed(began):
    made = []

    def make():
        made.append(environment_maker(GOTO)())
        return made[-1]

    game, texts = Conversation(make), []
    assert (game.end, made) == ("closed", [])
    for early in (lambda: game.text, lambda: game.play("drop"), lambda: game.step("drop")):
        with pytest.raises(StepOrderError, match="none has begun"):
            early()
    for seed in (3, 4, 3):
        texts.append([game.begin(seed), game.play("sing"), game.play("turn left")])
        assert (game.end, game.steps, game.unusable) == (None, 1, 1)
        for _ in range(5):
            game.play("sing")
        with pytest.raises(StepOrderError, match="it has ended"):
            game.play("turn left")  # which leaves the environment open
    assert texts[0] == texts[2] != texts[1] and len(made) == 1
    game.begin(3)
    game.close()
    assert game.end == "closed"
    with pytest.raises(StepOrderError, match="the game was closed"):
        game.play("turn left")
    assert game.begin(3) == texts[0][0] and len(made) == 2
    game.close()


class Broken(gym.Wrapper):
    """A game whose reset fails, or whose observation lacks what a prompt shows, or whose first step does, or has no reward."""

    def __init__(self, env, breaks):
        super().__init__(env)
        self.breaks, self.closed = breaks, 0

    def reset(self, **arguments):
        if self.breaks == "reset":
            raise EngineError("The engine is gone.")
        obs, info = self.env.reset(**arguments)
        return {key: value for key, value in obs.items() if self.breaks != "render" or key != "text"}, info

    def step(self, action):
        if self.breaks == "step":
            raise LookupError("The engine is gone.")
        return *self.env.step(action)[:1], float("nan"), False, False, {}

    def close(self):
        self.closed += 1
        raise EngineError("The engine is gone.")


@pytest.mark.parametrize(
    ("breaks", "error", "message"),
    [
        ("reset", EngineError, "engine is gone"),
        ("render", UsageError, "missing: .'text'"),
        ("step", LookupError, "engine is gone"),
        ("reward", EngineError, "step 1: expected a finite reward; got nan"),
    ],
)
def test_an_error_ends_the_episode_and_closes_the_environment_and_the_next_has_another(breaks, error, message):
    made = []

    def make():
        made.append(Broken(environment_maker(GOTO)(), breaks))
        return made[-1]

    game = Conversation(make)
    for number in (1, 2):
        with pytest.raises(error, match=message):
            game.begin(3)
            game.play("turn left")
        assert (game.end, game.steps, game.score) == ("error", 0, 0.0) and [env.closed for env in made] == [1] * number


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


def test_who_no_longer_waits_for_a_step_closes_the_game_after_it(began):
    env = Waiting(environment_maker(GOTO)())
    game = began(lambda: env, 3)
    with ThreadPoolExecutor(2) as pool:
        step = pool.submit(game.play, "turn left")
        assert env.begun.wait(60)
        close = pool.submit(game.close)
        with pytest.raises(TimeoutError):
            close.result(0.2)
        env.go.set()
        close.result(60)
    assert step.result() and env.closed_within is False
