"""Rows as datasets: written whole, and checked when they are read."""

import dataclasses
import math
import random
import shutil

import datasets
import pytest
from training_data import examples

from gym_text import UsageError
from gym_text.errors import StoreError
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.data.rows import policy_of
from gym_text_policies.policies.config import TRAINED


def test_whether_the_reward_is_said_is_kept_with_the_rows(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], with_reward=True)], tmp_path / "rows")
    assert policy_of(read_rows(tmp_path / "rows")) == dataclasses.replace(TRAINED, with_reward=True)


def test_thoughts_are_kept_with_the_rows_and_data_without_any_have_the_columns_of_before(tmp_path, noisy_rows):
    labels = noisy_rows[0].labels
    thoughtful = dataclasses.replace(noisy_rows[0], thoughts=tuple("so" * bool(label) for label in labels))
    write_rows([thoughtful, noisy_rows[1]], tmp_path / "rows")
    assert read_rows(tmp_path / "rows") == [thoughtful, noisy_rows[1]]
    assert policy_of(read_rows(tmp_path / "rows")).think is True
    write_rows(noisy_rows[:1], tmp_path / "plain")
    assert "thoughts" not in datasets.load_from_disk(str(tmp_path / "plain")).column_names
    assert policy_of(read_rows(tmp_path / "plain")) == TRAINED


def test_whose_the_labels_are_is_kept_with_the_rows(tmp_path, noisy_rows):
    rows = [dataclasses.replace(row, own_labels=own) for row, own in zip(noisy_rows, [True, False], strict=False)]
    write_rows(rows, tmp_path / "rows")
    assert [row.own_labels for row in read_rows(tmp_path / "rows")] == [True, False]


def test_rows_that_show_different_numbers_of_steps_are_learnt_together_and_the_longest_history_is_kept(noisy_rows):
    shorter = [dataclasses.replace(row, history=history) for row, history in zip(noisy_rows, ("0", "12"), strict=False)]
    assert policy_of(shorter).history == 12
    assert policy_of([*shorter, noisy_rows[2]]).history == "all"
    with pytest.raises(UsageError, match="expected rows of one prompt"):
        policy_of([noisy_rows[0], dataclasses.replace(noisy_rows[1], strategy="zero_shot")])


def test_a_dataset_of_another_prompt_version_is_refused(tmp_path, noisy_rows):
    write_rows([dataclasses.replace(noisy_rows[0], template="0" * 16)], tmp_path / "rows")
    with pytest.raises(UsageError, match="The template has changed"):
        policy_of(read_rows(tmp_path / "rows"))
    with pytest.raises(UsageError, match="gym-text collect has made"):
        read_rows(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"episode_return": math.nan}, "episode_return: expected a finite number"),
        ({"seed": -1}, "seed: expected a whole number from 0 on"),
        ({"success": None}, "success: expected true or false"),
        ({"history": "-1"}, "history: expected a number or all"),
        ({"strategy": None}, "strategy: expected a text"),
        ({"messages": []}, "messages: expected texts of system, user, assistant"),
        ({"labels": ["", "left", "right"]}, "labels: expected a text for each message"),
        ({"labels": ["", ""]}, "labels: expected"),
        ({"thoughts": ["so"]}, "thoughts: expected a text for each message"),
        ({"thoughts": ["so", "that"]}, "thoughts: expected a text for each message, empty where the label is"),
        ({"environment": '{"id": "x", "kwargs": [1]}'}, "environment: expected a JSON object with id and kwargs"),
        ({"environment": '{"id": "x", "kwargs": {}, "wrappers": [["A", {}, "B"]]}'}, "expected names and arguments as wrappers"),
        ({"environment": '{"id": "x", "kwargs": {}, "wrappers": "AB"}'}, "wrappers: expected a list"),
        ({"own_labels": "yes"}, "own_labels: expected true or false"),
        ({"options": [["left"]]}, "options: expected texts for each message"),
        ({"options": [[], ["left", "right"]], "shares": [[], [1.0]]}, "shares: expected a number for each option, or none"),
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
    for number in range(12):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "rows", copy)
        file = rng.choice(sorted(copy.iterdir()))
        data = bytearray(file.read_bytes())
        offset = rng.randrange(len(data))
        data[offset : offset + rng.choice((0, 30, len(data)))] = rng.randbytes(rng.choice((0, 20)))
        file.write_bytes(data)
        try:
            read_rows(copy)
        except UsageError:
            refused += 1
    assert refused > 8


def test_rows_are_replaced_whole_or_stay(tmp_path, full_disk):
    write_rows(examples(2), tmp_path / "rows")
    with full_disk(1000), pytest.raises(StoreError, match="Make room"):
        write_rows(examples(3), tmp_path / "rows")
    assert [path.name for path in tmp_path.iterdir()] == ["rows"] and len(read_rows(tmp_path / "rows")) == 2
    write_rows(examples(3), tmp_path / "rows")
    assert len(read_rows(tmp_path / "rows")) == 3
