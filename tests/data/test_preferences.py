"""Pairs of answers of which one is preferred."""

import dataclasses
import json

import pytest

from gym_text import UsageError
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.preferences import preference_pairs


def with_return(row, actions, value):
    """Return a row in which the player has done this, and what it was worth."""
    asked = {"role": "user", "content": "?"}
    messages = [message for action in actions for message in (asked, {"role": "assistant", "content": action})]
    labels = ["" if message is asked else message["content"] for message in messages]
    return dataclasses.replace(row, messages=tuple(messages), labels=tuple(labels), episode_return=value, own_labels=True)


def test_the_better_answer_is_that_of_the_higher_mean_return_where_the_prompts_are_equal(noisy_rows):
    row = noisy_rows[0]
    ways = [(["a", "b"], 1.0), (["a", "c"], 0.0), (["d", "b"], 0.2), (["d", "b"], 0.4)]
    first, second = preference_pairs([with_return(row, *way) for way in ways])
    assert [first[key][0]["content"] for key in ("chosen", "rejected")] == ["a", "d"]
    assert first["prompt"] == [{"role": "user", "content": "?"}] and (first["chosen_return"], first["rejected_return"]) == (
        0.5,
        pytest.approx(0.3),
    )
    assert [second[key][0]["content"] for key in ("chosen", "rejected")] == ["b", "c"] and len(second["prompt"]) == 3


def test_levels_are_not_mixed_and_answers_that_were_not_the_players_are_no_pair(noisy_rows):
    row = with_return(noisy_rows[0], ["a"], 1.0)
    other = dataclasses.replace(with_return(noisy_rows[0], ["b"], 0.0), seed=row.seed + 1)
    taught = dataclasses.replace(with_return(noisy_rows[0], ["b"], 0.0), own_labels=False)
    longer = json.dumps({**json.loads(row.environment), "max_episode_steps": 999})
    longer_limit = dataclasses.replace(with_return(noisy_rows[0], ["b"], 2.0), environment=longer)
    for rows in ([row, other], [row, taught], [row, longer_limit], [row, dataclasses.replace(row, episode_return=0.5)]):
        with pytest.raises(UsageError, match="act and end differently; got none"):
            preference_pairs(rows)


def test_episodes_of_a_level_are_paired_whoever_plays(tmp_path):
    rows = []
    environments = ("BabyAIText-v0?task=goto&max_episode_steps=12",)
    for model in ("gold", "random"):
        rows += collect(CollectConfig(str(tmp_path / model), environments, ("4",), model=model, labels="own", threshold=-1.0))
    assert len({row.environment for row in rows}) == 2
    first = {row.seed: row.labels[2] for row in rows if row.episode_return > 0.5}  # of the expert
    at_once = [pair for pair in preference_pairs(rows) if len(pair["prompt"]) == 2]
    assert at_once and {pair["chosen"][0]["content"] for pair in at_once} <= set(first.values())
    assert len({pair["prompt"][1]["content"] for pair in at_once}) == len(at_once), "one pair of a prompt"


def test_answers_in_the_players_own_words_are_paired_and_keep_their_thoughts(noisy_rows):
    rows = []
    for action, said, thought, value in (("a", "I a.", "so", 1.0), ("a", "I a.", "well", 2.0), ("b", "b!", "hm", 0.0)):
        row = with_return(noisy_rows[0], [action], value)
        rows.append(dataclasses.replace(row, labels=("", said), thoughts=("", thought), own_labels=True))
    (pair,) = preference_pairs(rows)
    assert pair["chosen"] == [{"role": "assistant", "content": "I a.", "reasoning_content": "well"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "b!", "reasoning_content": "hm"}]
    assert (pair["chosen_return"], pair["rejected_return"]) == (1.5, 0.0)
    with pytest.raises(UsageError, match=r"expected the player's own answers.*--labels own"):
        preference_pairs([dataclasses.replace(row, own_labels=False) for row in rows])
