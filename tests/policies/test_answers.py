"""The rule of all bridges about answers that cannot be used, in the loop that plays."""

import dataclasses

import numpy as np
import pytest

from gym_text_policies import rollout
from gym_text_policies.answers import MOST_UNUSABLE, TellUnusable, Unusable, reply_in_game
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.environments import environment_maker
from gym_text_policies.policies.llm import LLMPolicy
from gym_text_policies.policy import text_spec


class Marking(LLMPolicy):
    """Marks answers that cannot be used, as the bridge to TRL does."""

    def decide(self, turns):
        decisions = super().decide(turns)
        return [one if one.valid else dataclasses.replace(one, action=Unusable(one.completion)) for one in decisions]


@pytest.mark.parametrize("name", ["BabyAIText-v0?task=goto", "CookingWorldText-v0", "MountainCarContinuousLLM-v0"])
def test_a_model_is_told_the_game_stands_still_and_only_answers_in_a_row_end_it(name):
    make = environment_maker(name, fold="train")
    with make() as env:
        spec, (first, _) = text_spec(env), env.reset(seed=0)
        usable = spec.names(first)[0]
        second, *_ = env.step(spec.encode(usable, first))
    said = [*["a camel", ""] * 2, usable, *["a camel"] * MOST_UNUSABLE]
    policy = Marking(ScriptedBackend(said), spec, strategy="chat", history="all", own_words=True)
    (episode,) = rollout(lambda: TellUnusable(make()), policy, [0])
    assert episode.error is None and (episode.outcome, episode.length, episode.invalid) == ("truncated", len(said), len(said) - 1)
    texts = [step.observation["text"] for step in episode.steps] + [episode.last_observation["text"]]
    assert texts[0] == first["text"] and texts[5] == second["text"]
    assert texts[1:5] == [reply_in_game(spec, first)] * 4 and texts[6:] == [reply_in_game(spec, second)] * MOST_UNUSABLE
    assert all(np.array_equal(step.observation["goal"], first["goal"]) for step in episode.steps)
    assert [step.reward for step in episode.steps if not step.decision.valid] == [0.0] * episode.invalid
