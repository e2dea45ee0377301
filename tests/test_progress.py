"""The line that shows how a run goes on."""

import dataclasses
import io
import re
import sys
from contextlib import redirect_stderr

import pytest

from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.experiments.play_missing import play_missing
from gym_text_policies.experiments.progress import Pace, ProgressBar
from gym_text_policies.experiments.series import Series
from gym_text_policies.policies.config import PolicyConfig

pytest.importorskip("tqdm")
GOTO = "BabyAIText-v0?task=goto&max_episode_steps=50"


class Unread(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def gold(engine, seeds):
    return Series.of("gold", EpisodeJob(GOTO, {}, PolicyConfig("gold")), engine, seeds)


def episode(length, *, won):
    step = Step({}, Decision("go"), float(won), won, not won, won, False, float(won), True)
    return Episode("key", {}, {}, 0, (step,) * length)


def test_what_is_left_is_right_within_reason_while_long_episodes_run_on():
    """Of 30 episodes at most 50 steps long, half are won after 5, and the others go on to the limit, all at once."""
    pace = Pace(30, 50)
    assert pace.left == 30 * 50
    for number in range(1, 51):
        pace.turns(30 if number <= 5 else 15)
        if number == 5:
            for _ in range(15):
                pace.end(5)
        truth = 15 * (50 - number)
        assert pace.left >= 15
        assert number < 10 or truth / 3 <= pace.left <= 3 * truth + 15
    for _ in range(15):
        pace.end(50)
    assert pace.left == 0 and pace.played == 15 * 5 + 15 * 50


def test_without_a_limit_and_with_turns_that_come_late_something_is_left_as_long_as_an_episode_is():
    pace = Pace(10, None)
    for number in range(10):
        assert pace.left >= 10 - number
        pace.end(7)
    assert pace.left == 0 and pace.played == 70


def test_no_rate_of_success_and_no_end_is_shown_before_all_have_ended(tmp_path):
    with LocalEngine() as engine:
        rows = [gold(engine, range(30))]
    with redirect_stderr(io.StringIO()) as shown, ProgressBar().showing(rows, EpisodeStore(tmp_path), 30) as bar:
        bar._bar.mininterval = 0
        for _ in range(5):
            bar.turns(30)
        for _ in range(15):
            bar.ended(episode(5, won=True))
        for _ in range(45):
            bar.turns(15)
        running = shown.getvalue()
        for _ in range(15):
            bar.ended(episode(50, won=False))
    assert "15/30 episodes, 15 won [" in running
    assert "success" not in running and "30/30" not in running and "00:00 left" not in running
    last = re.split(r"[\n\r]", shown.getvalue().rstrip())[-1]
    assert "30/30 episodes, success 50%" in last and "left" not in last


def test_no_success_is_shown_where_nobody_says_what_it_is(tmp_path):
    played = episode(5, won=False)
    untold = dataclasses.replace(played, steps=tuple(dataclasses.replace(step, success=None) for step in played.steps))
    with LocalEngine() as engine:
        rows = [gold(engine, range(2))]
    for one, told in ((untold, False), (played, True)):
        with redirect_stderr(io.StringIO()) as shown, ProgressBar().showing(rows, EpisodeStore(tmp_path), 2) as bar:
            for _ in range(2):
                bar.turns(5)
                bar.ended(one)
        assert "2/2 episodes" in shown.getvalue() and ("success" in shown.getvalue()) == told


def test_a_run_that_goes_on_counts_what_is_there(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, [gold(engine, range(2))], engine)
        with redirect_stderr(io.StringIO()) as shown:
            play_missing(store, [gold(engine, range(5))], engine, ProgressBar())
    assert "gold: 2/5 episodes" in shown.getvalue() and "gold: 5/5 episodes, success 100%" in shown.getvalue()


@pytest.mark.parametrize("kind", ["none", "closed", "nobody reads"])
def test_a_run_goes_on_without_stderr(tmp_path, monkeypatch, kind):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", {"none": None, "closed": closed, "nobody reads": Unread()}[kind])
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, [gold(engine, range(3))], engine, ProgressBar(lines=True))
        assert len(store) == 3
