"""Stored episodes as tables: what is written is what the store has."""

import dataclasses
import json

import pandas

from gym_text_policies import EpisodeStore
from gym_text_policies.environments import parse_environment
from gym_text_policies.report.runs import read_runs
from gym_text_policies.store import COLUMNS


def test_each_episode_and_each_decision_has_a_row_in_the_order_of_the_store(run):
    store = EpisodeStore(run)
    episodes = list(store)
    assert episodes == list(store.episodes()) and len(episodes) == len(store)
    frame = store.to_pandas()
    for name in ("key", "seed", "outcome", "length", "tokens_in", "invalid"):
        assert frame[name].tolist() == [getattr(episode, name) for episode in episodes], name
    assert frame["return"].tolist() == [episode.total_reward for episode in episodes]
    table = {figures["policy"]: figures for figures in (variant.row for variant in read_runs([run]).variants)}
    for policy in ("random", "gold"):
        of_policy = frame[frame["policy"] == policy]["won"]
        assert of_policy.mean() == next(row["success"] for name, row in table.items() if name.startswith(policy)), policy
    assert frame["error"].notna().sum() == sum(episode.error is not None for episode in episodes) > 0
    assert json.loads(frame["policy_config"][0]) == episodes[0].policy and frame["policy"][0] == "random"
    arguments = {"fold": "test", "task": "goto", "max_episode_steps": 20}
    assert parse_environment(frame["environment"][0]) == ("BabyAIText-v0", arguments)
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


def test_a_level_that_is_not_known_and_half_a_character_do_no_harm(run, tmp_path):
    first = next(iter(EpisodeStore(run)))
    decision = dataclasses.replace(first.steps[0].decision, completion='a \ud83d b\r\n,"c"')
    step = dataclasses.replace(first.steps[0], decision=decision, success=None)
    with EpisodeStore(tmp_path / "run") as store:
        assert len(store.to_pandas()) == 0 and list(store.to_pandas("decisions")) == list(COLUMNS["decisions"])
        store.append(dataclasses.replace(first, steps=(step,), level=None))
        (row,) = store.to_pandas("decisions").to_dict("records")
        assert pandas.isna(store.to_pandas()["won"][0]), "this environment does not say"
    assert row["completion"] == 'a ? b\r\n,"c"' and pandas.isna(row["level"]) and pandas.isna(row["success"])
