"""Examples of an expert's play in prompts."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import LLMPolicy, ScriptedBackend
from gym_text_policies.policies.examples import Example, FewShot, Retrieval, gold_examples
from gym_text_policies.policy import text_spec

BABY = "BabyAIText-v0"


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
