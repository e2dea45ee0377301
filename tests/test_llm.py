"""`LLMPolicy` on scripted answers: what it asks, what it counts, what it plays."""

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import LLMPolicy, PolicyError, ScriptedBackend, load_policy, rollout
from gym_text_policies.policy import text_spec


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


def test_random_replacements_depend_on_the_seed_and_on_nothing_else():
    def actions(batch, seed):
        episodes = rollout(short_baby, policy_that_says("?", seed=seed), range(4), batch=batch)
        return {e.seed: [s.decision.action for s in e.steps] for e in episodes}

    assert actions(1, 0) == actions(4, 0) != actions(4, 1)


def test_choose_takes_the_most_probable_action():
    policy = policy_that_says("pick up", mode="choose")
    (episode,) = rollout(short_baby, policy, [0])
    assert {step.decision.action for step in episode.steps} == {"pick up"}
    assert episode.steps[0].decision.probabilities["pick up"] == 1.0
    assert episode.steps[0].decision.completion is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "chose"}, "Did you mean 'choose'"),
        ({"strategy": "zero"}, "zero_shot"),
        ({"on_invalid": "play"}, "text actions"),
        ({"on_invalid": "turn lft"}, "Did you mean 'turn left'"),
        ({"max_tokens": 0}, "max_tokens: expected an integer from 1"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        policy_that_says("drop", **options)


def test_an_unknown_option_is_named():
    with pytest.raises(UsageError, match=r"temprature.*Options: strategy, history"):
        load_policy(ScriptedBackend(["drop"]), short_baby(), temprature=1)


def test_a_policys_configuration_says_what_it_is():
    config = policy_that_says("drop", mode="choose", seed=3).config
    assert config | {"template": "*"} == {
        "kind": "llm", "backend": "scripted", "name": "scripted", "strategy": "zero_shot", "template": "*",
        "mode": "choose", "history": 0, "own_words": False, "on_invalid": "random", "max_tokens": 16, "temperature": 0.0,
        "length_normalised": False, "seed": 3,
    }  # fmt: skip
