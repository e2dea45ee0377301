"""The plots of the page: means with standard errors, and nothing of a policy that has only errors."""

import base64
import dataclasses

import pytest

from gym_text_policies.report.plots import MEASURES, bars, means_of
from gym_text_policies.report.runs import read_runs


def test_bars_are_means_with_standard_errors_and_a_policy_of_errors_has_none(run):
    variants = read_runs([run]).variants
    places = {variant.policy: place for place, variant in enumerate(variants)}
    means = {name: means_of(variants, measure) for name, (_, measure) in MEASURES.items()}
    assert means["success rate"][places["gold (expert)"]] == (1, 0) and means["cost, US dollars"] == {} != means["tokens in"]
    assert {*places.values()} - {*means["return"]} == {places["forward"]}
    episodes = [dataclasses.replace(episode, total_reward=-float(i % 2)) for i, episode in enumerate(variants[0].episodes)]
    changed = dataclasses.replace(variants[0], episodes=tuple(episodes))
    assert means_of([changed], "total_reward")[0] == (-0.5, pytest.approx((0.25 * 6 / 5 / 6) ** 0.5))
    shown = base64.b64decode(bars(variants).partition("base64,")[2]).decode()
    assert "1.00 ± 0.00" in shown and "success rate" in shown and "US dollars" not in shown
    assert bars([variants[places["forward"]]]) is None, "all of its episodes are errors"
