"""Rows: episodes as prompts and answers to learn."""

import dataclasses
import math
import os
import random
import re
import shutil
from functools import partial

import datasets
import gymnasium as gym
import pytest
from training_data import examples

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies import load_policy, rollout
from gym_text_policies.data.rows import (
    exchange_names,
    policy_of,
    prompt_record,
    read_rows,
    rows_of,
    training_prompt,
    write_rows,
)
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
    prompts = [messages for row in rows for messages, _ in row.examples()]
    assert prompts == [step.decision.messages for step in episode.steps]
    assert len(rows) == (1 if strategy == "chat" else 5), "an append-only episode is one conversation"


def valid(step):
    """Return the step with a decision that counts, and nothing said."""
    return dataclasses.replace(step, decision=dataclasses.replace(step.decision, valid=True, completion=None))


def test_whether_the_reward_is_said_is_kept_with_the_rows(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], with_reward=True)], tmp_path / "rows")
    assert policy_of(read_rows(tmp_path / "rows")) == dataclasses.replace(TRAINED, with_reward=True)
    with pytest.raises(UsageError, match="expected rows with the prompt"):
        read_rows(tmp_path / "rows", TRAINED)


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
        with pytest.raises(UsageError, match=r"^interchangeable: expected two or more different names, each beside others with as"):
            exchange_names(noisy_rows, wrong, 0)
    with pytest.raises(UsageError, match=r"^interchangeable: expected names that stand in the data; these do not: \['banana'\]"):
        exchange_names(noisy_rows, ("key", "banana"), 0)


def test_names_of_one_thing_are_exchanged_together(noisy_rows):
    asked, answer = {"role": "user", "content": "fry apple: stove, roast carrot: oven"}, {"role": "assistant", "content": "stove"}
    row = dataclasses.replace(noisy_rows[0], messages=(asked, answer), labels=("", "stove"))
    exchanged = exchange_names([row] * 40, ("apple", "carrot", "fry=stove", "roast=oven"), 0)
    assert {(row.messages[0]["content"], row.labels[1]) for row in exchanged} == {
        ("fry apple: stove, roast carrot: oven", "stove"), ("fry carrot: stove, roast apple: oven", "stove"),
        ("roast apple: oven, fry carrot: stove", "oven"), ("roast carrot: oven, fry apple: stove", "oven"),
    }  # fmt: skip


def test_a_dataset_of_another_prompt_version_is_refused(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], template="0" * 16)], tmp_path / "rows")
    with pytest.raises(UsageError, match="The template has changed"):
        read_rows(tmp_path / "rows", TRAINED)
    with pytest.raises(UsageError, match="there already"):
        write_rows(noisy_rows, tmp_path / "rows")
    with pytest.raises(UsageError, match="gym-text collect has made"):
        read_rows(tmp_path / "nothing")


def test_a_strategy_that_shows_examples_is_refused_and_the_record_names_the_prompt():
    with pytest.raises(UsageError, match="expected one without examples"):
        training_prompt(PolicyConfig(strategy="few_shot"))
    record = prompt_record(TRAINED)
    assert record["asked"] == {"mode": "choose", "strategy": "chat", "history": "all", "with_reward": False}
    assert record["template"] == training_prompt(TRAINED).config["template"]


def test_a_dataset_with_a_pipe_in_it_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(UsageError, match=r"expected a dataset .* it is a pipe"):
        read_rows(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"episode_return": math.nan}, "episode_return: expected a finite number"),
        ({"episode_return": -math.inf}, "episode_return: expected a finite number"),
        ({"seed": -1}, "seed: expected a whole number from 0 on"),
        ({"success": None}, "success: expected true or false"),
        ({"history": "-1"}, "history: expected a number or all"),
        ({"history": "9" * 5000}, "history: expected a number or all"),
        ({"strategy": None}, "strategy: expected a text"),
        ({"messages": []}, "messages: expected texts of system, user, assistant"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages: expected texts of"),
        ({"messages": [{"role": "user", "content": None}]}, "messages: expected texts of"),
        ({"labels": ["", "left", "right"]}, "labels: expected a text for each message"),
        ({"labels": ["left", "right"]}, "labels: expected a text for each message, the first empty"),
        ({"labels": ["", ""]}, "labels: expected"),
        ({"labels": ["", None]}, "labels: expected"),
        ({"environment": "[]"}, "environment: expected a JSON object with id and kwargs"),
        ({"environment": "{"}, "row 0: "),
        ({"environment": '{"id": "x", "kwargs": [1]}'}, "environment: expected a JSON object with id and kwargs"),
        ({"environment": "[" * 100_000}, "row 0: "),
    ],
)
def test_a_record_that_is_no_row_is_one_sentence(tmp_path, changes, said):
    record = {**dataclasses.asdict(examples(1)[0]), **changes}
    datasets.Dataset.from_list([record]).save_to_disk(tmp_path / "rows")
    with pytest.raises(UsageError, match="expected a dataset that gym-text collect has made; row 0: ") as refused:
        read_rows(tmp_path / "rows")
    assert said in str(refused.value) and len(str(refused.value)) < 600


def test_a_damaged_dataset_is_one_sentence(tmp_path):
    write_rows(examples(), tmp_path / "rows")
    rng = random.Random(0)
    refused = 0
    for number in range(40):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "rows", copy)
        file = rng.choice(sorted(copy.iterdir()))
        data = bytearray(file.read_bytes())
        place = rng.randrange(len(data))
        data[place : place + rng.choice((0, 30, len(data)))] = rng.randbytes(rng.choice((0, 20)))
        file.write_bytes(data)
        try:
            read_rows(copy)
        except UsageError:
            refused += 1
    assert refused > 30


def test_rows_are_replaced_whole_or_stay(tmp_path, full_disk):
    write_rows(examples(2), tmp_path / "rows")
    with full_disk(1000), pytest.raises(StoreError, match="Make room"):
        write_rows(examples(3), tmp_path / "rows", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"] and len(read_rows(tmp_path / "rows")) == 2
    write_rows(examples(3), tmp_path / "rows", replace=True)
    assert len(read_rows(tmp_path / "rows")) == 3
