"""Pairs of answers of which one is preferred."""

import dataclasses
import json

import pytest

from gym_text import UsageError
from gym_text_policies.data.collect import CollectConfig, collect
from gym_text_policies.data.dataset import write_rows
from gym_text_policies.data.export import ExportConfig, run
from gym_text_policies.data.preferences import preference_pairs


def played(folder, seed):
    """Return rows of random play of four levels, whatever came of it."""
    settings = {"model": "random", "labels": "own", "threshold": -1.0, "options": {"seed": seed}}
    environments = ("BabyAIText-v0?task=goto&max_episode_steps=12",)
    return list(collect(CollectConfig(str(folder), environments, ("4",), **settings)))


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
    assert preference_pairs([with_return(row, *way) for way in ways], 0.5) == [second], "0.2 is too little, 1 is enough"
    with pytest.raises(UsageError, match="with returns that differ by 2 or more; got none"):
        preference_pairs([with_return(row, *way) for way in ways], 2.0)


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


def test_labels_of_the_expert_are_not_the_players_answers_where_each_row_ends_with_one(tmp_path):
    environments = ("BabyAIText-v0?task=goto&max_episode_steps=12",)
    settings = {"model": "random", "labels": "expert", "strategy": "zero_shot", "history": 0, "threshold": -1.0}
    rows = collect(CollectConfig(str(tmp_path), environments, ("4",), **settings))
    assert len(rows) > 8 and all(row.labels[-1] == row.messages[-1]["content"] for row in rows)
    for own in (False, None):  # None: of an earlier release, where the last message says nothing of what was played
        with pytest.raises(UsageError, match=r"expected the player's own answers.*--labels own"):
            preference_pairs([dataclasses.replace(row, own_labels=own, episode_return=i) for i, row in enumerate(rows)])


def test_rows_that_do_not_say_whose_their_labels_are_have_answers_before_the_last_message(noisy_rows):
    ways = [(["a", "c"], 1.0), (["b", "d"], 0.0)]
    rows = [dataclasses.replace(with_return(noisy_rows[0], *way), own_labels=None) for way in ways]
    (pair,) = preference_pairs(rows)
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("a", "b")


def test_pairs_of_two_datasets_are_written_for_preference_trainers(tmp_path):
    rows = [played(tmp_path / str(seed), seed) for seed in (0, 1)]
    for number, some in enumerate(rows):
        moved = [dataclasses.replace(row, episode_return=row.episode_return + number) for row in some]
        write_rows(moved, tmp_path / f"rows-{number}")
    file = tmp_path / "pairs.jsonl"
    said = run(ExportConfig(format="trl-dpo", data=(str(tmp_path / "rows-0"), str(tmp_path / "rows-1")), file=str(file)))
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    assert said == f"{len(pairs)} pairs: {file}" and pairs
    for pair in pairs:
        assert pair["chosen"] != pair["rejected"] and pair["prompt"][-1]["role"] == "user"
