"""An answer that cannot be used has a reason, which is recorded and told to the model; thoughts are recorded apart."""

import gymnasium as gym
import numpy as np
import pytest
from thinking_models import random_model

from gym_text import UsageError
from gym_text.babyai.env import BABYAI_SPEC
from gym_text_policies import Episode, LLMPolicy, rollout
from gym_text_policies.backends.base import Answer, Backend
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.policy import text_spec
from gym_text_policies.records import Turn

BABY = "BabyAIText-v0"
LEFT = Answer("turn left", finish="stop")


class Says(Backend):
    """Gives answers in turn, over and over, and keeps the requests."""

    def __init__(self, *answers):
        self.answers, self.requests = answers, []

    @property
    def config(self):
        return {"backend": "says"}

    def answer(self, requests):
        self.requests += requests
        count = len(self.requests) - len(requests)
        return [self.answers[(count + i) % len(self.answers)] for i in range(len(requests))]


def decided(*answers, env_id=BABY, arguments=None, **settings):
    """Return the decision about the first observation of an environment, and the backend."""
    env, backend = gym.make(env_id, **(arguments or {})), Says(*answers)
    policy = LLMPolicy(backend, text_spec(env), **settings)
    obs = policy.wrap(env).reset(seed=0)[0]
    return policy.decide([Turn(obs, np.random.default_rng(0))])[0], backend


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (LEFT, None),
        (Answer("<think>turn right</think>turn left"), None),
        (Answer("turn left", reasoning="turn right", finish="stop"), None),
        (Answer("I would turn le", finish="length"), "cut"),
        (Answer("<think>I have to turn left"), "cut"),
        (Answer("", finish="stop"), "empty"),
        (Answer("<think>turn left</think>"), "empty"),
        (Answer("turn left or turn right", finish="stop"), "several actions"),
        (Answer("dance", finish="stop"), "no action"),
        (Answer("I cannot turn left.", finish="refusal"), "refusal"),
    ],
)
@pytest.mark.parametrize("mode", ["text", "json"])
def test_an_unusable_answer_has_its_reason_in_the_record(answer, reason, mode):
    decision, _ = decided(answer, mode=mode, on_invalid="drop")
    assert (decision.invalid, decision.valid) == (reason, reason is None)
    assert decision.action == ("drop" if reason else "turn left")


def test_words_in_place_of_a_call_are_no_call_and_two_objects_name_several_actions():
    assert decided(LEFT, mode="tool")[0].invalid == "no call"
    assert decided(Answer("", arguments='{"action": "turn left"}', finish="stop"), mode="tool")[0].invalid is None
    assert decided(Answer("", arguments='{"action": "dance"}', finish="stop"), mode="tool")[0].invalid == "no action"
    two = Answer('{"action": "turn left"} or {"action": "turn right"}', finish="stop")
    assert decided(two, mode="json")[0].invalid == "several actions"
    assert decided(Answer("1 or 2", finish="stop"), env_id="MountainCarContinuousLLM-v0")[0].invalid == "several actions"


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (Answer("turn", finish="length"), "in fewer words: the action alone"),
        (Answer("<think>turn left"), "Think in fewer words"),
        (Answer("<think>turn left</think>"), "No answer followed your thought"),
        (Answer("dance", finish="stop"), "exactly one of these actions: turn left, turn right"),
    ],
)
def test_the_reply_before_the_next_try_fits_the_reason(answer, reply):
    decision, backend = decided(answer, LEFT, on_invalid="retry")
    assert (decision.action, decision.invalid, decision.retries) == ("turn left", None, 1)
    assert reply in backend.requests[1].messages[-1]["content"]
    assert "turn left" not in backend.requests[1].messages[-2]["content"], "the thought is no part of the answer"


def test_thoughts_are_recorded_apart_and_read_back():
    spoken = Answer("turn left", reasoning="Why?", finish="stop", tokens_out=9, tokens_reasoning=7, thought_cut=True)
    backend = Says(Answer("dance", reasoning="Hm.", finish="stop", tokens_out=5, tokens_reasoning=3), spoken)
    env = gym.make(BABY, max_episode_steps=2)
    (episode,) = rollout(lambda: env, LLMPolicy(backend, text_spec(env), on_invalid="retry"), [0])
    decision = episode.steps[0].decision
    assert (decision.reasoning, decision.completion, decision.thought_cut) == ("Why?", "turn left", True)
    assert (decision.tokens_out, decision.tokens_reasoning) == (14, 10)
    assert (episode.tokens_out, episode.tokens_reasoning, episode.thoughts_cut) == (28, 20, 2)
    assert Episode.from_json(episode.to_json()) == episode


def test_settings_of_thoughts_reach_the_model_and_the_identity_where_they_are_given():
    given = {"think": "low", "think_tokens": 30, "top_p": 0.9, "top_k": 20, "min_p": 0.05}
    env = gym.make(BABY)
    backend = Says(LEFT)
    policy = LLMPolicy(backend, text_spec(env), **given)
    policy.decide([Turn(env.reset(seed=0)[0], np.random.default_rng(0))])
    assert {name: getattr(backend.requests[0], name) for name in given} == given
    assert given.items() <= policy.config.items()
    assert backend.requests[0].max_tokens == LLMPolicy(Says(LEFT), text_spec(env)).config["max_tokens"] == 16


@pytest.mark.parametrize(("kept", "shown"), [("none", [None, None, None]), ("last", [None, None, "3"]), ("all", ["1", "2", "3"])])
@pytest.mark.parametrize(("own_words", "mode"), [(False, "text"), (True, "text"), (False, "tool")])
def test_past_thoughts_are_shown_as_asked_and_are_never_the_models_words(kept, shown, own_words, mode):
    said = {"arguments": '{"action": "drop"}', "text": ""} if mode == "tool" else {"text": "I drop."}
    backend = Says(*(Answer(reasoning=f"{number}", finish="stop", **said) for number in (1, 2, 3, 4)))
    env = gym.make(BABY, max_episode_steps=4)
    settings = {"history": "all", "strategy": "tool" if mode == "tool" else "chat", "mode": mode, "own_words": own_words}
    policy = LLMPolicy(backend, text_spec(env), history_thoughts=kept, **settings)
    (episode,) = rollout(lambda: env, policy, [0])
    past = [message for message in backend.requests[-1].messages if message["role"] == "assistant"]
    assert [message.get("reasoning") for message in past] == shown
    words = "I drop." if own_words else "drop"
    assert {message.get("call") or message["content"] for message in past} == {'{"action": "drop"}' if mode == "tool" else words}
    assert policy.config.get("history_thoughts", "none") == kept
    assert Episode.from_json(episode.to_json()) == episode


def test_a_strategy_that_thinks_in_words_is_not_asked_of_a_model_that_is_to_think():
    with pytest.raises(UsageError, match=r"think: expected a strategy .* 'reasoning' asks it to think in words a second time"):
        decided(LEFT, strategy="reasoning", think=True)
    with pytest.raises(UsageError, match="history_thoughts: expected a strategy"):
        decided(LEFT, strategy="reflection", history_thoughts="all", history=3)
    with pytest.raises(UsageError, match=r"history_thoughts='last': expected a history"):
        decided(LEFT, history_thoughts="last")
    assert decided(LEFT, strategy="reasoning", think=False)[0].action == "turn left"


def test_a_model_that_has_thought_before_its_words_does_not_think_again_before_it_chooses():
    chosen = Answer(probabilities={"turn left": 1.0})
    decision, backend = decided(Answer("<think>1</think>A wall.", finish="stop"), chosen, strategy="reasoning", mode="choose")
    assert [request.think for request in backend.requests] == [None, False]
    assert (decision.reasoning, decision.completion, decision.action) == ("1\nA wall.", "A wall.", "turn left")
    _, backend = decided(Answer("A wall.", finish="stop"), chosen, strategy="reasoning", mode="choose")
    assert [request.think for request in backend.requests] == [None, None]


def test_the_draw_of_a_thought_does_not_change_the_draw_of_the_action():
    names = [action.name for action in BABYAI_SPEC.actions]
    chosen = Answer(probabilities=dict.fromkeys(names, 1 / len(names)), reasoning="Hm.")
    (plain, without), (thought, backend) = (decided(chosen, mode="choose", temperature=1, think=think) for think in (None, True))
    assert plain.action == thought.action
    assert without.requests[0].seed is None and without.requests[0].temperature == 0
    assert backend.requests[0].seed is not None and backend.requests[0].temperature == 1


@pytest.mark.parametrize("mode", ["text", "choose"])
def test_a_model_of_real_weights_thinks_within_its_budget(mode, tmp_path):
    model, tokenizer = random_model(tmp_path, "opened")
    backend = TransformersBackend(model, tokenizer, {"backend": "transformers", "model": "random"})
    env = gym.make(BABY, max_episode_steps=2)
    policy = LLMPolicy(backend, text_spec(env), mode=mode, think_tokens=6, on_invalid="drop")
    (episode,) = rollout(lambda: env, policy, [0])
    decision = episode.steps[0].decision
    assert episode.error is None
    assert decision.thought_cut and decision.tokens_reasoning == 6 and decision.reasoning
    assert decision.reasoning not in (decision.completion or "") and decision.reasoning not in str(decision.messages)
    assert (decision.tokens_out == 6) == (mode == "choose")
    unasked = LLMPolicy(backend, text_spec(env), mode=mode, think=False, on_invalid="drop")
    (episode,) = rollout(lambda: env, unasked, [0])
    assert episode.tokens_reasoning == 0 and episode.steps[0].decision.reasoning is None
