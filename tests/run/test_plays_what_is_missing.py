"""A run plays what its folder does not have, by one class, and shows how it goes on."""

import dataclasses
import json
import logging

import pytest
from provider_server import ProviderServer, running

from gym_text.errors import BudgetError, RunError, UsageError
from gym_text_policies import EpisodeStore
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.report.figures import row
from gym_text_policies.run.engine import LocalEngine
from gym_text_policies.run.plan import PlanRow
from gym_text_policies.run.play import EpisodeOptions, Run
from gym_text_policies.run.progress import Progress

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=6"


class Noted(Progress):
    """Notes what it is told."""

    def __init__(self):
        super().__init__(shown=False)
        self.begun, self.seeds = [], []

    def begin(self, row, total, stored=0, won=0):
        super().begin(row, total, stored, won)
        self.begun.append((row.partition(", ")[2], total, stored, won))

    def ended(self, row, episode):
        self.seeds.append(episode.seed)


class Spreading(LocalEngine):
    """Says that it plays several rows at the same time."""

    spreads, together = True, ()

    def play(self, rows):
        self.together += (len(rows),)
        return super().play(rows)


@pytest.fixture
def engine():
    with LocalEngine() as engine:
        yield engine


@pytest.fixture
def store(tmp_path):
    with EpisodeStore(tmp_path / "run", {}) as store:
        yield store


def plan(*models, seeds=range(3), environment=GOTO):
    return [PlanRow(model, environment, PolicyConfig(model), seeds) for model in models]


def played(store, engine, rows, progress=None, **options):
    """Play rows; return the run, and what it noted."""
    run, noted = Run(rows, store, engine, EpisodeOptions(**options)), progress or Noted()
    run.play(noted)
    return run, noted


def test_what_is_stored_is_not_played_again(engine, store):
    _, first = played(store, engine, plan("random", "gold"))
    assert first.begun == [("random", 3, 0, 0), ("gold", 3, 0, 0)] and sorted(first.seeds) == [0, 0, 1, 1, 2, 2]
    run, second = played(store, engine, plan("random", "gold", seeds=range(1, 5)))
    won = [sum(episode.outcome == "won" for episode in run.episodes(row) if episode.seed < 3) for row in run.rows]
    assert second.begun == [("random", 4, 2, won[0]), ("gold", 4, 2, won[1])] and set(second.seeds) == {3, 4}
    assert [episode.seed for episode in run.episodes(run.rows[0])] == [1, 2, 3, 4]
    assert {episode.key for episode in run.episodes(run.rows[0])} == set(run.rows[0].keys.values())


def test_all_is_played_anew_if_asked_and_the_last_record_counts(engine, store, caplog):
    caplog.set_level(logging.INFO)
    played(store, engine, plan("random"))
    _, noted = played(store, engine, plan("random"), fresh=True)
    assert sorted(noted.seeds) == [0, 1, 2] and len(store) == 3
    assert len(store.path.read_text("utf-8").splitlines()) == 6 and "stored already" not in caplog.text
    played(store, engine, plan("random", seeds=range(5)))
    assert f"{GOTO}, random: 3 of 5 episodes are stored already" in caplog.text


def test_an_engine_that_spreads_its_work_gets_all_of_it_at_once(store):
    with Spreading() as engine:
        _, noted = played(store, engine, plan("random", "gold"))
    assert engine.together == (2,) and len(store) == 6 and [name for name, *_ in noted.begun] == ["random", "gold"]


def test_rows_of_a_model_are_played_together_and_an_episode_of_two_rows_once(engine, store):
    rows = [row for place in (GOTO, f"{GOTO}&num_dists=1") for row in plan("random", "gold", seeds=[0], environment=place)]
    _, noted = played(store, engine, rows + plan("random", seeds=[0]))
    assert [name for name, *_ in noted.begun] == ["random", "random", "gold", "gold"] and noted.seeds == [0] * 4


def test_failures_are_said_and_tried_again_only_if_asked(engine, store, caplog):
    failing = [PlanRow("failing", GOTO, PolicyConfig.of("scripted:nonsense", on_invalid="raise"), range(2))]
    for retry, seeds in ((False, [0, 1]), (False, []), (True, [0, 1])):
        caplog.clear()
        _, noted = played(store, engine, failing, retry_errors=retry)
        assert sorted(noted.seeds) == seeds
        assert "failing: 2 of 2 episodes ended in an error. The first of each kind:\n  2 x PolicyError: " in caplog.text
        assert "episodes.jsonl; --retry-errors (in an experiment's file retry_errors: true) plays them again." in caplog.text


def answering(server, mode="text", **options):
    return PolicyConfig.of("openai:m", mode=mode, **{"base_url": f"{server.url}/v1", "retries": 0} | options)


def rows_of(*policies, seeds=range(2)):
    return [PlanRow(f"row {number}", GOTO, policy, seeds) for number, policy in enumerate(policies)]


@pytest.mark.parametrize("mode", ["text", "json", "choose"])
def test_a_server_is_asked_once_for_each_mode_before_anything_is_played(engine, store, mode):
    text = '{"action": "go forward"}' if mode == "json" else "go forward"
    with running(ProviderServer(text=text)) as server:
        rows = rows_of(answering(server, mode), dataclasses.replace(answering(server, mode), history=2))
        played(store, engine, rows)
        asked = [body for _, _, body in server.requests if "yes or no" in json.dumps(body)]
        assert len(asked) == 1 and server.requests[0][2] == asked[0] and server.refusal is None
        requests = len(server.requests)
        played(store, engine, rows)
        assert len(server.requests) == requests > 1  # all is stored: nobody is asked


def test_a_mode_that_the_server_lacks_is_left_out_beside_one_that_it_has(engine, store, caplog):
    with running(ProviderServer(text="go forward")) as server:  # no JSON
        run, noted = played(store, engine, rows_of(answering(server), answering(server, "json")))
        assert sorted(noted.seeds) == [0, 1] and [row.plan.label for row in run.rows] == ["row 0"]
        assert f"{GOTO}, row 1: " in caplog.text and "This row is left out" in caplog.text
        with pytest.raises(UsageError, match="row 0: "):
            played(store, engine, rows_of(answering(server, "json")))


def test_the_question_before_the_run_costs_as_any_other(engine, store):
    with running(ProviderServer()) as server:
        with pytest.raises(BudgetError, match="max_total_tokens=9"):
            played(store, engine, rows_of(answering(server, max_total_tokens=9)))
        assert not server.requests


@pytest.mark.parametrize("kept", [False, True])
def test_a_run_that_stops_says_how_paid_answers_are_kept(engine, store, caplog, tmp_path, kept):
    cache = {"cache": str(tmp_path / "answers")} if kept else {}
    with running(ProviderServer(text="turn left")) as server, pytest.raises(BudgetError):
        played(store, engine, rows_of(answering(server, max_total_tokens=900, **cache)))
    assert server.requests and ("cache=FOLDER" in caplog.text) is not kept


def test_seeds_beyond_a_folds_levels_count_once(engine, store):
    policy, place = PolicyConfig("random"), "CookingWorldText-v0?max_episode_steps=2"
    once, again = ([PlanRow("random", place, policy, seeds, {"fold": "test"})] for seeds in ((0, 1), (0, 1, 1000, 2001)))
    first, _ = played(store, engine, once)
    second, _ = played(store, engine, again)
    figures = row("cooking", "random", second.episodes(second.rows[0]))
    assert (figures["episodes"], figures["levels"]) == (4, 2)
    assert figures["success_interval"] == row("cooking", "random", first.episodes(first.rows[0]))["success_interval"]


def test_a_policy_whose_config_changes_while_it_plays_is_refused_with_what_it_played_kept(tmp_path, engine, store, monkeypatch):
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
    with pytest.raises(RunError, match="Seed 0: expected a policy whose config stays"):
        played(store, engine, plan("own_changing:Changes"))
    assert len(store) == 1
