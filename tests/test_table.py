"""The table: rows of figures with intervals, and their Markdown."""

import pytest

from gym_text_policies.report.table import HEADER, Summary, markdown, row, t_interval, wilson_interval


def summary(seed, outcome, reward, error=None):
    return Summary(str(seed), seed, outcome, error, reward, 4, 1, 10, 2, 0.5, 0.0)


def test_an_episode_with_an_error_counts_in_no_mean():
    figures = row("E", "p", [summary(0, "won", 1.0), summary(1, "lost", 0.0), summary(2, "error", 9.0, "broken")])
    assert (figures["episodes"], figures["won"], figures["lost"], figures["error"]) == (3, 1, 1, 1)
    assert (figures["return"], figures["success"], figures["length"]) == (0.5, 0.5, 4)
    assert (figures["invalid"], figures["seconds_per_decision"]) == (0.25, 0.125)
    nothing = row("E", "p", [summary(2, "error", 9.0, "broken")])
    assert nothing["return"] is nothing["success"] is nothing["success_interval"] is None


def test_intervals_are_students_and_wilsons():
    assert t_interval([1.0]) is None and wilson_interval(0, 0) is None
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)
    assert wilson_interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_markdown_is_aligned_and_a_bar_in_a_name_is_escaped():
    lines = markdown([row("E", "a|b", [summary(0, "won", 1.0)]), row("E", "c", [])]).splitlines()
    assert len({len(line) for line in lines}) == 1 and len(lines) == 4
    assert "a\\|b" in lines[2] and lines[3].count(" - ") >= 5
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == list(HEADER)
