"""The index of the benchmarks, and what all of them share."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gym_text.science_world.tasks import level_number
from gym_text_policies.environments import make_environment
from gym_text_policies.records import Decision, Episode, Step
from gym_text_policies.rollouts import rollout

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("helpers.harness")


def test_the_published_scienceworld_counts_the_score_before_a_loss_and_a_task_as_much_as_another(harness):
    levels = importlib.import_module("helpers.science_levels")

    def episode(level, rewards, **end):
        steps = [
            Step(
                {},
                Decision("wait"),
                reward,
                terminated=False,
                truncated=False,
                success=False,
                failure=False,
                score=0.0,
                action_was_valid=True,
            )
            for reward in rewards
        ]
        steps[-1] = replace(steps[-1], **end)
        return Episode(f"{level}", {"id": "ScienceWorldText-v0"}, {}, level, tuple(steps), level=level)

    boil, melt = level_number("boil", 21), level_number("melt", 21)
    won = episode(boil, (0.5, 0.5), terminated=True, success=True)
    lost = episode(boil + 1, (0.25, -0.25), terminated=True, failure=True)
    short = [episode(melt + number, (0.1,), truncated=True) for number in range(4)]
    again = episode(boil + 1, (0.75, -0.75), terminated=True, failure=True)
    record = levels.figures([won, lost, again, *short, replace(lost, error="no plan")])
    assert record["tasks"]["boil"] == {"levels": 2, "score": 75.0, "strict": 50.0, "success": 0.5}
    assert (record["score"], record["strict"], record["success"]) == (42.5, 30.0, 0.25)
    assert (record["episodes"], record["errors"], record["lost"], record["truncated"]) == (7, 1, 2, 4)
    assert record["score_interval"] == (30.0, 55.0)  # of boil one of the levels is drawn: 50 or 100; melt has no spread
    assert levels.interval([[0.0], [100.0], [50.0, 50.0]]) == (0.0, 100.0)
    text = "\n".join(levels.lines({"gold (expert)": record | {"limit": 100}, "random": record | {"limit": 100}}))
    assert (
        "| task | random | gold (expert) |" in text and "| boil | 75 (50 %) | 75 (50 %) |" in text and "| melt | 10 (0 %)" in text
    )
    assert "| **mean score** | 42.5 [30.0, 55.0] |" in text and "| freeze |  |  |" in text


def test_a_published_score_counts_a_lost_game_as_nothing(harness):
    published = importlib.import_module("published")

    def episode(seed, rewards, **end):
        decision = Decision("wait")
        state = {"terminated": False, "truncated": False, "success": False, "failure": False, "score": 0.0}
        steps = [Step({}, decision, reward, action_was_valid=True, **state) for reward in rewards]
        steps[-1] = replace(steps[-1], **end)
        return Episode(f"{seed}", {"id": "ArithmeticText-v0"}, {}, seed, tuple(steps), level=seed)

    won = episode(0, (0.5, 0.5), terminated=True, success=True)
    lost = episode(1, (0.5, -1.5), terminated=True, failure=True)
    short = episode(2, (0.5, 0.0), truncated=True)
    levels = {("ArithmeticText-v0", f"level {one.level}"): one for one in (won, lost, short)}
    scores = published.scores(levels, published.FOUR_GAMES)
    found = scores["Arithmetic"]
    assert (found["score"], found["return"]) == (0.5, pytest.approx(0.5 / 3))
    assert scores["Sorting"]["levels"] == 0
    assert (found["won"], found["lost"], found["truncated"], found["levels"]) == (1, 1, 1, 3)
    assert "| us | 0.500" in "\n".join(published.four_lines({"us": {"Arithmetic": found}}))


SIMON = {"gameLength": 50, "numDistractors": 4, "memorization": 1}
TALES = {
    "CookingWorld": {"numLocations": 1, "numIngredients": 2, "numDistractorItems": 5, "includeDoors": 0, "limitInventorySize": 0},
    "TextWorldCommonsense": {"numLocations": 1, "numItemsToPutAway": 1, "includeDoors": 0, "limitInventorySize": 0},
    "CoinCollector": {"numLocations": 1, "numDistractorItems": 5, "limitInventorySize": 0},
    "MapReader": {"numLocations": 2, "maxDistanceApart": 1, "maxDistractorItemsPerLocation": 2, "includeDoors": 0},
    "SimonSays100": {"gameLength": 100, "numDistractors": 4},
    "SimonSaysWithMemory50": SIMON | {"verbose": 0},
    "SimonSaysWithMemory50Verbose": SIMON | {"verbose": 1},
}
"""What TALES gives the engine, in seven of its sixteen tasks."""


def test_the_tasks_of_tales_have_its_parameters_and_a_lost_game_keeps_its_best_score(harness):
    tales = importlib.import_module("helpers.tales_levels")
    assert len(tales.TASKS) == 16
    for task, parameters in TALES.items():
        env = make_environment(tales.environment(task), fold="test")
        assert parameters.items() <= env.unwrapped.game_parameters.items() and env.spec.max_episode_steps == 100
    steps = [Step({}, Decision("wait"), reward, False, False, False, False, 0.0, True) for reward in (0.5, 0.25, -1.75)]
    assert tales.best(Episode("lost", {}, {}, 0, tuple(steps))) == 0.75
    assert tales.best(Episode("lost", {}, {}, 0, tuple(steps[2:]))) == 0.0
    scores = {task: {"0": 1.0 if task == "Sorting" else 0.0} for task in tales.TASKS}
    assert tales.figure(scores, (0,)).startswith("6.2 [") and tales.figure(scores, (1, 2)) == ""


def test_rollouts_in_copies_of_the_game_teach_a_small_copy_what_its_model_does_not_do(harness, monkeypatch, tmp_path):
    copies = importlib.import_module("helpers.small_copy")
    monkeypatch.chdir(tmp_path)
    for name, number in (("STATES", 4), ("COPYING", 300), ("LEARNING", 300)):
        monkeypatch.setattr(copies, name, number)
    falls = np.random.default_rng(0).normal(scale=5, size=(200, 8)).astype(np.float32)
    model = np.tile(np.array([0.9, 0.05, 0.0, 0.05], np.float32), (200, 1))
    copy = copies.SmallCopy.of(falls, model, seed=0)
    steps = copy.improve(range(1_000_000, 1_000_012))
    before, after = (
        copies.SmallCopy(copy.networks[:number]).probabilities(copies.seen([0, 0.3, 0, -1, 0, 0, 0, 0])) for number in (1, 2)
    )
    main = copies.NAMES.index("fire main engine")
    assert before.argmax() == 0 and after[main] > 1.5 * before[main] and abs(after.sum() - 1) < 1e-6 and steps > 4 * 4 * 12 * 5
    copy.save("small_copy-0.npz")
    env = make_environment("LunarLanderLLM-v2", fold="train")
    episode = next(iter(rollout(lambda: env, copies.Improved(env.unwrapped.text_spec), seeds=[0])))
    seen = [copies.seen(copies.numbers_of(step.observation)) for step in episode.steps]
    assert [step.decision.completion for step in episode.steps] == [
        copies.NAMES[copy.probabilities(each).argmax()] for each in seen
    ]
    assert any(step.decision.completion != step.decision.action for step in episode.steps)
