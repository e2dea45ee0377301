"""Runs play what their folder does not have, by one function."""

import io
import logging
from contextlib import redirect_stderr

import gymnasium as gym
import pytest

from gym_text_policies import EpisodeStore
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.local import LocalEngine
from gym_text_policies.experiments.play_missing import Progress, ProgressBar, Series, play_missing, stored
from gym_text_policies.policies.config import PolicyConfig

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=6"


class Noted(Progress):
    """Notes what it is told."""

    def __init__(self):
        self.begun, self.counted, self.seeds = [], 0, []

    def showing(self, series, store, missing):
        self.begun.append(([one.label for one in series], missing))
        return self

    def turns(self, count):
        self.counted += count

    def ended(self, episode):
        self.seeds.append(episode.seed)


class Spreading(LocalEngine):
    """Says that it plays several jobs at the same time."""

    spreads = True


def series(engine, *models, seeds=range(3)):
    return [Series.of(model, EpisodeJob(GOTO, {}, PolicyConfig(model)), engine, seeds) for model in models]


def test_what_is_stored_is_not_played_again(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        first, second = Noted(), Noted()
        rows = series(engine, "random", "gold")
        play_missing(store, rows, engine, first)
        assert first.begun == [(["random"], 3), (["gold"], 3)] and sorted(first.seeds) == [0, 0, 1, 1, 2, 2]
        assert first.counted == sum(episode.length for episode in store.episodes())
        more = series(engine, "random", "gold", seeds=range(1, 5))
        play_missing(store, more, engine, second)
        assert second.begun == [(["random"], 2), (["gold"], 2)] and set(second.seeds) == {3, 4}
        assert [episode.seed for episode in stored(store, more[0])] == [1, 2, 3, 4]


def test_an_engine_that_spreads_its_work_gets_all_of_it_at_once(tmp_path):
    with Spreading() as engine, EpisodeStore(tmp_path, {}) as store:
        watch = Noted()
        play_missing(store, series(engine, "random", "gold"), engine, watch)
    assert watch.begun == [(["random", "gold"], 6)] and len(store) == 6


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
            assert ("failing: 2 episodes ended in an error; retry_errors plays them again." in caplog.text) == bool(played)


def test_a_bar_counts_episodes_and_writes_a_line_of_each(tmp_path):
    pytest.importorskip("tqdm")
    with redirect_stderr(io.StringIO()) as shown, LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        play_missing(store, series(engine, "gold"), engine, ProgressBar(lines=True))
    text = shown.getvalue()
    assert "gold: 3.0/3 episodes, success" in text
    assert all(f"seed {seed}: " in text for seed in range(3)) and text.count("won, return 0.") >= 1


def test_episodes_are_identified_as_rollout_identifies_them(tmp_path):
    with LocalEngine() as engine, EpisodeStore(tmp_path, {}) as store:
        (gold,) = series(engine, "gold")
        play_missing(store, [gold], engine)
        assert {episode.key for episode in store.episodes()} == set(gold.keys.values())
        limit = gym.make("BabyAIText-v0", task="goto", max_episode_steps=6).spec.max_episode_steps
        assert gold.limit == limit == 6
