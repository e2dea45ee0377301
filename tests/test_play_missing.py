"""Runs play what their folder does not have, by one function."""

import dataclasses
import io
import json
import logging
import re
import sys
from collections import Counter
from contextlib import redirect_stderr

import gymnasium as gym
import pytest
from provider_server import Fault, ProviderServer, running

from gym_text.errors import BudgetError, RunError, UsageError
from gym_text_policies import EpisodeStore
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.experiments.play_missing import (
    check_some_played,
    kinds_of_errors,
    play_missing,
    stored,
)
from gym_text_policies.experiments.progress import Progress, ProgressBar
from gym_text_policies.experiments.series import Series
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.report.table import row

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=6"


class Noted(Progress):
    """Notes what it is told."""

    def __init__(self):
        self.begun, self.counted, self.ended_in, self.seeds = [], Counter(), [], []

    def showing(self, work, store):
        self.begun = [(row.label, len(seeds)) for row, seeds in work]
        return self

    def turns(self, number, process, count):
        self.counted[number] += count

    def ended(self, number, episode):
        self.ended_in.append(number)
        self.seeds.append(episode.seed)


class Spreading(LocalEngine):
    """Says that it plays several jobs at the same time."""

    spreads, jobs = True, ()

    def play(self, work, *, watch=None):
        self.jobs += (len(work),)
        return super().play(work, watch=watch)


def series(engine, *models, seeds=range(3)):
    return [Series.of(model, EpisodeJob(GOTO, {}, PolicyConfig(model)), engine, seeds) for model in models]


def test_what_is_stored_is_not_played_again(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        first, second = Noted(), Noted()
        rows = series(engine, "random", "gold")
        play_missing(store, rows, engine, first)
        assert (
            first.begun == [("random", 3), ("gold", 3)]
            and first.ended_in == [0, 0, 0, 1, 1, 1]
            and sorted(first.seeds) == [0, 0, 1, 1, 2, 2]
        )
        assert first.counted.total() == sum(episode.length for episode in store.episodes())
        more = series(engine, "random", "gold", seeds=range(1, 5))
        play_missing(store, more, engine, second)
        assert second.begun == [("random", 2), ("gold", 2)] and set(second.seeds) == {3, 4}
        assert [episode.seed for episode in stored(store, more[0])] == [1, 2, 3, 4]


def test_an_engine_that_spreads_its_work_gets_all_of_it_at_once(tmp_path):
    with Spreading() as engine, EpisodeStore(tmp_path, {}) as store:
        watch = Noted()
        play_missing(store, series(engine, "random", "gold"), engine, watch)
    assert engine.jobs == (2,) and watch.ended_in == [0, 0, 0, 1, 1, 1] and len(store) == 6
    assert dict(watch.counted) == {
        n: sum(e.length for e in store.episodes() if e.policy["kind"] == kind) for n, kind in ((0, "random"), (1, "gold"))
    }


def test_failures_are_said_and_tried_again_only_if_asked(tmp_path, caplog):
    job = EpisodeJob(GOTO, {}, PolicyConfig.of("scripted:nonsense", on_invalid="raise"))
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        failing = [Series.of("failing", job, engine, range(2))]
        for retry, played in ((False, [0, 1]), (False, []), (True, [0, 1])):
            watch = Noted()
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                play_missing(store, failing, engine, watch, retry_errors=retry)
            assert sorted(watch.seeds) == played
            assert "failing: 2 of 2 episodes ended in an error. The first of each kind:\n  2 x PolicyError: " in caplog.text
            assert "episodes.jsonl; retry_errors plays them again." in caplog.text


def test_a_bar_counts_episodes_and_writes_a_line_of_each(tmp_path):
    pytest.importorskip("tqdm")
    with redirect_stderr(io.StringIO()) as shown, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, series(engine, "gold"), engine, ProgressBar(lines=True))
    text = shown.getvalue()
    assert "gold: 3/3 episodes, success" in text
    assert all(f"seed {seed}: " in text for seed in range(3)) and text.count("won, return 0.") >= 1


def test_episodes_are_identified_as_rollout_identifies_them(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        (gold,) = series(engine, "gold")
        play_missing(store, [gold], engine)
        assert {episode.key for episode in store.episodes()} == set(gold.keys.values())
        limit = gym.make("BabyAIText-v0", task="goto", max_episode_steps=6).spec.max_episode_steps
        assert gold.limit == limit == 6


def answering(server, mode="text", **options):
    options = {"base_url": f"{server.url}/v1", "retries": 0} | options
    return PolicyConfig.of("openai:m", mode=mode, **options)


def rows_of(engine, *policies, seeds=range(2)):
    return [Series.of(f"row {i}", EpisodeJob(GOTO, {}, policy), engine, seeds) for i, policy in enumerate(policies)]


@pytest.mark.parametrize("mode", ["text", "json", "choose"])
def test_a_server_is_asked_once_for_each_mode_before_anything_is_played(tmp_path, mode):
    text = '{"action": "go forward"}' if mode == "json" else "go forward"
    with running(ProviderServer(text=text)) as server, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        rows = rows_of(engine, answering(server, mode), dataclasses.replace(answering(server, mode), history=2))
        play_missing(store, rows, engine)
        asked = [body for _, _, body in server.requests if "yes or no" in json.dumps(body)]
        assert len(asked) == 1 and server.requests[0][2] == asked[0] and server.refusal is None
        assert ("response_format" in asked[0]) == (mode == "json") and ("questions" in asked[0]) == (mode == "choose")
        played = len(server.requests)
        play_missing(store, rows, engine)
        assert len(server.requests) == played > 1  # all is stored: nobody is asked


@pytest.mark.parametrize("mode", ["text", "json", "choose"])
def test_a_server_that_cannot_do_what_a_row_needs_ends_the_run_before_anything_is_played(tmp_path, mode):
    with running(ProviderServer()) as server, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        server.faults.append(Fault(404, "no such model"))
        rows = rows_of(engine, PolicyConfig("random"), answering(server, mode))
        with pytest.raises(UsageError, match=rf"a server that answers in mode '{mode}'.*HTTP 404: no such model.*the model's name"):
            play_missing(store, rows, engine)
        assert len(store) == 0 and len(server.requests) == 1


def test_a_provider_without_decisions_is_refused_before_anything_is_played(tmp_path):
    policy = PolicyConfig.of("tensorzero:f", mode="choose", base_url="http://127.0.0.1:9")
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        with pytest.raises(UsageError, match="expected mode 'text' or 'json'"):
            play_missing(store, rows_of(engine, PolicyConfig("random"), policy), engine)
        assert len(store) == 0


def test_the_question_before_the_run_costs_as_any_other(tmp_path):
    with running(ProviderServer()) as server, LocalEngine() as engine, EpisodeStore(tmp_path / "run", {}) as store:
        with pytest.raises(BudgetError, match="max_total_tokens=9"):
            play_missing(store, rows_of(engine, answering(server, max_total_tokens=9)), engine)
        assert not server.requests
        for seeds in (range(1), range(1, 2)):
            policy = answering(server, "choose", cache=str(tmp_path / "answers"))
            play_missing(store, rows_of(engine, policy, seeds=seeds), engine)
        assert sum("yes or no" in json.dumps(body) for _, _, body in server.requests) == 1


def test_the_question_reaches_the_model_behind_other_policies(tmp_path):
    with running(ProviderServer()) as server, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        server.faults.append(Fault(404))
        policy = dataclasses.replace(answering(server), noise=0.1, action_rate=2)
        with pytest.raises(UsageError, match="HTTP 404"):
            play_missing(store, rows_of(engine, policy), engine)


def test_the_first_error_of_each_kind_is_told_with_its_count(tmp_path, caplog):
    with running(ProviderServer()) as server, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        rows = rows_of(engine, answering(server), seeds=range(5))
        server.faults += [None, *[Fault(404, f"no model at {i}") for i in (7, 8, 9)], Fault(401, "no key"), Fault(401, "no key")]
        play_missing(store, rows, engine)
    assert "row 0: 5 of 5 episodes ended in an error. The first of each kind:" in caplog.text
    assert "  3 x PolicyError: openai:m: HTTP 404: no model at " in caplog.text
    assert "  2 x PolicyError: openai:m: HTTP 401: no key" in caplog.text
    assert str(store.path) in caplog.text and caplog.text.count("no model") == 1


def test_kinds_of_errors_ignore_what_is_quoted_and_counted():
    errors = [
        *("PolicyError: answer: expected one of 'a', 'b'; got 'x'.", "PolicyError: answer: expected one of 'a'; got 'y'."),
        *("PolicyError: m: HTTP 404: no 3", "PolicyError: m: HTTP 500: no 3", "PolicyError: m: HTTP 404: no 17\nmore"),
    ]
    assert list(kinds_of_errors(errors).values()) == [(errors[0], 2), (errors[2], 2), (errors[3], 1)]


def test_a_run_of_errors_alone_is_an_error_and_one_good_episode_makes_it_none():
    with pytest.raises(RunError, match=r"runs/x: expected an episode without an error; all 3 ended in one"):
        check_some_played("runs/x", [{"error": 1, "episodes": 1}, {"error": 2, "episodes": 2}])
    check_some_played("runs/x", [{"error": 2, "episodes": 2}, {"error": 0, "episodes": 1}])
    check_some_played("runs/x", [])


def test_log_lines_stand_above_the_bar(tmp_path):
    pytest.importorskip("tqdm")
    logger, shown = logging.getLogger("gym_text_policies.test"), io.StringIO()

    class Talking(LocalEngine):
        def play(self, work, *, watch=None):
            for episode in super().play(work, watch=watch):
                logger.warning("again in 0.5 s")
                yield episode

    with redirect_stderr(shown):
        handler = logging.StreamHandler(sys.stderr)
        logging.getLogger().addHandler(handler)
        try:
            with Talking() as engine, EpisodeStore(tmp_path, {}) as store:
                play_missing(store, series(engine, "gold"), engine, ProgressBar())
        finally:
            logging.getLogger().removeHandler(handler)
    lines = re.split(r"[\n\r]", shown.getvalue())
    assert lines.count("again in 0.5 s") == 3


def test_seeds_beyond_a_folds_levels_are_said_before_they_are_played_and_count_once(tmp_path, caplog):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        job = EpisodeJob("CookingWorldText-v0?max_episode_steps=2", {"fold": "test"}, PolicyConfig("random"))
        once, again = (Series.of("cooking", job, engine, seeds) for seeds in ((0, 1), (0, 1, 1000, 2001)))
        play_missing(store, [once], engine)
        assert not caplog.text
        play_missing(store, [again], engine)
        assert "cooking: 4 seeds play 2 levels. A level that is played again is no new evidence" in caplog.text
        figures = row("cooking", "random", stored(store, again))
        assert (figures["episodes"], figures["levels"]) == (4, 2)
        assert figures["success_interval"] == row("cooking", "random", stored(store, once))["success_interval"]


def test_all_is_played_anew_if_asked_and_the_last_record_counts(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        rows = series(engine, "random", "gold")
        assert play_missing(store, rows, engine) == 0 and "found" not in caplog.text
        assert play_missing(store, rows, engine) == 6
        assert "random: 3 of 3 episodes are stored" in caplog.text and "gold: 3 of 3 episodes are stored" in caplog.text
        watch = Noted()
        assert play_missing(store, rows, engine, watch, fresh=True) == 0
        assert sorted(watch.seeds) == [0, 0, 1, 1, 2, 2] and len(store) == 6
        assert len(store.path.read_text("utf-8").splitlines()) == 12
        assert play_missing(store, series(engine, "random", seeds=range(5)), engine) == 3
        assert "random: 3 of 5 episodes are stored already" in caplog.text


def test_two_rows_of_one_policy_are_played_once(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        watch = Noted()
        play_missing(store, series(engine, "random", "random"), engine, watch)
        assert sorted(watch.seeds) == [0, 1, 2]


def test_the_rows_of_a_model_are_played_together(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        watch = Noted()
        there = [(policy, env) for env in (GOTO, f"{GOTO}&num_dists=1") for policy in ("random", "gold")]
        rows = [Series.of(f"{policy} {env}", EpisodeJob(env, {}, PolicyConfig(policy)), engine, [0]) for policy, env in there]
        play_missing(store, rows, engine, watch)
        assert [label.split()[0] for label, _ in watch.begun] == ["random", "random", "gold", "gold"]


def test_a_policy_whose_config_changes_while_it_plays_is_refused_with_what_it_played_kept(tmp_path, monkeypatch):
    (tmp_path / "own_changing.py").write_text(
        "from gym_text_policies import Decision, Policy\n\n\n"
        "class Changes(Policy):\n"
        "    count = 0\n"
        "    config = property(lambda self: {'count': self.count})\n\n"
        "    def decide(self, turns):\n"
        "        self.count += 1\n"
        "        return [Decision('turn left') for turn in turns]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with LocalEngine() as engine, EpisodeStore(tmp_path / "run", {}) as store:
        rows = series(engine, "own_changing:Changes")
        with pytest.raises(RunError, match="Seed 0: expected a policy whose config stays"):
            play_missing(store, rows, engine)
        assert len(store) == 1


def test_an_error_of_the_users_own_code_names_its_row(tmp_path, monkeypatch):
    (tmp_path / "own_broken.py").write_text("from gym_text_policies import Policy\n1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with LocalEngine() as engine, pytest.raises(ZeroDivisionError) as caught:
        series(engine, "random", "own_broken:Mine")
    assert caught.value.__notes__ == ["This was in the row 'own_broken:Mine'."]
    with LocalEngine() as engine, pytest.raises(UsageError, match=r"^nowhere:Mine: model 'nowhere:Mine': expected"):
        series(engine, "nowhere:Mine")
