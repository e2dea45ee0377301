"""The line that shows how a run goes on."""

import dataclasses
import heapq
import io
import re
import sys
from collections import deque
from contextlib import redirect_stderr

import pytest

from gym_text_policies import Decision, Episode, EpisodeStore, Step
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.engines.work import Work
from gym_text_policies.experiments.pace import Lengths, Pace
from gym_text_policies.experiments.play_missing import play_missing
from gym_text_policies.experiments.progress import ProgressBar
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
    lengths = Lengths(30, 50)
    assert lengths.left(30) == 30 * 50
    for number in range(1, 51):
        lengths.turns(30 if number <= 5 else 15)
        if number == 5:
            for _ in range(15):
                lengths.end(5)
        truth = 15 * (50 - number)
        assert lengths.left(30) >= 15
        assert number < 10 or truth / 3 <= lengths.left(30) <= 3 * truth + 15
    for _ in range(15):
        lengths.end(50)
    assert lengths.left(30) == 0 and lengths.played == 15 * 5 + 15 * 50


def test_a_limit_that_episodes_do_not_reach_makes_the_estimate_no_longer():
    """Of ten episodes all end after about 70 steps, eight at once, where the limit is 1,000 and others took 90."""
    lengths = Lengths(10, 1000, usual=90)
    for number in range(1, 71):
        lengths.turns(8)
        truth = 10 * 70 - 8 * number
        assert lengths.left(8) <= 6 * truth + 100
    for _ in range(8):
        lengths.end(70)
    assert lengths.left(8) == 2 * 70


def test_where_the_environment_names_no_limit_the_longest_episode_so_far_is_taken_for_it():
    lengths = Lengths(4, None, usual=20, longest=64)
    for number in range(1, 65):
        lengths.turns(4)
        assert number < 30 or lengths.left(4) <= 3 * 4 * (64 - number) + 4


def test_without_a_limit_and_with_turns_that_come_late_something_is_left_as_long_as_an_episode_is():
    lengths = Lengths(10, None)
    for number in range(10):
        assert lengths.left(1) >= 10 - number
        lengths.end(7)
    assert lengths.left(1) == 0 and lengths.played == 70


def test_an_episode_that_ended_before_its_first_step_is_counted():
    lengths = Lengths(3, 64, usual=50, longest=50)
    lengths.end(0)
    assert lengths.left(8) == 2


def played(pace, clock, number, count, length, seconds):
    """Play a row: `count` episodes of `length` steps, eight at once, each step in `seconds`; yield what is estimated as left."""
    clock[0] += 2.0
    for first in range(0, count, 8):
        at_once = min(8, count - first)
        for _ in range(length):
            clock[0] += at_once * seconds
            pace.turns(number, 0, at_once)
            yield pace.left
        for _ in range(at_once):
            pace.end(number, length)


def test_the_time_left_of_a_whole_run_is_true_within_a_factor_of_two_once_a_third_has_passed():
    """Three policies in three environments: one without a model, one in text, one in choose, which is five times as fast."""
    policies = {"random": (100, 1e-5), "scripted:a": (3, 0.7), "scripted:b": (10, 0.14)}
    environments = {f"BabyAIText-v0?task={task}": steps for task, steps in (("goto", 50), ("pickup", 60), ("open", 100))}
    with LocalEngine() as engine:
        jobs = [
            (
                Series.of(f"{name} {policy}", EpisodeJob(name, {}, PolicyConfig(policy, **mode)), engine, range(count)),
                steps,
                seconds,
            )
            for policy, (count, seconds) in policies.items()
            for name, steps in environments.items()
            for mode in [{"mode": "choose" if policy[-1] == "b" else "text"} if "scripted" in policy else {}]
        ]
    clock = [0.0]
    pace = Pace([(series, series.seeds) for series, *_ in jobs], lambda: clock[0])
    told = []
    for number, (series, steps, seconds) in enumerate(jobs):
        told += [(clock[0], left) for left in played(pace, clock, number, len(series.seeds), steps, seconds)]
    late = [(clock[0] - now, left) for now, left in told if clock[0] / 3 < now < 0.9 * clock[0]]
    assert len(late) > 300 and all(truth / 2 <= left <= 2 * truth for truth, left in late)


CHOSEN_AND_SAID = {  # environment -> steps of an episode; seconds of a step in choose and in text, as the panel's rows had them
    "BabyAIText-v0?task=goto": (26, 0.010, 0.13),
    "CookingWorldText-v0": (48, 0.026, 2.45),
    "CoinCollectorText-v0": (43, 0.012, 0.95),
    "MapReaderText-v0?max_episode_steps=26": (26, 0.051, 1.70),
    "BabyAIText-v0?task=putnext&max_episode_steps=36": (36, 0.014, 0.22),
    "TextCraftText-v0?depth=2&max_episode_steps=20": (19, 0.084, 1.20),
}


def test_the_time_left_is_true_within_a_factor_of_two_where_rows_differ_a_hundredfold():
    """Eight episodes in each of six environments, first in choose, and then in text."""
    with LocalEngine() as engine:
        jobs = [
            (
                Series.of(f"{name} {mode}", EpisodeJob(name, {}, PolicyConfig("scripted:a", mode=mode)), engine, range(8)),
                steps,
                rate,
            )
            for number, mode in enumerate(("choose", "text"))
            for name, (steps, *rates) in CHOSEN_AND_SAID.items()
            for rate in [rates[number]]
        ]
    clock = [0.0]
    pace = Pace([(series, series.seeds) for series, *_ in jobs], lambda: clock[0])
    told = [
        (clock[0], left) for number, (_, steps, rate) in enumerate(jobs) for left in played(pace, clock, number, 8, steps, rate)
    ]
    late = [(clock[0] - now, left) for now, left in told if clock[0] / 10 < now < 0.9 * clock[0]]
    assert len(late) > 100 and all(truth / 2 <= left <= 2 * truth for truth, left in late)


CHAT, TENTHS = {"mode": "choose", "strategy": "chat", "history": "all"}, {"mode": "choose", "strategy": "tenths"}
STAGES = {  # environment -> for each row of the first table: model, how it is asked, episodes, steps of one, seconds of a step
    "CookingWorldText-v0": (
        ("random", {}, 100, 45, 1e-4),
        ("scripted:base", {"mode": "text"}, 1, 50, 1.86),
        ("scripted:base", {"mode": "choose"}, 4, 50, 0.127),
        ("scripted:sft", CHAT, 6, 19, 0.95),
        ("scripted:plans", CHAT, 6, 16, 0.94),
        ("gold", {}, 100, 17, 6e-5),
    ),
    "BabyAIText-v0?task=pickup": (
        ("random", {}, 100, 59, 6e-5),
        ("scripted:base", {"mode": "text"}, 2, 64, 0.13),
        ("scripted:base", {"mode": "choose"}, 4, 64, 0.005),
        ("scripted:sft", CHAT, 12, 6, 0.27),
        ("scripted:ppo", CHAT, 12, 7, 0.27),
        ("gold", {}, 100, 6, 5e-5),
    ),
    "LunarLanderLLM-v2": (
        ("random", {}, 100, 90, 6e-5),
        ("scripted:base", TENTHS, 4, 69, 0.081),
        ("scripted:sft", TENTHS, 4, 221, 0.077),
        ("scripted:ppo", TENTHS, 4, 221, 0.071),
        ("gold", {}, 100, 230, 5e-5),
    ),
}


def process(state, rows, processes, loaded=2.0):
    """Play what `state` hands out to one of several; yield the seconds until it tells of turns, the row, the turns, and ends."""
    models = set()
    while taken := state.take(processes):
        number, seeds = taken
        model, _, steps, seconds = rows[number]
        for first in range(0, len(seeds), 8):
            lengths = [round(steps * (0.7 + 0.1 * (seed % 7))) for seed in seeds[first : first + 8]]
            for step in range(1, max(lengths) + 1):
                at_once = sum(length >= step for length in lengths)
                new = loaded if model not in models and "scripted" in model else 0.0
                models.add(model)
                yield new + at_once * seconds, number, at_once, [length for length in lengths if length == step]


@pytest.mark.parametrize(("processes", "least"), [(1, 0.95), (2, 0.95), (4, 0.75)])
def test_the_time_left_is_mostly_true_within_a_factor_of_two_while_processes_play_different_rows(processes, least):
    """The first table's rows; those without a model first, as `play_missing` orders them.

    It is true in `least` of the time between a tenth and nine tenths of the run. The more processes, the sooner only the last rows
    are left, whose lengths nobody knows.
    """
    named = [(name, *row) for name, rows in STAGES.items() for row in rows]
    order = list(dict.fromkeys(row[1] for row in sorted(named, key=lambda row: "scripted" in row[1])))
    named.sort(key=lambda row: order.index(row[1]))
    with LocalEngine() as engine:
        jobs = [EpisodeJob(name, {}, PolicyConfig(model, **asked)) for name, model, asked, *_ in named]
        labels = [f"{name} {model} {asked}" for name, model, asked, *_ in named]
        series = [Series.of(label, job, engine, range(row[3])) for label, job, row in zip(labels, jobs, named, strict=True)]
    rows = [(model, *rest) for _, model, _, *rest in named]
    state = Work([one.job for one in series], [deque(one.seeds) for one in series])
    clock = [0.0]
    pace = Pace([(one, one.seeds) for one in series], lambda: clock[0])
    players = [process(state, rows, processes) for _ in range(processes)]
    coming, told = [], []
    for number, player in enumerate(players):
        event = next(player)
        heapq.heappush(coming, (event[0], number, event))
    while coming:
        clock[0], number, (_, row, turns, ends) = heapq.heappop(coming)
        pace.turns(row, number, turns)
        for length in ends:
            pace.end(row, length)
        told.append((clock[0], pace.left))
        if event := next(players[number], None):
            heapq.heappush(coming, (clock[0] + event[0], number, event))
    moments = [clock[0] * share / 100 for share in range(10, 91)]
    shown = [max(each for each in told if each[0] <= now)[1] for now in moments]
    right = [1 / 2 <= left / (clock[0] - now) <= 2 for now, left in zip(moments, shown, strict=True)]
    assert sum(right) / len(right) > least


def test_no_rate_of_success_and_no_end_is_shown_before_all_have_ended(tmp_path):
    with LocalEngine() as engine:
        rows = [gold(engine, range(30))]
    work = [(rows[0], range(30))]
    with redirect_stderr(io.StringIO()) as shown, ProgressBar().showing(work, EpisodeStore(tmp_path)) as bar:
        bar._bar.mininterval = 0
        for _ in range(5):
            bar.turns(0, 0, 30)
        for _ in range(15):
            bar.ended(0, episode(5, won=True))
        for _ in range(45):
            bar.turns(0, 0, 15)
        running = shown.getvalue()
        for _ in range(15):
            bar.ended(0, episode(50, won=False))
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
        work = [(rows[0], range(2))]
        with redirect_stderr(io.StringIO()) as shown, ProgressBar().showing(work, EpisodeStore(tmp_path)) as bar:
            for _ in range(2):
                bar.turns(0, 0, 5)
                bar.ended(0, one)
        assert "2/2 episodes" in shown.getvalue() and ("success" in shown.getvalue()) == told


def test_a_run_that_goes_on_counts_what_is_there(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, [gold(engine, range(2))], engine)
        with redirect_stderr(io.StringIO()) as shown:
            play_missing(store, [gold(engine, range(5))], engine, ProgressBar())
    assert "gold: 2/5 episodes" in shown.getvalue() and "gold: 5/5 episodes, success 100%" in shown.getvalue()


def test_a_run_of_several_rows_has_one_bar_that_names_the_row_and_counts_what_is_there(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, [gold(engine, range(2))], engine)
        chance = Series.of("chance", EpisodeJob(GOTO, {}, PolicyConfig("random")), engine, range(4))
        with redirect_stderr(io.StringIO()) as shown:
            play_missing(store, [gold(engine, range(5)), chance], engine, ProgressBar())
    lines = re.split(r"[\n\r]", shown.getvalue().strip())
    assert shown.getvalue().count("\n") == 1 and "2/9 episodes" in lines[0]
    assert re.search(r"^all rows: 9/9 episodes, \d\d:\d\d so far$", lines[-1].strip()), lines[-1]


def test_the_bar_names_the_first_row_that_has_not_ended(tmp_path):
    """Two rows share an episode, which is counted in both; a row waits from the end of the one before it on."""
    with LocalEngine() as engine:
        rows = [gold(engine, range(2)), gold(engine, range(3)), gold(engine, range(4))]
    rows = [dataclasses.replace(row, label=label) for row, label in zip(rows, "ABC", strict=True)]
    with redirect_stderr(io.StringIO()) as shown:
        work = [(rows[0], [0, 1]), (rows[1], [2]), (rows[2], [3])]
        with ProgressBar().showing(work, EpisodeStore(tmp_path)) as bar:
            bar._bar.mininterval = 0
            for number in (0, 0, 1, 2):
                bar.ended(number, episode(5, won=True))
    lines = [line.strip() for line in re.split(r"[\n\r]", shown.getvalue())]
    assert list(dict.fromkeys(line.partition(";")[0].partition(":")[0] for line in lines if line)) == [
        "A",
        "A 1/2, 1 won",
        "B 2/3, 0 won",
        "C 3/4, 0 won",
        "all rows",
    ]


@pytest.mark.parametrize("kind", ["none", "closed", "nobody reads"])
def test_a_run_goes_on_without_stderr(tmp_path, monkeypatch, kind):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", {"none": None, "closed": closed, "nobody reads": Unread()}[kind])
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, [gold(engine, range(3))], engine, ProgressBar(lines=True))
        assert len(store) == 3
