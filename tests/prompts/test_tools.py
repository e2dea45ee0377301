"""The tool of mode ``tool``: its description, and the prompts of a policy that calls it."""

import pytest

from gym_text_policies import load_policy, rollout
from gym_text_policies.backends.scripted import ScriptedBackend
from gym_text_policies.bridges.trl import trl_dataset, trl_environment
from gym_text_policies.environments import environment_maker
from gym_text_policies.prompts.tools import call_of, called_action, tool_function

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=4"
COOKING = "CookingWorldText-v0?max_episode_steps=3"


def played(environment, script, **settings):
    """Return an episode of seed 3 of the training fold, and its policy."""
    make = environment_maker(environment, fold="train")
    with make() as env:
        policy = load_policy(ScriptedBackend(script), env, mode="tool", **settings)
    (episode,) = rollout(make, policy, [3])
    assert episode.error is None
    return episode, policy


@pytest.mark.parametrize("environment", [GOTO, COOKING, "MountainCarContinuousLLM-v0"])
def test_the_tool_reads_as_transformers_makes_it_of_the_bridges_method(environment):
    from transformers.utils import get_json_schema

    game = trl_environment(environment)()
    game.reset(seed=0)
    schema = get_json_schema(game.act)
    assert schema == {"type": "function", "function": tool_function(game.game.spec)}
    assert str(schema) == str({"type": "function", "function": tool_function(game.game.spec)}), "in the same order of keys"


@pytest.mark.parametrize("strategy", ["tool", "tool_short"])
@pytest.mark.parametrize(("environment", "script"), [(GOTO, "turn left"), (COOKING, "look around")])
def test_the_prompts_of_a_whole_history_are_the_chat_that_trl_builds(environment, script, strategy):
    episode, _ = played(environment, [script], strategy=strategy)
    game, name = trl_environment(environment, strategy=strategy)(), environment.partition("?")[0]
    system, user = trl_dataset(name, "train", [3], strategy=strategy)[0]["prompt"]
    chat = [{"role": "system", "content": system["content"]}, {"role": "user", "content": user["content"] + game.reset(seed=3)}]
    for step in episode.steps:
        assert list(step.decision.messages) == chat
        chat.append({"role": "assistant", "content": "", "call": call_of(step.decision.action)})
        chat.append({"role": "tool", "content": game.act(step.decision.action)})
    assert game.game.end and len(episode.steps) > 2


def test_a_call_of_an_action_that_is_not_valid_gets_the_tools_answer():
    episode, _ = played(GOTO, ['{"action": "fly"}', "drop"], on_invalid="retry")
    first = episode.steps[0].decision
    assert (first.action, first.retries) == ("drop", 1)
    assert first.messages[-2:][0] == {"role": "assistant", "content": "", "call": '{"action": "fly"}'}
    assert first.messages[-1]["role"] == "tool" and "one of these actions: turn left" in first.messages[-1]["content"]


def test_an_answer_that_cannot_be_used_is_replaced_and_the_history_shows_what_was_played():
    episode, _ = played(GOTO, ["turn left or turn right"])
    assert not any(step.decision.valid for step in episode.steps)
    calls = [message["call"] for message in episode.steps[-1].decision.messages if message["role"] == "assistant"]
    assert calls == [call_of(step.decision.action) for step in episode.steps[:-1]]


def test_the_mode_brings_its_strategy_and_the_whole_history_unless_others_are_given():
    _, policy = played(GOTO, ["drop"])
    assert (policy.config["strategy"], policy.config["history"]) == ("tool", "all")
    _, policy = played(GOTO, ["drop"], strategy="zero_shot", history=1)
    assert (policy.config["strategy"], policy.config["history"]) == ("zero_shot", 1)


@pytest.mark.parametrize("arguments", ["drop", "[1]", '{"action": ["drop"]}', '{"action": true}', "[" * 10**5])
def test_other_json_has_no_action(arguments):
    assert called_action(arguments) is None


def test_a_number_is_an_action_and_other_letters_stay():
    assert called_action('{"action": -0.5, "more": 1}') == "-0.5"
    assert called_action(call_of('nimm "Äpfel"\n')) == 'nimm "Äpfel"\n'
