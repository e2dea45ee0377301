"""The episodes to step through."""

from gym_text_policies.report import write_report
from gym_text_policies.report.runs import read_runs
from gym_text_policies.report.viewer import choose


def test_the_choice_balances_policies_and_outcomes(run):
    variants = read_runs([run]).variants
    assert {variant.policy for variant, _ in choose(variants, 5)} == {variant.policy for variant in variants}
    chance = next(variant for variant in variants if variant.policy == "random")
    outcomes = {episode.outcome for episode in chance.episodes}
    assert {episode.outcome for _, episode in choose([chance], len(outcomes))} == outcomes
    assert len(choose(variants, 7)) == 7 and len(choose(variants, 200)) == 30


def test_what_does_not_fit_is_left_out(run, tmp_path, monkeypatch):
    monkeypatch.setattr("gym_text_policies.report.viewer.TEXT_BUDGET", 20_000)
    text = write_report([run], tmp_path / "r.html", pictures=False).read_text()
    assert 0 < text.count('id="episode-') < 30
