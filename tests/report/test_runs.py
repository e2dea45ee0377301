"""Run folders, read for the report."""

import json

from report_runs import make_env

from gym_text_policies import EpisodeStore, LLMPolicy, ScriptedBackend, rollout
from gym_text_policies.policy import text_spec
from gym_text_policies.report.runs import read_runs


def test_policies_of_one_name_are_told_apart(tmp_path):
    store = EpisodeStore(tmp_path)
    with make_env() as env:
        for history in (0, 2):
            policy = LLMPolicy(ScriptedBackend(["turn left"]), text_spec(env), history=history)
            for episode in rollout(make_env, policy, range(1)):
                store.append(episode)
    store.close()
    variants = read_runs([tmp_path]).variants
    assert [variant.policy for variant in variants] == ["scripted, text, history=0", "scripted, text, history=2"]
    assert len({variant.environment for variant in variants}) == 1
    labels = {variants[1].episodes[0].key: "with history"}  # as the benchmark's table calls it
    (tmp_path / "table.json").write_text(json.dumps({"labels": labels}))
    assert [variant.policy for variant in read_runs([tmp_path]).variants] == ["scripted, text", "with history"]
