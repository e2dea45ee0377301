"""Bar plots: means with standard errors, and no plot of nothing."""

import dataclasses

from gym_text_policies.report.bar_plots import MEASURES, plots
from gym_text_policies.report.runs import read_runs


def test_bars_lie_within_the_plot_and_a_policy_of_errors_has_none(run):
    variants = read_runs([run]).variants
    drawn, empty = plots(variants)
    assert {plot.name for plot in drawn} | set(empty) == {measure.name for measure in MEASURES}
    assert "cost, US dollars" in empty and "tokens in" not in empty
    success = next(plot for plot in drawn if plot.name == "success rate")
    assert {bar.policy for bar in success.bars} == {variant.policy for variant in variants} - {"forward"}
    gold = next(bar for bar in success.bars if bar.policy == "gold (expert)")
    assert (gold.left, gold.width, gold.text) == (0, 100, "1.00 ± 0.00")
    for plot in drawn:
        for bar in plot.bars:
            assert bar.left >= 0 and bar.left + bar.width <= 100.01
            assert bar.whisker is None or 0 <= bar.whisker[0] <= bar.whisker[1] <= 100


def test_the_zero_line_is_within_the_plot_of_negative_returns(run):
    variant = next(variant for variant in read_runs([run]).variants if variant.policy == "gold (expert)")
    losses = tuple(dataclasses.replace(summary, total_reward=-2.0) for summary in variant.episodes)
    (returns,) = (plot for plot in plots([dataclasses.replace(variant, episodes=losses)])[0] if plot.name == "return")
    assert returns.zero == 100 and (returns.low, returns.high) == ("-2.00", "0.00")
    assert (returns.bars[0].left, returns.bars[0].width) == (0, 100)
