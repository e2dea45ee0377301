"""Rows: episodes as prompts and answers to learn."""

import dataclasses
import re
from functools import partial

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.exchange import exchange_names
from gym_text_policies.data.rows import policy_of, prompt_record, rows_of, training_prompt
from gym_text_policies.policies.config import TRAINED, PolicyConfig
from gym_text_policies.policy import text_spec


@pytest.mark.parametrize(("strategy", "history"), [("chat", "all"), ("zero_shot", 2), ("balrog", 0)])
@pytest.mark.parametrize("env_id", ["BabyAIText-v0", "CookingWorldText-v0"])
def test_a_prompt_in_the_data_is_the_prompt_at_play_byte_for_byte(env_id, strategy, history):
    make_env = partial(gym.make, env_id, fold="train", max_episode_steps=5)
    env = make_env()
    model = "scripted:go forward|turn left|look around|inventory|no action at all"
    policy = load_policy(model, env, strategy=strategy, history=history)
    (episode,) = rollout(make_env, policy, [3])
    asked = PolicyConfig(strategy=strategy, history=history, with_reward=False)
    rows = rows_of(dataclasses.replace(episode, steps=tuple(map(valid, episode.steps))), text_spec(env), asked, "own")
    prompts = [example.messages for row in rows for example in row.examples()]
    assert prompts == [step.decision.messages for step in episode.steps]
    assert len(rows) == (1 if strategy == "chat" else 5), "an append-only episode is one conversation"


def valid(step):
    """Return the step with a decision that counts, and nothing said."""
    return dataclasses.replace(step, decision=dataclasses.replace(step.decision, valid=True, completion=None))


def test_names_are_exchanged_in_prompts_and_labels_alike(noisy_rows):
    names = ("key", "ball", "box", "grey")

    def stripped(row, pattern=re.compile(r"\b(key|ball|box|grey)\b")):
        """Return the row without the names, and the names in the order in which they stand there."""
        texts = [*(message["content"] for message in row.messages), *row.labels]
        return [pattern.sub("", text) for text in texts], [name for text in texts for name in pattern.findall(text)]

    exchanged = exchange_names(noisy_rows, names, 0)
    maps = []
    for before, after in zip(noisy_rows, exchanged, strict=True):
        (plain, old), (others, new) = stripped(before), stripped(after)
        assert plain == others
        pairs = set(zip(old, new, strict=True))
        assert len({name for name, _ in pairs}) == len({name for _, name in pairs}) == len(pairs), "one for one"
        maps.append(frozenset(pairs))
    assert len(set(maps)) > 1, "each row has its own"
    assert exchanged == exchange_names(noisy_rows, names, 0) != exchange_names(noisy_rows, names, 1)
    for wrong in ((), ("key",), ("key", "key"), ("key=ball", "box"), ("key=ball", "box=")):
        with pytest.raises(UsageError, match=r"^interchangeable: expected two or more different names, and for each at least one"):
            exchange_names(noisy_rows, wrong, 0)
    with pytest.raises(UsageError, match=r"^interchangeable: expected names that the data contain; missing are \['banana'\]"):
        exchange_names(noisy_rows, ("key", "banana"), 0)


def test_names_are_exchanged_in_thoughts_as_in_labels(noisy_rows):
    asked, answer = {"role": "user", "content": "Roast the apple or the carrot."}, {"role": "assistant", "content": "take apple"}
    row = dataclasses.replace(
        noisy_rows[0], messages=(asked, answer), labels=("", "take apple"), thoughts=("", "apple first, then carrot")
    )
    exchanged = {(row.labels[1], row.thoughts[1]) for row in exchange_names([row] * 20, ("apple", "carrot"), 0)}
    assert exchanged == {("take apple", "apple first, then carrot"), ("take carrot", "carrot first, then apple")}


def test_a_players_thoughts_are_learnt_before_its_answers_unless_they_were_cut():
    make_env = partial(gym.make, "BabyAIText-v0", fold="train", max_episode_steps=4)
    env = make_env()
    (episode,) = rollout(make_env, load_policy("scripted:go forward|turn left", env), [3])
    thoughts = ({"reasoning": "It is near."}, {"reasoning": "Too lo", "thought_cut": True}, {"reasoning": "?", "valid": False}, {})
    steps = tuple(
        dataclasses.replace(step, decision=dataclasses.replace(step.decision, **thought))
        for step, thought in zip(episode.steps, thoughts, strict=True)
    )
    episode = dataclasses.replace(episode, steps=steps)
    (row,) = rows_of(episode, text_spec(env), TRAINED, "own")
    assert [(example.thought, example.answer) for example in row.examples()] == [("It is near.", "go forward"), ("", "turn left")]
    assert not any("reasoning" in message for message in row.messages), "no later prompt has the thought"
    assert policy_of([row]).think is True
    rows = rows_of(episode, text_spec(env), dataclasses.replace(TRAINED, strategy="reasoning"), "own")
    assert not any(row.thoughts for row in rows), "this strategy's reasoning is a part of the answer"


def test_names_of_one_thing_are_exchanged_together(noisy_rows):
    asked, answer = {"role": "user", "content": "fry apple: stove, roast carrot: oven"}, {"role": "assistant", "content": "stove"}
    row = dataclasses.replace(noisy_rows[0], messages=(asked, answer), labels=("", "stove"))
    exchanged = exchange_names([row] * 40, ("apple", "carrot", "fry=stove", "roast=oven"), 0)
    assert {(row.messages[0]["content"], row.labels[1]) for row in exchanged} == {
        ("fry apple: stove, roast carrot: oven", "stove"), ("fry carrot: stove, roast apple: oven", "stove"),
        ("roast apple: oven, fry carrot: stove", "oven"), ("roast carrot: oven, fry apple: stove", "oven"),
    }  # fmt: skip


def test_a_strategy_that_shows_examples_is_refused_and_the_record_names_the_prompt():
    with pytest.raises(UsageError, match="expected one without examples"):
        training_prompt(PolicyConfig(strategy="few_shot"))
    record = prompt_record(TRAINED)
    assert record["asked"] == {"mode": "choose", "strategy": "chat", "history": "all", "with_reward": False}
    assert record["template"] == training_prompt(TRAINED).config["template"]
