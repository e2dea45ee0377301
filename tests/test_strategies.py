"""Strategies and answer modes on scripted answers."""

import itertools
import json

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text_policies import LLMPolicy, ScriptedBackend, load_policy, rollout
from gym_text_policies.policies.examples import Example, FewShot, Retrieval, gold_examples
from gym_text_policies.policies.parsing import parse_fields
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import STRATEGIES, Prompt

BABY = "BabyAIText-v0"


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
            from gym_text_policies.backends.base import Answer

            return [Answer(probabilities={c: 0.7 if c == "drop" else 0.06 for c in r.choices}) for r in requests]

    def counts(temperature):
        policy = LLMPolicy(Even([]), text_spec(gym.make(BABY)), mode="choose", temperature=temperature)
        obs = gym.make(BABY).reset(seed=0)[0]
        return sum(policy(obs) == 4 for _ in range(400))

    assert counts(0.0) == 400
    assert 250 <= counts(1.0) <= 310
    assert counts(100.0) < 110


def test_few_shot_shows_episodes_that_the_expert_won():
    backend, asked = recorder("look around")
    env = gym.make("CookingWorldText-v0", fold="test", num_locations=1)
    play(load_policy(backend, env, strategy="few_shot", shots=2), "CookingWorldText-v0", 1)
    system = asked[0].messages[0]["content"]
    assert system.count("> eat meal") == 2 and "Example 2. Task:" in system


def test_retrieval_shows_the_nearest_situations_first():
    examples = [Example("go to the red ball", (("a red ball 2 steps forward", "go forward"), ("a wall 1 step left", "turn right")))]
    nearest = Retrieval(1, examples).of({"goal": "go to the red ball", "text": "a wall 2 steps left"})
    assert nearest[0].steps == (("a wall 1 step left", "turn right"),)
    assert Retrieval(5, examples).config != FewShot(1, [*examples, *examples]).config


def test_of_equally_near_situations_the_earliest_is_shown():
    steps = tuple(("a wall 1 step left", f"action {number}") for number in range(100))
    retrieval = Retrieval(3, [Example("go to the red ball", steps)])
    for obs in ({"goal": "go to the red ball", "text": "a wall 2 steps left"}, {"goal": "", "text": ""}):
        assert [example.steps for example in retrieval.of(obs)] == [(step,) for step in steps[:3]]


def test_examples_come_from_the_train_fold_and_keep_the_level():
    examples = gold_examples(gym.make(BABY, level="BabyAI-GoToRedBallGrey-v0", fold="test"), 3)
    assert len(examples) == 3 and {example.goal for example in examples} == {"go to the red ball"}
    with pytest.raises(UsageError, match="at least one demonstration"):
        FewShot(1, [])


def test_a_strategy_with_examples_needs_some():
    with pytest.raises(UsageError, match="expected examples to show"):
        LLMPolicy(ScriptedBackend(["drop"]), text_spec(gym.make(BABY)), strategy="few_shot")


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ('{"action": "drop"}', "drop"),
        ('```json\n{"thoughts": {"deep": 1}, "action": "drop"}\n```', "drop"),
        ('{"action": "drop"} or {"action": "toggle"}', None),
        ('{"action": "drop"}{"action": "drop"}', "drop"),
        ('{"action": "dr', None),
        ('{"action": ["drop"]}', None),
        ("{" * 3000, None),
        ('{"action": 0.5}', "0.5"),
    ],
)
def test_fields_are_read_from_any_answer(answer, action):
    fields = parse_fields(answer)
    assert (fields and fields["action"]) == action


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_reward_is_said_when_asked(strategy, tmp_path):
    spec = text_spec(gym.make(BABY))
    obs = gym.make(BABY).reset(seed=0)[0]
    said = ["".join(m["content"] for m in Prompt(strategy, with_reward=w).render(spec, obs)) for w in (False, True)]
    assert [spec.reward in text for text in said] == [False, True]


def test_a_block_answer_must_end_with_the_action(tmp_path):
    path = tmp_path / "own.jinja"
    blocks = "{% block system %}S{% endblock %}{% block user %}U{% endblock %}{% block answer %}"
    for answer in ("[]", "{}", json.dumps({"action": "a", "plan": "p"}), "nonsense"):
        path.write_text(f"{blocks}{answer}{{% endblock %}}")
        with pytest.raises(UsageError, match="the last of them 'action'"):
            Prompt(str(path))
