"""Rows as typed questions."""

import dataclasses
import json
from collections import Counter

import gymnasium as gym
import pytest

from gym_text import UsageError
from gym_text.errors import PolicyError
from gym_text_policies import cli, load_policy, rollout
from gym_text_policies.data.collect import CollectConfig
from gym_text_policies.data.dataset import read_rows, write_rows
from gym_text_policies.data.questions import typed_questions
from gym_text_policies.data.rows import rows_of
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import LABELS, Prompt

NAMES = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle"]


def test_the_label_is_the_experts_action_among_those_that_were_possible(tmp_path, noisy_rows):
    write_rows(noisy_rows, tmp_path / "rows")
    assert cli.main(["export", "--format", "systemone", "--data", str(tmp_path / "rows"), "--file", str(tmp_path / "file")]) == 0
    records = [json.loads(line) for line in (tmp_path / "file").read_text("utf-8").splitlines()]
    labels = [label for row in noisy_rows for label in row.labels if label]
    assert [record["questions"]["action"]["label"] for record in records] == labels
    assert all(list(record["questions"]["action"]["criteria"]) == NAMES for record in records)
    assert [record["state"] for record in records] == [[*example.messages] for row in noisy_rows for example in row.examples()]
    unlisted = [dataclasses.replace(row, options=()) for row in noisy_rows]
    with pytest.raises(UsageError, match="each among 2 to 255 possible actions; got none"):
        typed_questions(unlisted)


def test_what_a_search_has_found_is_a_probability_for_each_action(tmp_path):
    env = gym.make("BabyAIText-v0", fold="train", max_episode_steps=2)
    (episode,) = rollout(lambda: env, load_policy("scripted:go forward", env), [3])
    found = {"visits": {"go forward": 6, "turn left": 2, "drop": 1}, "values": {"go forward": 0.5, "turn left": 0.0}}
    first, second = episode.steps
    searched = dataclasses.replace(first, decision=dataclasses.replace(first.decision, completion=None, **found))
    second = dataclasses.replace(second, decision=dataclasses.replace(second.decision, completion=None))
    write_rows(rows_of(dataclasses.replace(episode, steps=(searched, second)), text_spec(env), TRAINED, "own"), tmp_path / "rows")
    by_search, played = typed_questions(read_rows(tmp_path / "rows"))
    assert by_search["gold"] == {"action": {"probabilities": dict(zip(NAMES, (0.25, 0, 0.75, 0, 0, 0), strict=True))}}
    assert "label" not in by_search["questions"]["action"] and played["questions"]["action"]["label"] == "go forward"


def test_actions_that_are_equally_good_by_the_experts_plans_are_equally_probable(tmp_path):
    played = ["collect", "--environments", "BabyAIText-v0?task=pickup", "--episodes", "2", "--folder", str(tmp_path)]
    assert cli.main([*played, "--noise", "0.3", "--best-actions"]) == 0
    assert cli.main(["export", "--format", "systemone", "--data", str(tmp_path / "rows"), "--file", str(tmp_path / "file")]) == 0
    records = [json.loads(line) for line in (tmp_path / "file").read_text("utf-8").splitlines()]
    labels = [label for row in read_rows(tmp_path / "rows") for label in row.labels if label]
    counts, among = Counter(), 0
    for record, label in zip(records, labels, strict=True):
        best = {name: share for name, share in record["gold"]["action"]["probabilities"].items() if share}
        assert list(record["gold"]["action"]["probabilities"]) == NAMES and set(best.values()) == {1 / len(best)}
        counts[len(best)] += 1
        among += label in best
    assert counts[1] > 0 and max(counts) > 1 and among > 0.8 * len(labels), counts
    with pytest.raises(UsageError, match=r"^best_actions: expected labels='expert'; got 'own'\. Add --labels expert"):
        CollectConfig(best_actions=True)


def test_more_actions_than_labels_end_in_an_error_that_names_another_strategy():
    env = gym.make("CookingWorldText-v0", fold="train")
    obs, _ = env.reset(seed=0)
    obs["valid_actions"] = tuple(f"take {number}" for number in range(len(LABELS) + 1))
    with pytest.raises(PolicyError, match=r"at most 62 actions, a label for each; got 63\. Take 'unlisted'"):
        Prompt("labels").render(text_spec(env), obs)
    with pytest.raises(UsageError, match="strategy 'labels': expected mode='choose'"):
        load_policy("scripted:A", env, strategy="labels", mode="text")
