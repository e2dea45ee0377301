"""Stored episodes as tables: what is written is what the store has."""

import dataclasses
import json
import shutil

import pandas
import pytest

from gym_text_policies import EpisodeStore, cli
from gym_text_policies.environments import parse_environment
from gym_text_policies.flat_rows import COLUMNS

READERS = {"csv": pandas.read_csv, "parquet": pandas.read_parquet}


@pytest.mark.parametrize("rows", COLUMNS)
@pytest.mark.parametrize("form", READERS)
def test_a_table_that_is_read_again_is_what_the_store_has(run, tmp_path, form, rows):
    file = tmp_path / "new" / f"table.{form}"
    assert cli.main(["export", "--format", form, "--runs", str(run), "--rows", rows, "--file", str(file)]) == 0
    frame, read = EpisodeStore(run).to_pandas(rows), READERS[form](file)
    assert list(read) == list(COLUMNS[rows]) and len(frame) > 20
    pandas.testing.assert_frame_equal(read.astype(frame.dtypes), frame, check_exact=form == "parquet", rtol=1e-15)


def test_each_episode_and_each_decision_has_a_row_in_the_order_of_the_store(run):
    store = EpisodeStore(run)
    episodes = list(store)
    assert episodes == list(store.episodes()) and len(episodes) == len(store)
    frame = store.to_pandas()
    for name in ("key", "seed", "outcome", "total_reward", "length", "tokens_in", "invalid"):
        assert frame[name].tolist() == [getattr(episode, name) for episode in episodes], name
    assert frame["error"].notna().sum() == sum(episode.error is not None for episode in episodes) > 0
    assert json.loads(frame["policy_config"][0]) == episodes[0].policy and frame["policy"][0] == "random"
    assert parse_environment(frame["environment"][0]) == ("BabyAIText-v0", {"fold": "test", "task": "goto"})
    decisions = store.to_pandas("decisions")
    steps = [step for episode in episodes for step in episode.steps]
    assert decisions["action"].tolist() == [step.decision.action for step in steps]
    assert decisions["reward"].tolist() == [step.reward for step in steps]
    assert decisions["step"].tolist() == [number for episode in episodes for number in range(episode.length)]
    known = [step.decision for step in steps if step.decision.probabilities]
    told = decisions[decisions["probabilities"].notna()]
    assert [json.loads(text) for text in told["probabilities"]] == [decision.probabilities for decision in known]
    assert told["probability"].tolist() == [decision.probabilities[decision.action] for decision in known] and len(known) > 20
    assert json.loads(decisions["observation"].iloc[-1]) == steps[-1].observation


def test_an_episode_in_two_folders_has_one_row_with_the_record_of_the_last_one(run, tmp_path, caplog):
    copy, file = tmp_path / "copied", tmp_path / "table.csv"
    shutil.copytree(run, copy)
    with EpisodeStore(copy) as store:
        first = next(iter(store))
        store.append(dataclasses.replace(first, error="the server is gone"))
        store.append(dataclasses.replace(first, key="0" * 32, seed=99))
    assert cli.main(["export", "--format", "csv", "--runs", str(run), str(copy), "--file", str(file)]) == 0
    rows = pandas.read_csv(file).set_index("key")
    assert len(rows) == len(store) and rows.index.is_unique and rows.loc[first.key, "error"] == "the server is gone"
    assert f"runs: {len(store) - 1} episodes are in a later folder, too" in caplog.text


def test_a_level_that_is_not_known_and_half_a_character_do_no_harm(run, tmp_path):
    first = next(iter(EpisodeStore(run)))
    decision = dataclasses.replace(first.steps[0].decision, completion='a \ud83d b\r\n,"c"')
    step = dataclasses.replace(first.steps[0], decision=decision, success=None)
    with EpisodeStore(tmp_path / "run") as store:
        assert len(store.to_pandas()) == 0 and list(store.to_pandas("decisions")) == list(COLUMNS["decisions"])
        store.append(dataclasses.replace(first, steps=(step,), level=None))
    for form, read in READERS.items():
        file = tmp_path / f"table.{form}"
        command = ["export", "--format", form, "--rows", "decisions", "--runs", str(tmp_path / "run"), "--file", str(file)]
        assert cli.main(command) == 0
        (row,) = read(file).to_dict("records")
        assert row["completion"] == 'a ? b\r\n,"c"' and pandas.isna(row["level"]) and pandas.isna(row["success"])
