"""What probabilities are worth: figures that scikit-learn agrees with, and answers that do or do not depend on an order."""

import json
import re

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from gym_text_policies import cli
from gym_text_policies.records import Decision, Episode, Step
from gym_text_policies.report.calibration import bins, figures, judged
from gym_text_policies.report.figures import Summary, row

NAMES = ("east", "north", "west")


def episode(shares, gold, won):
    """Return an episode with the probabilities of `NAMES` and the expert's action at each step; None where it is not known."""
    end = {"truncated": False, "failure": False, "score": 0.0, "action_was_valid": True}
    steps = [
        Step(
            {},
            Decision("east", probabilities=known, seconds=i),
            0.0,
            terminated=i == len(shares) - 1,
            success=won,
            gold_action=expert,
            **end,
        )
        for i, (known, expert) in enumerate(zip(shares, gold, strict=True))
    ]
    return Episode("key", {"id": "E"}, {}, 0, tuple(steps))


def test_the_figures_are_those_of_scikit_learn_and_of_equal_probabilities():
    rng = np.random.default_rng(0)
    shares, right = rng.dirichlet([0.5] * 3, size=200), rng.integers(3, size=200)
    known = [dict(zip(NAMES, map(float, line), strict=True)) for line in shares]
    gold = [NAMES[i] for i in right]
    both = [Summary.of(episode(known[:80], gold[:80], True)), Summary.of(episode(known[80:], gold[80:], False))]
    found = figures(both)
    assert found["judged"] == 200
    for name, part in (("brier", slice(None)), ("brier_won", slice(80)), ("brier_not_won", slice(80, None))):
        assert found[name] == pytest.approx(brier_score_loss(right[part], shares[part], labels=range(3), scale_by_half=False))
    assert found["log_loss"] == pytest.approx(log_loss(right, shares, labels=range(3)))
    assert (found["brier_uniform"], found["log_loss_uniform"]) == pytest.approx((2 / 3, np.log(3)))
    agrees, top, _ = zip(*((share, mean, count) for mean, share, count in bins([*both[0].judged, *both[1].judged])), strict=True)
    expected = calibration_curve(shares.argmax(axis=1) == right, shares.max(axis=1), n_bins=10)
    np.testing.assert_allclose((agrees, top), expected)
    assert (found["seconds_median"], found["seconds_95"]) == pytest.approx(
        tuple(np.percentile([*range(80), *range(120)], [50, 95]))
    )


def test_a_decision_without_probabilities_an_expert_or_a_choice_is_not_judged():
    sure = {"east": 1.0, "north": 0.0, "west": 0.0}
    shares, gold = [sure, sure, None, {"east": 1.0}, sure], ["east", None, "east", "east", "west"]
    assert [one.agrees for one in judged(episode(shares, gold, True))] == [True, False]
    found = row("E", "p", [episode(shares, gold, True)], measured={"same_choice": 0.5})
    assert found["brier"] == 1.0 and found["log_loss"] == pytest.approx(18.02, abs=0.01) and found["same_choice"] == 0.5
    assert figures([])["brier"] is figures([])["seconds_median"] is None


@pytest.fixture(scope="module")
def asked(tiny_model, tmp_path_factory):
    """Return the run folder of a model that is asked in two ways, each again in two orders, and what bench told."""
    folder = tmp_path_factory.mktemp("orders")
    ways = {
        name: {"model": tiny_model, "mode": "choose", "strategy": name, "probabilities": True} for name in ("unlisted", "zero_shot")
    }
    (folder / "rows.yaml").write_text(json.dumps(ways))
    played = ("--plan", str(folder / "rows.yaml"), "--environments", "SokobanText-v0?max_episode_steps=4", "--llm-episodes", "3")
    run = folder / "run"
    assert cli.main(["bench", *played, "--folder", str(run), "--baselines", "none", "--orders", "2", "--best-actions"]) == 0
    return run


def test_only_a_prompt_that_lists_the_options_lets_their_order_count(asked, capsys):
    rows = {row["policy"]: row for row in json.loads((asked / "table.json").read_text())["rows"]}
    assert rows["unlisted"]["same_choice"] == 1.0 and rows["unlisted"]["variation"] == pytest.approx(0, abs=1e-6)
    assert rows["zero_shot"]["variation"] > 1e-4
    assert rows["unlisted"]["judged"] > 0 and rows["unlisted"]["brier"] == pytest.approx(rows["unlisted"]["brier_uniform"], abs=0.3)
    for told in rows.values():  # in Sokoban two actions are seldom equally good
        assert told["best_judged"] > 0 and told["best_brier"] == pytest.approx(told["best_brier_uniform"], abs=0.3)
    assert re.search(r"\| SokobanText-v0\S* \| unlisted +\| \d+ +\| 0\.", (asked / "table.md").read_text())


def test_report_and_compare_tell_the_same(asked, tmp_path, capsys):
    assert cli.main(["compare", "unlisted", "zero_shot", "--folder", str(asked)]) == 0
    told = capsys.readouterr().out
    assert "calibration error" in told and re.search(r"\| unlisted .*\| 1\.00 +\| 0\.000 ", told)
    assert cli.main(["report", str(asked), "--file", str(tmp_path / "page.html"), "--no-pictures"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Its probabilities" in page and "A calibrated policy is on the diagonal" in page and "<td>0.000</td>" in page
