"""`LLMPolicy` on scripted answers: what it asks, what it counts, what it plays."""

import dataclasses
import itertools

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text_policies import Episode, LLMPolicy, PolicyError, ScriptedBackend, load_policy, rollout
from gym_text_policies.backends.base import Answer, Backend
from gym_text_policies.policy import text_spec
from gym_text_policies.records import Turn

BABY = "BabyAIText-v0"


def policy_that_says(*answers, env_id="BabyAIText-v0", **options):
    return LLMPolicy(ScriptedBackend(answers), text_spec(gym.make(env_id, expert="off")), **options)


def short_baby():
    return gym.make("BabyAIText-v0", max_episode_steps=4, expert="off")


def test_answers_are_played_and_invalid_ones_counted():
    (episode,) = rollout(short_baby, policy_that_says("Drop!", "dance", "turn left or turn right", "turn left"), [0])
    decisions = [step.decision for step in episode.steps]
    assert [d.valid for d in decisions] == [True, False, False, True]
    assert [d.completion for d in decisions] == ["Drop!", "dance", "turn left or turn right", "turn left"]
    assert decisions[0].action == "drop" and decisions[3].action == "turn left"
    assert episode.invalid == 2


def test_an_invalid_answer_is_replaced_as_asked():
    (by_name,) = rollout(short_baby, policy_that_says("dance", on_invalid="toggle"), [0])
    assert {step.decision.action for step in by_name.steps} == {"toggle"}
    assert by_name.invalid == 4
    (error,) = rollout(short_baby, policy_that_says("dance", on_invalid="raise"), [0])
    assert error.outcome == "error" and "'dance'" in error.error
    with pytest.raises(PolicyError, match="got 'dance'"):
        policy_that_says("dance", on_invalid="raise")(gym.make("BabyAIText-v0").reset(seed=0)[0])


def test_a_text_game_can_answer_an_invalid_action_itself():
    policy = policy_that_says("dance", env_id="CookingWorldText-v0", on_invalid="play")
    (episode,) = rollout(lambda: gym.make("CookingWorldText-v0", max_episode_steps=2), policy, [0])
    assert episode.steps[0].decision.action == "dance"
    assert not episode.steps[0].action_was_valid
    assert "Unknown action" in episode.last_observation["text"]


def test_a_policys_configuration_says_what_it_is():
    config = policy_that_says("drop", mode="choose", seed=3).config
    assert config | {"template": "*"} == {
        "kind": "llm", "backend": "scripted", "name": "scripted", "strategy": "zero_shot", "template": "*",
        "mode": "choose", "history": 0, "own_words": False, "on_invalid": "random", "max_tokens": 16, "temperature": 0.0,
        "seed": 3,
    }  # fmt: skip


def recorder(answer):
    """Return a backend that notes what it is asked, and the notes."""
    asked = []
    return ScriptedBackend(lambda request: asked.append(request) or (answer(request) if callable(answer) else answer)), asked


def play(policy, env_id=BABY, steps=4):
    (episode,) = rollout(lambda: gym.make(env_id, max_episode_steps=steps, expert="off"), policy, [0])
    assert episode.error is None
    return episode


def test_reasoning_and_action_are_both_recorded():
    backend, asked = recorder('{"reasoning": "A wall.", "action": "Turn left"}')
    episode = play(load_policy(backend, gym.make(BABY), strategy="reasoning", mode="json"), steps=1)
    decision = episode.steps[0].decision
    assert (decision.action, decision.reasoning, decision.valid) == ("turn left", "A wall.", True)
    schema = asked[0].schema
    assert list(schema["properties"]) == schema["required"] == ["reasoning", "action"]
    assert schema["properties"]["action"]["enum"] == list(text_spec(gym.make(BABY)).names({}))


def test_numbers_are_actions_of_a_box_in_json():
    backend, asked = recorder('{"action": 0.25}')
    policy = load_policy(backend, gym.make("MountainCarContinuousLLM-v0"), mode="json")
    assert policy(gym.make("MountainCarContinuousLLM-v0").reset(seed=0)[0]) == np.float32(0.25)
    assert asked[0].schema["properties"]["action"]["anyOf"][1] == {"type": "number", "minimum": -1.0, "maximum": 1.0}


@pytest.mark.parametrize("own_words", [False, True])
def test_history_stands_between_the_first_message_and_the_last(own_words):
    said = '{"reflection": "Nothing new.", "action": "turn left"}'
    backend, asked = recorder(said)
    episode = play(load_policy(backend, gym.make(BABY), strategy="reflection", history=2, own_words=own_words))
    roles = [[message["role"] for message in request.messages] for request in asked]
    assert roles[0] == ["system", "user"] and roles[1] == ["system", "user", "assistant", "user"]
    assert roles[3] == ["system", "user", "assistant", "user", "assistant", "user"]
    _, first, answer, *_ = asked[3].messages
    assert first["content"] == episode.steps[1].observation["text"]
    assert answer["content"] == (said if own_words else "turn left")
    assert "history" not in episode.steps[0].observation


def test_chat_prompts_begin_with_the_prompt_before():
    backend, asked = recorder("look around")
    play(load_policy(backend, gym.make("CookingWorldText-v0"), strategy="chat", history="all"), "CookingWorldText-v0", 5)
    assert len(asked) == 5
    for earlier, later in itertools.pairwise(asked):
        assert later.messages[: len(earlier.messages)] == earlier.messages


def test_history_without_its_wrapper_is_an_error():
    policy = load_policy(ScriptedBackend(["drop"]), gym.make(BABY), history=2)
    with pytest.raises(UsageError, match=r"'history'; it is missing. Use policy.wrap"):
        policy(gym.make(BABY).reset(seed=0)[0])


def test_retry_says_what_was_wrong_and_counts():
    answers = iter(["dance", "turn left or drop", "drop"] + ["dance"] * 4)
    backend, asked = recorder(lambda request: next(answers))
    episode = play(load_policy(backend, gym.make(BABY), on_invalid="retry"), steps=2)
    first, second = (step.decision for step in episode.steps)
    assert (first.action, first.valid, first.retries, first.completion) == ("drop", True, 2, "drop")
    assert [message["content"] for message in first.messages if message["role"] == "assistant"] == ["dance", "turn left or drop"]
    assert first.messages[3]["content"].startswith("That cannot be used: it has to name exactly one of these actions: turn left,")
    assert (second.valid, second.retries) == (False, 3)
    assert len(asked) == 7 and episode.invalid == 1
    assert first.tokens_out == 6


def test_reasoning_comes_before_choosing_in_a_call_of_its_own():
    backend, asked = recorder(
        lambda request: '{"reasoning": "Left is free.", "action": "drop"}' if not request.choices else "toggle"
    )
    (decision,) = (
        step.decision for step in play(load_policy(backend, gym.make(BABY), strategy="reasoning", mode="choose"), steps=1).steps
    )
    assert [request.choices is None for request in asked] == [True, False]
    assert (decision.action, decision.reasoning, decision.retries) == ("toggle", "Left is free.", 0)
    assert decision.probabilities["toggle"] == 1.0 and decision.completion.startswith("{")
    assert asked[1].messages[:2] == asked[0].messages and asked[1].messages[2]["content"] == decision.completion


def test_one_possible_action_needs_no_question():
    backend, asked = recorder("?")
    policy = LLMPolicy(backend, text_spec(gym.make("CoinCollectorText-v0")), mode="choose")
    obs = gym.make("CoinCollectorText-v0").reset(seed=0)[0] | {"valid_actions": ("look around",)}
    assert policy(obs) == "look around" and not asked


def test_drawn_choices_follow_the_temperature():
    class Even(ScriptedBackend):
        def answer(self, requests):
            return [Answer(probabilities={c: 0.7 if c == "drop" else 0.06 for c in r.choices}) for r in requests]

    def counts(temperature):
        policy = LLMPolicy(Even([]), text_spec(gym.make(BABY)), mode="choose", temperature=temperature)
        obs = gym.make(BABY).reset(seed=0)[0]
        return sum(policy(obs) == 4 for _ in range(400))

    assert counts(0.0) == 400 == counts(1e-9)
    assert 250 <= counts(1.0) <= 310
    assert counts(100.0) < 110


# ---------------------------------------------------------------- answers that do not end by themselves


class Ending(Backend):
    """Says what it is given, cut where the request's most tokens end it, or with an end that is given."""

    def __init__(self, said, finish=None, tokenizer=None):
        self.said, self.finish, self.tokenizer = said, finish, tokenizer
        self.most = []

    @property
    def config(self):
        return {"backend": "ending"}

    def count(self, text):
        return len(self.tokenizer(text)["input_ids"]) if self.tokenizer else super().count(text)

    def answer(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        self.most.append(request.max_tokens)
        tokens = self.tokenizer(self.said)["input_ids"] if self.tokenizer else list(self.said)
        text = self.said
        if len(tokens) >= request.max_tokens:  # the end of turn is a token, too
            kept = tokens[: request.max_tokens]
            text = self.tokenizer.decode(kept) if self.tokenizer else "".join(kept)
        return Answer(text, finish=self.finish or ("stop" if len(tokens) < request.max_tokens else "length"))


def decided(backend, env, obs, **options):
    options = {"on_invalid": "raise"} | options
    return LLMPolicy(backend, text_spec(env), **options).decide([Turn(obs, np.random.default_rng(0))])[0]


@pytest.mark.parametrize("mode", ["text", "json"])
def test_most_tokens_have_room_for_the_longest_name_unless_they_are_given(mode):
    env = gym.make("CookingWorldText-v0")
    name = "take " + "very " * 60 + "red apple"
    obs = env.reset(seed=0)[0] | {"valid_actions": ("look around", name)}
    said = name if mode == "text" else f'{{"action": "{name}"}}'
    assert decided(Ending(said), env, obs, mode=mode).action == name
    with pytest.raises(PolicyError, match=r"\(cut\)"):
        decided(Ending(said), env, obs, mode=mode, max_tokens=40)
    assert LLMPolicy(Ending(said), text_spec(env), mode=mode).config["max_tokens"] == (16 if mode == "text" else 60)


def test_a_cut_answer_in_a_game_of_any_words_is_played_as_it_is_and_counted():
    env = gym.make("CookingWorldText-v0")
    spec = dataclasses.replace(
        text_spec(env), fields={"text": text_spec(env).fields["text"], "goal": text_spec(env).fields["goal"]}
    )
    obs = {"text": "Say something.", "goal": "Talk."}
    for on_invalid in ("random", "retry", "play"):
        policy = LLMPolicy(Ending("I say hello. " * 20), spec, strategy="words", on_invalid=on_invalid)
        (decision,) = policy.decide([Turn(obs, np.random.default_rng(0))])
        assert not decision.valid and decision.finish == "length" and decision.action.startswith("I say hello.")
        assert ("in fewer words" in decision.messages[-1]["content"]) == (on_invalid == "retry")
    (decision,) = LLMPolicy(Ending("I say hello."), spec, strategy="words").decide([Turn(obs, np.random.default_rng(0))])
    assert decision.valid and decision.finish is None


def test_a_decision_that_was_cut_says_so_in_its_record():
    backend = Ending("turn left and then turn right")
    (episode,) = rollout(short_baby, LLMPolicy(backend, text_spec(gym.make(BABY)), max_tokens=9), [0])
    assert [step.decision.finish for step in episode.steps] == ["length"] * 4
    assert [step.decision.completion for step in episode.steps] == ["turn left"] * 4 and episode.invalid == 0
    assert Episode.from_json(episode.to_json()) == episode
