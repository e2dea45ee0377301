"""`gym-text compare`: rows on the same levels."""

from dataclasses import replace

import gymnasium as gym
import pytest
from report_runs import SEEDS, make_env

from gym_text import UsageError
from gym_text_policies import EpisodeStore, as_policy, cli, load_policy, rollout
from gym_text_policies.report.compare import compare_policies


def play(folder, make, *policies):
    """Store the episodes of policies."""
    with EpisodeStore(folder) as store:
        for policy in policies:
            for episode in rollout(make, policy, SEEDS):
                store.append(episode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the expert, and two training runs that turn and walk."""
    folder = tmp_path_factory.mktemp("played")
    with make_env() as env:
        learnt = [as_policy(lambda obs, action=action: action, env, name=f"learnt-{action}") for action in (1, 2)]
        play(folder / "expert", make_env, load_policy("gold", env))
    for number, policy in enumerate(learnt):
        play(folder / "learnt" / str(number), make_env, policy)
    return folder


def test_rows_are_compared_on_the_levels_that_all_have_played(folder):
    (named,) = compare_policies(["gold (expert)", "learnt-*"], folder)
    assert named.runs == (1, 2) and named.levels == len(SEEDS) and named.left_out == 0
    (single,) = compare_policies(["gold (expert)", "learnt-1"], folder)
    (tests,) = single.tests
    assert tests["success"].alone == (0, len(SEEDS)) and tests["success"].p == 2 / 2 ** len(SEEDS)
    assert tests["return"].difference == pytest.approx(-single.figures[0]["return"].value)
    low, high = tests["return"].interval
    assert low < tests["return"].difference < high < 0
    assert single.figures[0]["success"].low == pytest.approx(0.61, abs=0.005)  # Wilson's for 6 of 6


def test_the_first_is_what_several_others_are_compared_with(folder, capsys):
    assert cli.main(["compare", "gold (expert)", "learnt-1", "learnt-2", "--folder", str(folder)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120 and "1. gold (expert)\n2. learnt-1\n3. learnt-2\n" in text
    assert "McNemar; 2 alone wins 0 levels, 1 alone 6" in text and "| 3 less 1 | success" in text


def test_an_environment_with_more_training_runs_counts_no_more_than_another(tmp_path):
    def longer():
        return gym.make("BabyAIText-v0", task="goto", fold="test", max_episode_steps=21)

    with make_env() as env, longer() as other:
        learnt = [as_policy(lambda obs: 1, env, name=f"learnt-{run}") for run in range(3)]
        play(tmp_path, make_env, load_policy("random", env), *learnt)
        play(tmp_path, longer, load_policy("random", other), load_policy("gold", other))
    few, many, both = compare_policies(["random", "*l*"], tmp_path)
    assert [one.environment.partition("max_episode_steps=")[2][:2] for one in (few, many)] == ["20", "21"]
    assert few.runs == (1, 3) and many.runs == (1, 1) and many.figures[1]["success"].value == 1
    for name in ("success", "return", "steps"):
        values = [one.figures[1][name].value for one in (few, many, both)]
        assert values[0] != values[1] and values[2] == pytest.approx((values[0] + values[1]) / 2)
        difference = both.tests[0][name]
        assert difference.difference == pytest.approx(values[2] - both.figures[0][name].value)
        assert difference.interval[0] <= difference.difference <= difference.interval[1]
    middle = both.figures[1]["IQM of return"]
    assert middle.low <= middle.value <= middle.high and 0.3 < middle.value < 0.6  # half of the levels have a return of 0


def test_episodes_that_ended_in_an_error_are_counted_beside_what_is_compared(folder, tmp_path):
    for name in ("expert", "learnt/1"):
        with EpisodeStore(tmp_path / name) as store:
            for episode in EpisodeStore(folder / name):
                store.append(replace(episode, error="broken" if name != "expert" and episode.seed else None))
    (alone,) = compare_policies(["gold (expert)", "learnt-2"], tmp_path)
    assert alone.levels == 1 and alone.failed == ((0, len(SEEDS)), (5, len(SEEDS)))
    assert "2. learnt-2: 5 of 6 episodes ended in an error and are left out\n" in alone.to_text()


def test_a_wrong_name_is_answered_with_the_rows(folder):
    with pytest.raises(UsageError, match=r"Did you mean 'gold \(expert\)'"):
        compare_policies(["golf (expert)", "learnt-1"], folder)
    with pytest.raises(UsageError, match="expected two or more"):
        compare_policies(["learnt-1"], folder)


def test_returns_of_another_scale_are_in_no_common_mean(tmp_path):
    def lander():
        return gym.make("LunarLanderLLM-v2", fold="test", max_episode_steps=9)

    for make in (lander, make_env):
        with make() as env:
            play(tmp_path, make, as_policy(lambda obs: 0, env, name="waits"), load_policy("random", env))
    first, second, both = compare_policies(["random", "waits"], tmp_path)
    assert all("IQM of return" in one.figures[0] and "return" in one.tests[0] for one in (first, second))
    assert set(both.figures[1]) == {"success", "steps"} and both.levels == 12
    assert set(both.tests[0]) == {"success", "steps"} and "| return" not in both.to_text()
